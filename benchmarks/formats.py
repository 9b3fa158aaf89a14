"""Compare the forms in which samples are kept, and check what is predicted of a conversion against real ones.

    python benchmarks/formats.py --photos DIR --camvid DIR [--rounds N] [--seconds S] [--only GROUP,...] [--json]

DIR as for loaders.py, whose way of measuring this is: a process a row, interleaved blocks, medians. Groups:

- photos, camvid: loader alone, page cache warm
- convert: against the decode rate of all cores, and as predicted from a part of 400 samples
- payback: predicted against real epochs, with a model that takes 3 times what files give
- cold: one epoch after the files were dropped from the page cache
- candidates: forms that are not built
- kills: conversions killed with -9 at 20 random moments, by tests/integration/test_convert_killed.py
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import claims
import format_candidates
import format_rows
import format_runs
import loaders
import rows

from autopipe.hardware import disk
from autopipe.measure.stats import median
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.workload.data import source as data_source

GROUPS = ("photos", "camvid", "convert", "payback", "cold", "candidates", "kills")
# (what, row, other row, least ratio); a form stands for the better of its two loaders
TARGETS: dict[str, list[tuple[str, str, str, float]]] = {
    "photos": [
        ("tfrecord over files", "tfrecord", "files", 1.0),
        ("array over files", "array", "files", 10.0),
        ("tfrecord over tf.data on the same TFRecords", "tfrecord", "tf.data on TFRecords", 1.3),
        ("array over np.load a sample", "array", "np.load, PyDataset", 1.0),
    ],
    "camvid": [
        ("camvid cached over PNG files", "camvid files + memory", "camvid files", 50.0),
        ("camvid array over PNG files", "camvid array", "camvid files", 50.0),
    ],
}


def main() -> None:
    arguments = _arguments()
    cores = len(os.sched_getaffinity(0))
    folders = {"photos": arguments.photos, "camvid": arguments.camvid}
    if arguments.row:
        row = format_rows.table(cores, Path(arguments.sets))[arguments.row]
        rows.serve(row, Path(folders[row.data]))
        return
    chosen = arguments.only.split(",")
    with tempfile.TemporaryDirectory(prefix="autopipe-formats-", dir=arguments.work) as sets:
        result = {"cores": cores, "groups": dict(run(arguments, chosen, cores, Path(sets)))}
    print(json.dumps(result, indent=1, default=dataclasses.asdict) if arguments.json else as_text(result))


def run(arguments: argparse.Namespace, chosen: Sequence[str], cores: int, sets: Path) -> Iterable[tuple[str, Any]]:
    """Yield each chosen group with its figures."""
    if arguments.photos:
        folder = Path(arguments.photos)
        workload = rows.photos(folder)
        if {"photos", "cold", "candidates"} & {*chosen}:
            format_runs.prepare(workload, "photos", sets, cores)
        groups = {
            "photos": lambda: warm_photos(workload, arguments, cores, sets),
            "convert": lambda: conversion_group(workload, arguments.rounds, cores, sets),
            "payback": lambda: payback_group(workload, arguments.rounds, cores, sets),
            "cold": lambda: cold_group(folder, arguments.rounds, cores, sets),
            "candidates": lambda: format_candidates.candidates(folder, sets, arguments.rounds),
        }
        yield from ((name, group()) for name, group in groups.items() if name in chosen)
    if arguments.camvid and "camvid" in chosen:
        format_runs.prepare(format_rows.camvid(Path(arguments.camvid)), "camvid", sets, cores)
        yield "camvid", warm("camvid", arguments, cores, sets)
    if "kills" in chosen:
        yield "kills", kills()


def warm_photos(workload: Any, arguments: argparse.Namespace, cores: int, sets: Path) -> dict[str, Any]:
    format_runs.write_npy(workload, sets / "photos" / "npy")
    return warm("photos", arguments, cores, sets)


def warm(data: str, arguments: argparse.Namespace, cores: int, sets: Path) -> dict[str, Any]:
    """Return the rows of a data set and their targets."""
    table = format_rows.table(cores, sets)
    names = [name for name in table if table[name].data == data]
    command = [*sys.argv[1:], "--sets", str(sets)]
    blocks = loaders.measure(names, command, arguments.rounds, arguments.seconds)
    rates = {name: [rate for rate, _ in found] for name, found in blocks.items()}
    return {
        "rows": {
            name: {"images_per_second": median(found), "output": table[name].output, "blocks": found}
            for name, found in rates.items()
        },
        "claims": [
            claims.at_least(
                what, least, median([a / b for a, b in zip(_best(one, rates), _best(other, rates), strict=True)])
            )
            for what, one, other, least in TARGETS[data]
        ],
    }


def _best(form: str, rates: Mapping[str, Sequence[float]]) -> Sequence[float]:
    """Return the blocks of a row, or of the better loader of a form."""
    names = [name for name in (form, f"{form}, threads", f"{form}, processes") if name in rates]
    return max((rates[name] for name in names), key=median)


def conversion_group(workload: Any, rounds: int, cores: int, sets: Path) -> dict[str, Any]:
    """Return conversions and predictions; a prediction is held against another run, so medians of both are compared."""
    found = {form: format_runs.conversions(workload, form, cores, 2 * rounds, sets) for form in ("array", "tfrecord")}
    array = found["array"]
    made = [
        claims.at_least(
            "array converted over decode rate of all cores",
            0.9,
            median([one["convert_per_second"] / one["decode_per_second"] for one in array]),
        )
    ]
    for form, ran in found.items():
        for what, key in (("time", "seconds"), ("size", "bytes")):
            off = abs(median([one[f"predicted_{key}"] for one in ran]) / median([one[key] for one in ran]) - 1)
            made.append(claims.at_most(f"{form}: {what} predicted from a part, off by", 0.10, off))
    return {"rounds": found, "claims": made}


def payback_group(workload: Any, rounds: int, cores: int, sets: Path) -> dict[str, Any]:
    ran = [format_runs.pays_back(workload, cores, 3.0, sets) for _ in range(rounds)]
    off = median([abs(one["predicted_epochs"] / one["epochs"] - 1) for one in ran])
    return {"rounds": ran, "claims": [claims.at_most("epochs until array pays, predicted, off by", 0.15, off)]}


def cold_group(folder: Path, rounds: int, cores: int, sets: Path) -> dict[str, Any]:
    """Return cold epochs of each form. There is no target: which form wins turns with the disk."""
    workload = format_rows.kept(folder, "photos", sets)
    files = {
        "files": [Path(name) for name in data_source.files(workload.data)],
        "tfrecord": list((sets / "photos" / "tfrecord").glob("*-*")),
        "array": list((sets / "photos" / "array").glob("*-*")),
    }
    ran: dict[str, list[dict[str, float]]] = {form: [] for form in files}
    for _ in range(rounds):
        for form, paths in files.items():
            config = PipelineConfig(loader=Threads(workers=4 * cores), keep=form)
            ran[form].append(format_runs.cold(workload, config, paths))
    found, speed = disk.detect(sets), disk.read_bytes_per_second(files["array"])
    return {
        "regime": f"cold page cache, disk {found.kind}, {speed / 1e6:,.0f} MB/s read by 4 threads",
        "rows": {
            form: {
                "images_per_second": median([one["images_per_second"] for one in blocks]),
                "output": f"uint8; {max(one['resident_share'] for one in blocks):.0%} was in memory before",
                "blocks": blocks,
            }
            for form, blocks in ran.items()
        },
        "claims": [],
    }


def kills() -> dict[str, Any]:
    test = Path(__file__).parent.parent / "tests" / "integration" / "test_convert_killed.py"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "600", str(test)],
        env={**os.environ, "AUTOPIPE_TEST_KILLS": "20"},
        cwd=test.parent.parent.parent,
        stdout=sys.stderr,
        check=False,
    )
    equal = 20.0 if ended.returncode == 0 else 0.0
    return {"claims": [claims.at_least("of 20 killed conversions, resumed: equal to an undisturbed one", 20.0, equal)]}


def as_text(result: Mapping[str, Any]) -> str:
    lines = [f"{result['cores']} cores; medians of interleaved blocks"]
    for name, group in result["groups"].items():
        lines += ["", f"{name:32} {'images/s':>10}  output" if "rows" in group else name]
        lines += [f"regime: {group['regime']}"] if "regime" in group else []
        lines += [
            f"{row:32} {found['images_per_second']:10,.1f}  {found['output']}"
            for row, found in group.get("rows", {}).items()
        ]
        if "pixels_changed_by" in group:
            changed = group["pixels_changed_by"]
            lines.append(
                f"jpeg-array changes pixels by {changed['mean_levels']:.2f} of 255, at most {changed['largest']}"
            )
        lines += map(str, group["claims"])
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = claims.arguments(__doc__)
    parser.add_argument("--work", help="folder for converted sets, on the disk that is to be measured")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, separated by commas")
    parser.add_argument("--sets", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
