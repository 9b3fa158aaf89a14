"""The scripts of `benchmarks/`: each starts, and the record of a machine is written without an accelerator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [path for path in sorted(BENCHMARKS.rglob("*.py")) if 'if __name__ == "__main__":' in path.read_text()]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_tells_how_it_is_used(script: Path) -> None:
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_a_record_of_a_machine_is_written_as_its_parts_end(tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(BENCHMARKS / "device" / "record.py"), str(tmp_path), "--small"]
    subprocess.run([*command, "--only", "machine,loaders,lock,transfer"], check=True, stdout=subprocess.DEVNULL)

    record = json.loads((tmp_path / "results.json").read_text())
    assert {name: part["ended"] for name, part in record["parts"].items()} == dict.fromkeys(
        ("photographs", "machine", "loaders", "lock", "transfer"), "ok"
    )
    rates = {row["what"]: row["images/s"] for row in record["parts"]["loaders"]["rows"] if "images/s" in row}
    assert {"crops: Threads(2)", "crops: Processes(2)", "whole: bare C loop, 2 threads"} <= rates.keys()
    assert min(rates.values()) > 0
    assert "crops: Threads(2)" in (tmp_path / "table.txt").read_text()
