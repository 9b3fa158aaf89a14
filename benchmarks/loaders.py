"""Compare autopipe's loaders with the machine's limit and with other systems, loader alone, in one run.

    python benchmarks/loaders.py --photos DIR --camvid DIR [--rounds N] [--seconds S] [--only GROUP,GROUP] [--json]

DIR for photos has one folder a class (2000 JPEG of 500x375 were used for the targets); for camvid see
examples/segmentation. Each row runs in a process group of its own, which is stopped while others of its table run:
tf.data would go on to fill its buffers. Blocks are interleaved, in an order that turns with each round, and their
medians are shown. A row that cannot run here says why: pip install 'autopipe-tuner[bench]' has the packages.

Rows for arrays make their own data (benchmarks/small_rows.py), and need neither folder.

R is what one core does with the same kernels in a bare loop, times the cores; "R at once" is that loop in a process a
core. With finish="device" autopipe hands over uint8 and class numbers, which are cast, scaled and one-hot encoded on
the device: that is the design, and the output column says so. The rows "host" do all of it on the CPU, as the peers do.
The last column names whose code a row is; each peer is written as its documentation advises, with as many workers as
suit it (peers.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import claims
import rows
from claims import Claim

from autopipe.measure.stats import median

TF_DATA = "tf.data AUTOTUNE"
Block = tuple[float, float]  # images/s, and images per second of processor time

# Rows that run side by side; a row in two groups runs in both. One group at a time, for memory's sake.
GROUPS: dict[str, list[str]] = {
    "limit": ["R", "R at once", "R host"]
    + [f"{loader}{finish}" for loader in ("threads", "processes", "tfdata") for finish in ("", " host")]
    + ["tfdata auto", TF_DATA],
    "peers": [
        "threads", "processes", "PyDataset", "PyDataset threads", "PyDataset processes",
        "Grain threads", "Grain processes", "DALI CPU", "SPDL",
    ],
    "cached": ["threads cached", "processes cached", "tfdata cached", "tf.data cached"],
    "camvid": [
        "camvid threads", "camvid processes", "camvid threads cached", "camvid processes cached", "camvid tf.data",
    ],
    "arrays": ["arrays", "arrays, flip", "tf.data arrays", "tf.data arrays, flip"],
    "loop": ["threads", "processes", "cv2 loop"],
    "crops": [
        "crops: threads", "crops: processes", "crops: threads encoded", "crops: tf.data", "crops: DALI",
        "crops: Grain threads", "crops: Grain processes", "crops: SPDL", "crops: SPDL, FFmpeg",
        "crops: FFCV",
    ],
    "crops-cached": ["crops: threads cached", "crops: processes cached", "crops: tf.data cached", "crops: FFCV raw"],
    "crops-20ms": [
        "crops: threads", "crops: processes", "crops: threads encoded, 20 ms reads",
        "crops: processes encoded, 20 ms reads",
    ],
    "crops-fit": ["crops: threads, fit", "crops: processes, fit", "crops: tf.data, fit", "crops: ejected, fit"],
    "crops-cached-fit": [
        "crops: threads cached, fit", "crops: processes cached, fit", "crops: tf.data cached, fit",
        "crops: ejected cached, fit",
    ],
    "colours": [
        "colours: threads", "colours: processes", "colours: threads cached", "colours: processes cached",
        "colours: tf.data",
    ],
    "colours-fit": ["colours: threads, fit", "colours: processes, fit", "colours: tf.data, fit"],
}  # fmt: skip
_CROPS, _COLOURS = ["crops: threads", "crops: processes"], ["colours: threads", "colours: processes"]
_LATE = [f"{name} encoded, 20 ms reads" for name in _CROPS]
_CACHED = ["crops: threads cached", "crops: processes cached"]


def _fit(names: Sequence[str]) -> list[str]:
    return [f"{name}, fit" for name in names]


# (what, rows of which the best counts, rows of which the best is the other side, least ratio)
TARGETS: list[tuple[str, list[str], list[str], float]] = [
    ("Threads over tf.data AUTOTUNE", ["threads"], [TF_DATA], 1.5),
    ("Processes over tf.data AUTOTUNE", ["processes"], [TF_DATA], 1.5),
    ("Threads over R", ["threads"], ["R"], 0.95),
    ("Processes over R", ["processes"], ["R"], 0.95),
    ("Threads over R at once", ["threads"], ["R at once"], 1.0),
    ("Processes over R at once", ["processes"], ["R at once"], 0.95),
    ("Processes over PyDataset processes", ["processes"], ["PyDataset processes"], 6.0),
    ("best of ours over best of Grain", ["threads", "processes"], ["Grain threads", "Grain processes"], 1.3),
    ("best of ours over DALI CPU", ["threads", "processes"], ["DALI CPU"], 2.0),
    ("best of ours over SPDL", ["threads", "processes"], ["SPDL"], 1.0),
    ("float32 out over tf.data AUTOTUNE", ["threads host", "processes host"], [TF_DATA], 1.4),
    ("cached over tf.data cached", ["threads cached", "processes cached"], ["tf.data cached"], 1.5),
    ("TfData over tf.data AUTOTUNE", ["tfdata"], [TF_DATA], 1.0),
    ("camvid from files over tf.data", ["camvid threads", "camvid processes"], ["camvid tf.data"], 9.0),
    ("camvid cached over tf.data", ["camvid threads cached", "camvid processes cached"], ["camvid tf.data"], 80.0),
    ("arrays over tf.data batch-first", ["arrays"], ["tf.data arrays"], 3.0),
    ("arrays with a flip over tf.data batch-first", ["arrays, flip"], ["tf.data arrays, flip"], 3.0),
    ("Threads over a loop of cv2 calls on all cores", ["threads"], ["cv2 loop"], 1.1),
    ("Processes over a loop of cv2 calls on all cores", ["processes"], ["cv2 loop"], 1.1),
    ("crops over tf.data, which decodes the crop", _CROPS, ["crops: tf.data"], 1.35),
    ("crops over DALI, which decodes the crop", _CROPS, ["crops: DALI"], 1.0),
    ("crops over Grain", _CROPS, ["crops: Grain threads", "crops: Grain processes"], 1.35),
    ("crops over SPDL", _CROPS, ["crops: SPDL", "crops: SPDL, FFmpeg"], 1.35),
    ("crops over FFCV", _CROPS, ["crops: FFCV"], 1.35),
    ("crops of decoded photographs over FFCV's raw pixels", _CACHED, ["crops: FFCV raw"], 1.0),
    ("crops from 20 ms reads, encoded in memory, over local files", _LATE, _CROPS, 0.95),
    ("crops over tf.data, both in fit", _fit(_CROPS), ["crops: tf.data, fit"], 1.6),
    ("crops by eject over tf.data by hand, both in fit", ["crops: ejected, fit"], ["crops: tf.data, fit"], 0.9),
    ("the same, cached", ["crops: ejected cached, fit"], ["crops: tf.data cached, fit"], 0.9),
    ("crops of decoded photographs over tf.data's cache", _CACHED, ["crops: tf.data cached"], 1.5),
    (
        "crops of decoded photographs over tf.data's cache, both in fit",
        _fit(_CACHED),
        ["crops: tf.data cached, fit"],
        1.5,
    ),
    ("colours over tf.data", _COLOURS, ["colours: tf.data"], 1.2),
    ("colours over tf.data, both in fit", _fit(_COLOURS), ["colours: tf.data, fit"], 1.2),
]
RATES = [("arrays", 2_000_000), ("arrays, flip", 800_000)]  # (row, least images/s on 2 cores)


def main() -> None:
    arguments = _arguments()
    cores = len(os.sched_getaffinity(0))
    table = rows.table(cores)
    folders = {"photos": arguments.photos, "camvid": arguments.camvid, "": "."}  # "": rows that make their own data
    if arguments.row:
        rows.serve(table[arguments.row], Path(folders[table[arguments.row].data]))
        return
    wanted = {
        group: [row for row in names if folders[table[row].data]]
        for group, names in GROUPS.items()
        if group in arguments.only.split(",") and any(folders[table[row].data] for row in names)
    }
    result: dict[str, Any] = {"cores": cores, "groups": {}}
    for group, names in wanted.items():
        blocks, missing = measure(names, sys.argv[1:], arguments.rounds, arguments.seconds)
        result["groups"][group] = {
            "rows": {name: _summary(found, table[name]) for name, found in blocks.items()},
            "missing": missing,
            "claims": list(ratios(blocks)),
        }
    print(json.dumps(result, indent=1, default=dataclasses.asdict) if arguments.json else as_text(result))


def _summary(blocks: Sequence[Block], row: rows.Row) -> dict[str, Any]:
    rates, per_cpu_second = zip(*blocks, strict=True)
    return {
        "images_per_second": median(rates),
        "images_per_cpu_second": median(per_cpu_second),
        "output": row.output,
        "code": row.code,
        "blocks": blocks,
    }


def measure(
    names: Sequence[str], command: Sequence[str], rounds: int, seconds: float
) -> tuple[dict[str, list[Block]], dict[str, str]]:
    """Return the blocks of each row that can run, and why the others cannot."""
    running: dict[str, subprocess.Popen[str]] = {}
    missing: dict[str, str] = {}
    try:
        for name in names:
            process = _started(name, command)
            if isinstance(process, str):
                missing[name] = process
            else:
                running[name] = process
        blocks: dict[str, list[Block]] = {name: [] for name in running}
        for number in range(rounds):
            for place in range(len(running)):
                name = list(running)[(place + number) % len(running)]
                os.killpg(running[name].pid, signal.SIGCONT)
                blocks[name].append(_ask(running[name], seconds))
                os.killpg(running[name].pid, signal.SIGSTOP)
        return blocks, missing
    finally:
        for process in running.values():
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _started(name: str, command: Sequence[str]) -> subprocess.Popen[str] | str:
    """Start a row, wait until it is warm, and stop it, so that rows warm up one at a time; or return why it cannot."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", **os.environ}
    process = subprocess.Popen(
        [sys.executable, sys.argv[0], *command, "--row", name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        answer = process.stdout.readline()
    except BaseException:  # Ctrl-C: nothing is left behind
        _kill(process)
        raise
    if answer == "ready\n":
        os.killpg(process.pid, signal.SIGSTOP)
        return process
    why = answer.strip() or f"it ended with status {process.wait()}"
    _kill(process)
    return why


def _ask(process: subprocess.Popen[str], seconds: float) -> Block:
    assert process.stdin is not None
    assert process.stdout is not None
    print(seconds, file=process.stdin, flush=True)
    rate, per_cpu_second = map(float, process.stdout.readline().split())
    return rate, per_cpu_second


def ratios(blocks: Mapping[str, Sequence[Block]]) -> Iterable[Claim]:
    """Yield each target with its figure: the median over rounds of the ratio within a round.

    Below it stands the ratio of images per processor second, which says more on a machine that others use.
    """
    for what, ours, theirs, least in TARGETS:
        mine, other = ([blocks[name] for name in names if name in blocks] for names in (ours, theirs))
        if mine and other:
            yield claims.at_least(what, least, _ratio(mine, other, 0))
            yield Claim("  the same by images a CPU second", f"{_ratio(mine, other, 1):.3f}")
    for name, least in RATES:
        if name in blocks:
            yield claims.at_least(f"{name}, images/s", least, median([rate for rate, _ in blocks[name]]))


def _ratio(ours: Sequence[Sequence[Block]], theirs: Sequence[Sequence[Block]], which: int) -> float:
    best, rival = (max(([block[which] for block in row] for row in rows), key=median) for rows in (ours, theirs))
    return median([a / b for a, b in zip(best, rival, strict=True)])


def as_text(result: Mapping[str, Any]) -> str:
    lines = [f"{result['cores']} cores; medians of interleaved blocks"]
    for name, group in result["groups"].items():
        lines += ["", f"{name:30} {'images/s':>10} {'a CPU second':>13}  {'output':20} whose code"]
        for row, found in group["rows"].items():
            rates = f"{found['images_per_second']:10.1f} {found['images_per_cpu_second']:13.1f}"
            lines.append(f"{row:30} {rates}  {found['output']:20} {found['code']}")
        lines += [f"{row:30} cannot run here: {why}" for row, why in group["missing"].items()]
        lines += map(str, group["claims"])
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = claims.arguments(__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, separated by commas")
    return parser.parse_args()


if __name__ == "__main__":
    main()
