"""Search a recorded table, again and again: how good is a sampler after so many trials?

    python benchmarks/replay.py benchmarks/tables/photos.jsonl.gz --seeds 200 --sampler race --sampler random

Shows how far below the table's best a search is after so many trials: the median, and the 90th percentile in brackets.
Needs nothing of the machine that the table was recorded on; see record_table.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from replaying import report, search, table
from replaying.table import Header, Table
from rich.console import Console

from autopipe.api import request
from autopipe.cli import screen
from autopipe.errors import AutopipeError, ConfigError, near
from autopipe.search import space as spaces
from autopipe.search.space import Space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, metavar="TABLE", help="a recorded table: NAME.jsonl or NAME.jsonl.gz")
    parser.add_argument("--sampler", action="append", help="more than once for several: race, random, tpe")
    parser.add_argument("--seeds", type=_positive, default=20, help="searches a sampler")
    parser.add_argument("--trials", type=_positive, default=25, help="trials a search")
    parser.add_argument("--proof", action="store_true", help="run the race with its proofs, too")
    parser.add_argument("--space", help="the table's search space, if not the one that it names")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=A,B", help="search these values only")
    parser.add_argument("--json", action="store_true", help="print the regret after every trial")
    chosen = parser.parse_args()
    try:
        _replay(chosen)
    except AutopipeError as error:
        print(f"error: {error.message}", *([f"hint: {error.hint}"] if error.hint else []), sep="\n\n", file=sys.stderr)
        sys.exit(2)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but got {number}")
    return number


def _replay(chosen: argparse.Namespace) -> None:
    recorded = _read(chosen.table)
    space = _space(recorded.header, chosen.space, chosen.only)
    names = chosen.sampler or ["race", "random"]
    with screen.bar("replaying", unit="searches") as done:
        compared = search.compare(recorded, space, names, seeds=chosen.seeds, trials=chosen.trials, on_search=done)
        if chosen.proof:
            regrets = search.winner_regrets(recorded, space, seeds=chosen.seeds, trials=chosen.trials, on_search=done)
    if chosen.json:
        proved = {"winners": regrets} if chosen.proof else {}
        print(json.dumps({**report.document(compared), **proved}, indent=2))
        return
    verdict = [report.winners(regrets)] if chosen.proof else []
    Console().print(report.render(compared), *verdict, soft_wrap=True)


def _read(path: Path) -> Table:
    if not path.is_file():
        beside = [entry.name for entry in path.parent.glob("*.jsonl*")] if path.parent.is_dir() else []
        raise ConfigError(f"There is no table `{path}`.{near(path.name, beside)}")
    return table.read(path)


def _space(header: Header, name: str | None, only: Sequence[str]) -> Space:
    space = spaces.load(name or header.space, {"cores": header.cores, "gpus": header.gpus})
    for parameter, values in request.allowed(only).items():
        space = space.only(parameter, values)
    return space


if __name__ == "__main__":
    main()
