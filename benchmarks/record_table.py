"""Record a table: measure every configuration of a space once, for replay.py to search without this machine.

    python benchmarks/record_table.py examples/photos/train.py:workload benchmarks/tables/photos.jsonl.gz
    python benchmarks/record_table.py examples/photos/train.py:workload benchmarks/tables/photos-15ms.jsonl.gz \
        --simulate-step 15ms

    python benchmarks/record_table.py benchmarks/regime_workloads.py:latency_20ms latency-1-core.jsonl.gz \
        --cores 1 --seconds 60

The trials are those of a search, in random order; those near the best come several times. Run again, it goes on where
it stopped, so that --seconds records in pieces. For less memory, run it in a cgroup or container that has less. Use a
machine that does nothing else: what the table says is taken for the truth.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
import time
from pathlib import Path

from replaying import table

from autopipe.api.request import accelerator
from autopipe.hardware import machine
from autopipe.measure.facts import Limits
from autopipe.pipeline.config import ModelSetup
from autopipe.search import feasible, searching
from autopipe.search import space as spaces
from autopipe.search.measurer import TrialMeasurer
from autopipe.search.searching import facts_of
from autopipe.search.settings import Settings

SPACE = "benchmarks/tables/space.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", help="FILE:NAME")
    parser.add_argument("table", type=Path, help="the file to write, NAME.jsonl.gz")
    parser.add_argument("--space", default=SPACE, help="a search space")
    parser.add_argument("--simulate-step", help="an accelerator in place of the model: 15ms")
    parser.add_argument("--rounds", type=int, default=3, help="how often those near the best are measured")
    parser.add_argument("--cores", type=int, help="play a machine with so many of the cores of this one")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after as long; the same again goes on")
    chosen = parser.parse_args()
    ends = time.monotonic() + chosen.seconds
    if chosen.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.cores])
    simulate = None if chosen.simulate_step is None else accelerator(chosen.simulate_step, "--simulate-step")
    found = machine.detect()
    settings = Settings(simulate=simulate, page_cache="warm")
    with searching.runner_for(chosen.workload, settings) as runner:
        described = searching.description(runner)
        facts = dataclasses.replace(facts_of(found, described, Path.cwd()), limits=Limits(convert=False))
        space = spaces.load(chosen.space, searching.bounds(facts))
        candidates = feasible.candidates(space, facts)
        measurer = TrialMeasurer(runner, described, settings)
        setups = {each.model_setup for each in candidates.values()}
        first, *others = sorted(setups, key=lambda each: each != ModelSetup())
        usual, alone = measurer.ceiling(first), [measurer.model_alone(each) for each in others]
        header = table.Header(
            name=chosen.table.name.partition(".")[0],
            hardware=f"{found.cpu.cores} cores ({found.cpu.model})",
            space=chosen.space,
            cores=facts.cores,
            gpus=facts.gpus,
            accelerator=facts.accelerator,
            batch_size=described.batch_size,
            sample_count=described.samples,
            prefix_bytes=described.fixed_bytes,
            compact_bytes=described.compact_bytes,
            finished_bytes=described.finished_bytes,
            ceilings=[usual, *(each.with_loader_of(usual) for each in alone if each is not None)],
            busy_cores=os.getloadavg()[0],
            baselines={each.name: each.config.model_dump(mode="json") for each in measurer.baselines()},
        )
        table.record(
            chosen.table,
            header,
            candidates,
            measurer,
            rounds=chosen.rounds,
            on_trial=_tell,
            enough=lambda: time.monotonic() >= ends,
        )


def _tell(done: int, of: int) -> None:
    print(f"\r{done} of {of}", end="" if done < of else "\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
