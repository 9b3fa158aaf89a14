"""Run each part of a record in a process of its own with a deadline of its own, and write what it found as it comes.

    bash benchmarks/device/run OUT [--small] [--only machine,loaders]

`OUT` gets `results.json`, `table.txt` and `log.txt`. A part that fails, or that its deadline ends, leaves what it has
found so far, and the next one follows. `--small` is for trying it out on any machine: it tells nothing,
and a part may take ten times as long.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

DEADLINES = {  # seconds, 465 in all
    "photographs": 20, "machine": 15, "loaders": 130, "lock": 20, "transfer": 20, "resnet": 105,
    "tune": 105, "live": 50,
}  # fmt: skip
ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(DEADLINES), help="parts (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="few photographs, short blocks, a small network")
    wanted = parser.parse_args()
    only = wanted.only.split(",")
    if wrong := set(only) - set(DEADLINES):
        parser.error(f"no part is called {', '.join(sorted(wrong))}; there are {', '.join(DEADLINES)}")
    wanted.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"schema_version": 1, "small": wanted.small, "autopipe": _version(), "parts": {}}
    with tempfile.TemporaryDirectory() as folder, open(wanted.out / "log.txt", "w") as log:
        options = ["--small"] * wanted.small
        for name in [part for part in DEADLINES if part in only or part == "photographs"]:
            part = record["parts"][name] = {"ended": "not yet", "seconds": 0.0, "rows": []}
            command = [sys.executable, "-P", str(Path(__file__).with_name("parts.py")), name, folder, *options]
            began = time.monotonic()
            deadline = DEADLINES[name] * (10 if wanted.small else 1)
            for row in _lines(command, deadline, part, log):
                part["rows"].append(row)
                part["seconds"] = round(time.monotonic() - began, 1)
                _write(record, wanted.out)
                Path(folder, "results.json").write_text(json.dumps(record))  # for later parts
            part["seconds"] = round(time.monotonic() - began, 1)
            _write(record, wanted.out)
            print(_table(name, part), end="", flush=True)


def _version() -> str:
    """Return the version of autopipe, and a digest of its files; refuse a wheel of other files than this checkout's."""
    import autopipe

    def digest(root: Path) -> str:
        files = sorted(root.rglob("*.py"))
        named = [f"{file.relative_to(root)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
        return hashlib.sha256("\n".join(named).encode()).hexdigest()[:12]

    ours, installed = digest(ROOT / "autopipe"), digest(Path(autopipe.__file__).parent)
    if ours != installed:
        sys.exit("error: autopipe is installed from other files than this checkout's\n\n"
                 "hint: bash benchmarks/device/run --wheels")  # fmt: skip
    return f"{autopipe.__version__} ({ours})"


def _lines(command: list[str], deadline: float, part: dict[str, Any], log: IO[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows that a part prints, each as it comes; note how it ended."""
    ends = time.monotonic() + deadline
    log.write(f"\n===== {command[3]}\n")
    log.flush()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
    try:
        while line := lines.get(timeout=max(0.0, ends - time.monotonic())):
            yield json.loads(line)
        status = process.wait(max(0.0, ends - time.monotonic()))
        part["ended"] = "ok" if status == 0 else f"failed with status {status}; log.txt says why"
    except (queue.Empty, subprocess.TimeoutExpired):
        part["ended"] = f"its {deadline} s were over"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _pass_on(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _write(record: Mapping[str, Any], out: Path) -> None:
    texts = {
        "results.json": json.dumps(record, indent=1) + "\n",
        "table.txt": "".join(_table(name, part) for name, part in record["parts"].items()),
    }
    for name, text in texts.items():
        (out / f"{name}.tmp").write_text(text)
        (out / f"{name}.tmp").rename(out / name)


def _table(name: str, part: Mapping[str, Any]) -> str:
    lines = [f"{name}: {part['ended']}, {part['seconds']:.1f} s"]
    for row in part["rows"]:
        what, *figures = row.items()
        said = [f"{key} {value:,.1f}" if isinstance(value, float) else f"{key} {value}" for key, value in figures]
        lines.append(f"  {what[1]:42} {', '.join(said)}")
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    main()
