"""Search machines that are played: how near to the best of a whole space is a search after so many trials?

    python benchmarks/oracle.py --machines 10 --sampler surrogate --sampler tpe+seeds

Shows the median regret over the machines of each kind, and the worst in brackets. Kinds are called by their cores and
devices. Takes no hardware; what a machine is made of is in replaying/played.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace

from replaying import search
from replaying.played import KINDS, Kind, Played
from replaying.samplers import named
from rich.console import Console
from rich.table import Table

from autopipe.cli import screen
from autopipe.search import study
from autopipe.search.surrogate import SURROGATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=10, help="machines of each kind")
    parser.add_argument("--trials", type=int, default=30, help="trials a search")
    parser.add_argument("--sampler", action="append", help="more than once for several: surrogate, tpe+seeds, random")
    parser.add_argument("--json", action="store_true", help="print the regret of every search")
    chosen = parser.parse_args()
    names = chosen.sampler or [SURROGATE.name]
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    with screen.bar("searching", unit="machines") as done:
        total, ended = len(names) * len(KINDS) * chosen.machines, 0
        for name in names:
            for kind in KINDS:
                regrets = found[name].setdefault(kind.name, [])
                for seed in range(chosen.machines):
                    regrets.append(regret(kind, seed, name, chosen.trials))
                    ended += 1
                    done(ended, total)
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    table = Table("sampler", *(kind.name for kind in KINDS), box=None, pad_edge=False, header_style="bold")
    for name, kinds in found.items():
        table.add_row(name, *(f"{statistics.median(each):.1%} ({max(each):.1%})" for each in kinds.values()))
    Console().print(table)


def regret(kind: Kind, seed: int, sampler: str, trials: int) -> float:
    """Return how far below the best of the space the choice of one search is: 0.05 is 5 %."""
    machine = Played(kind, seed)
    trimmed = machine.candidates()
    chosen = named(sampler.removesuffix("+seeds"))
    seeding = sampler.endswith("+seeds") or chosen == SURROGATE
    settings = search.settings_of(chosen, seed=seed, trials=trials, seeding=seeding)
    result = study.search(trimmed, machine, machine.facts(), replace(settings, clock=lambda: 0.0))
    best = max(map(machine.rate, trimmed.candidates.values()))
    return 1.0 - (0.0 if result.best_config is None else machine.rate(result.best_config)) / best


if __name__ == "__main__":
    main()
