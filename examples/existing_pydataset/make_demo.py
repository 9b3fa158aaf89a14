"""Make the demo set of examples/segmentation here: demo/images, demo/masks and demo/palette.csv beside this file."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.argv[1:1] = ["--out", str(HERE / "demo")]
    runpy.run_path(str(HERE.parent / "segmentation" / "make_demo.py"), run_name="__main__")
