"""How much sooner does a retune find what a tune finds? By recorded tables of one workload on several machines.

    python benchmarks/transfer.py benchmarks/tables/photos.jsonl.gz benchmarks/tables/photos-15ms.jsonl.gz

Each table in turn is the machine that is known, and each other one the machine on which is tuned from nothing, and
retuned from the known one's best. A line tells after how many trials a retune is, as the median, where a tune is after
all of its trials. Needs nothing of the machines; record_table.py records them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np
from replaying import machines, table

from autopipe.api.retuning import KNOWN
from autopipe.cli import option_values
from autopipe.errors import AutopipeError, ConfigError
from autopipe.pipeline.space import Space
from autopipe.search import library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help="of one workload: NAME.jsonl.gz")
    parser.add_argument("--seeds", type=int, default=20, help="searches from each table to each other one")
    parser.add_argument("--trials", type=int, default=25, help="of a tune from nothing, and of a retune")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=A,B", help="search these values only")
    chosen = parser.parse_args()
    try:
        if len(chosen.tables) < 2:
            raise ConfigError("Give two tables or more, of one workload on several machines.")
        _tell([table.read(path) for path in chosen.tables], chosen)
    except AutopipeError as error:
        sys.exit(f"error: {error}")


def _tell(tables: list[table.Table], chosen: argparse.Namespace) -> None:
    needed = []
    for known, there in itertools.permutations(tables, 2):
        space = _space(there.header, chosen.only)
        cold, warm = machines.between(known, there, space, seeds=chosen.seeds, trials=chosen.trials, count=KNOWN)
        matched = machines.trials_to_match(cold, warm)
        needed.append(chosen.trials + 1 if matched is None else matched)
        reached = f"after {matched}" if matched is not None else f"not within {chosen.trials}"
        print(
            f"{known.header.name} -> {there.header.name}: a tune is {cold.median[-1]:.1%} below the best after "
            f"{chosen.trials} trials; a retune is there {reached}, and at the end {warm.median[-1]:.1%} below."
        )
    middle = float(np.median(needed))
    said = f"after {middle:g} of {chosen.trials} trials" if middle <= chosen.trials else "in less than half of them"
    print(f"A retune is where a tune ends {said}, as the median of {len(needed)} pairs.")


def _space(header: table.Header, only: list[str]) -> Space:
    space = library.load(header.space, {"cores": header.cores, "gpus": header.gpus})
    for parameter, values in option_values.allowed(only).items():
        space = space.only(parameter, values)
    return space


if __name__ == "__main__":
    main()
