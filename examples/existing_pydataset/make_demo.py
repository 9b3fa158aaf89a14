"""Make the demo set of examples/photos here: demo/CLASS/NUMBER.jpg beside this file."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.argv[1:1] = ["--out", str(HERE / "demo")]
    runpy.run_path(str(HERE.parent / "photos" / "make_demo.py"), run_name="__main__")
