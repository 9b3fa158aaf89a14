"""Judge whole searches: their winners beside the best of a recorded table, and beside each other; and what they take.

    python benchmarks/searches.py examples/photos/train.py:workload benchmarks/tables/photos.jsonl.gz
        [--simulate-step 15ms] [--seeds N] [--rounds N] [--json]

Runs `autopipe tune` as a user does, once a seed, then measures all winners and the table's five best again, in
interleaved blocks in one process. Use the machine that the table was recorded on, when it does nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claims import Claim, at_least, at_most
from replaying import table

from autopipe.cli.option_values import accelerator
from autopipe.measure.outcome import TrialFailure
from autopipe.measure.stats import compare_pairs, median
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import confirmation, searching
from autopipe.search.measurer import TrialMeasurer
from autopipe.search.settings import Settings

TOP = 5


@dataclasses.dataclass(frozen=True)
class Tuned:
    """One run of `autopipe tune`: what it chose, and its seconds: all, those of the search, those in its trials."""

    config: PipelineConfig
    document: Mapping[str, Any]
    wall_seconds: float

    @property
    def overhead_share(self) -> float:
        """The part of the search in which nothing was measured."""
        return 1 - self.document["measuring_seconds"] / self.document["seconds"]


def tune(workload: str, simulate_step: str | None, seed: int) -> Tuned:
    command = [sys.executable, "-m", "autopipe", "tune", workload, "--seed", str(seed), "--json"]
    command += [] if simulate_step is None else ["--simulate-step", simulate_step]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = subprocess.run([*command, "--out", folder], stdout=subprocess.PIPE, check=True)
        wall = time.perf_counter() - began
    found = json.loads(done.stdout)
    return Tuned(PipelineConfig.model_validate(found["best"]), found, wall)


def best_of(path: Path) -> list[PipelineConfig]:
    """Return the table's best configurations."""
    entries = table.read(path).entries.values()
    return [each.config for each in sorted(entries, key=lambda each: -each.rate)[:TOP]]


def blocks_of(
    workload: str, simulate_step: str | None, configs: Sequence[PipelineConfig], rounds: int
) -> dict[str, list[float]]:
    """Return each configuration's images/s in each block."""
    simulate = None if simulate_step is None else accelerator(simulate_step, "--simulate-step")
    by_key = {config.key(): config for config in configs}
    rates: dict[str, list[float]] = {key: [] for key in by_key}
    settings = Settings(simulate=simulate, page_cache="warm")
    with searching.runner_for(workload, settings) as runner:
        measurer = TrialMeasurer(runner, searching.description(runner), settings)
        for number in range(-1, rounds):
            for key in confirmation.block_order(list(by_key), max(number, 0), seed=0):
                outcome = measurer.measure(by_key[key], proof=True)
                if isinstance(outcome, TrialFailure):
                    sys.exit(f"a trial failed: {outcome.message}")
                if number >= 0:  # the first one warms up
                    rates[key].append(outcome.images_per_second.value)
    return rates


def claims_of(tuned: Sequence[Tuned], rates: Mapping[str, list[float]], top: Sequence[PipelineConfig]) -> list[Claim]:
    best = max((config.key() for config in top), key=lambda key: median(rates[key]))
    ratios = [compare_pairs(rates[each.config.key()], rates[best]).ratio for each in tuned]
    apart = [
        abs(compare_pairs(rates[one.config.key()], rates[other.config.key()]).ratio - 1)
        for one, other in itertools.combinations(tuned, 2)
    ]
    return [
        at_least("winner over the best of the table's five best, lowest of the seeds", 0.97, min(ratios)),
        at_least("the same, median of the seeds", 0.99, median(ratios)),
        at_most("winners of two seeds side by side, farthest apart", 0.03, max(apart, default=0.0)),
        at_most("seconds of `autopipe tune`, longest", 150, max(each.wall_seconds for each in tuned)),
        at_most("largest share of a search that measures nothing", 0.10, max(each.overhead_share for each in tuned)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", help="FILE:NAME")
    parser.add_argument("table", type=Path, help="as record_table.py wrote it")
    parser.add_argument("--simulate-step", help="an accelerator in place of the model: 15ms")
    parser.add_argument("--seeds", type=int, default=3, help="searches")
    parser.add_argument("--rounds", type=int, default=6, help="blocks in which winners and the table's best run again")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    tuned = []
    for seed in range(chosen.seeds):
        tuned.append(found := tune(chosen.workload, chosen.simulate_step, seed))
        print(f"seed {seed}: {found.wall_seconds:.0f} s, {found.config.short()}", file=sys.stderr, flush=True)
    top = best_of(chosen.table)
    rates = blocks_of(chosen.workload, chosen.simulate_step, [*(each.config for each in tuned), *top], chosen.rounds)
    found_claims = claims_of(tuned, rates, top)
    if chosen.json:
        shown = {"claims": found_claims, "blocks": rates, "tuned": [each.document for each in tuned]}
        print(json.dumps(shown, indent=1, default=dataclasses.asdict))
        return
    names = {each.config.key(): f"winner of seed {seed}" for seed, each in enumerate(tuned)}
    for config in {each.key(): each for each in [*(each.config for each in tuned), *top]}.values():
        name = names.get(config.key(), "of the table's five best")
        print(f"{median(rates[config.key()]):9.1f} images/s  {config.short():88} {name}")
    print("\n".join(map(str, found_claims)))


if __name__ == "__main__":
    main()
