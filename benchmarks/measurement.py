"""Judge autopipe's short trials: by ten times longer runs, by a loader whose rate is known, by a noisy neighbour.

    python benchmarks/measurement.py --photos DIR --camvid DIR [--only trials,queue,...] [--quick] [--json]

DIR for photos has one folder a class (2000 JPEG of 500x375 were used for the targets); for camvid see
examples/segmentation. Trials run as a search runs them. Each long run has a short trial before and one behind it: what
the two differ by is the machine's own change in half a minute, and no measurement can be better than that. It takes
about 30 minutes; `--quick` takes three configurations and runs four times longer than a trial instead of ten.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import inside_trials
from claims import Claim

from autopipe.measure.bottleneck import bottleneck
from autopipe.measure.costs import bounds
from autopipe.measure.outcome import Measurement, Phase, TrialFailure
from autopipe.measure.stats import median
from autopipe.measure.trial.child import Launch
from autopipe.measure.trial.protocol import Event, PhaseBegan
from autopipe.measure.trial.supervise import Recycling, TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.values import JsonObject

ROOT = Path(__file__).resolve().parent.parent
SHORT: JsonObject = {"min_seconds": 0.8, "max_seconds": 2.0, "page_cache": "warm"}
CONFIGS = [
    PipelineConfig(loader=Threads(workers=2, queue_size=8)),
    PipelineConfig(loader=Processes(workers=2, queue_size=8)),
    PipelineConfig(loader=TfData(), finish="host"),
    PipelineConfig(loader=Threads(workers=2, queue_size=8), keep="memory"),
    PipelineConfig(loader=Threads(workers=1, queue_size=4)),
    PipelineConfig(loader=Threads(workers=4, queue_size=16), finish="host"),
    PipelineConfig(loader=TfData(num_parallel_calls=2, prefetch=4)),
    PipelineConfig(loader=Threads(workers=1, queue_size=1), finish="host", device_prefetch=0),
]
BURN = "while True: pass"
GROUPS = ("trials", "queue", "model", "bound", "neighbour")


@dataclasses.dataclass(frozen=True)
class Pair:
    """A configuration in a warm process before and behind a longer run in a fresh one, and in some as short as that."""

    workload: str
    config: PipelineConfig
    short: tuple[Measurement, Measurement]
    long: Measurement
    fresh: Measurement | None

    @property
    def errors(self) -> list[float]:
        return [abs(rate(each) / rate(self.long) - 1) for each in self.short]

    @property
    def noise(self) -> float:
        """By how much two trials of the same configuration differ."""
        return abs(rate(self.short[0]) / rate(self.short[1]) - 1)

    @property
    def others_percent(self) -> float:
        """What others took of the machine, at the most."""
        return max(each.resources.others_cpu_percent or 0.0 for each in (*self.short, self.long))


def rate(measurement: Measurement) -> float:
    return measurement.images_per_second.value


def launches(photos: Path, camvid: Path) -> dict[str, Launch]:
    environment = (("PHOTOS", str(photos)), ("CAMVID", str(camvid)), ("TF_CPP_MIN_LOG_LEVEL", "2"))
    small = Launch(workload=f"{ROOT}/examples/photos/train.py:workload", environment=environment)
    return {
        "photos, small CNN": small,
        "photos, 15 ms steps": dataclasses.replace(small, simulate=SimulatedAccelerator(0.015)),
        "camvid, small U-Net": dataclasses.replace(small, workload=f"{ROOT}/examples/segmentation/train.py:workload"),
    }


def measured(outcome: Measurement | TrialFailure) -> Measurement:
    if isinstance(outcome, TrialFailure):
        sys.exit(f"a trial failed: {outcome.kind} in {outcome.phase}: {outcome.message}\n{outcome.log_tail}")
    return outcome


def compare(name: str, launch: Launch, configs: list[PipelineConfig], times: int) -> list[Pair]:
    """Return each configuration's trials."""
    pairs = []
    with TrialRunner(launch) as warm, TrialRunner(launch, recycling=Recycling(trials=1)) as fresh:
        measured(warm.measure(configs[0], SHORT))  # the first trial of a process compiles
        for number, config in enumerate(configs):
            before = measured(warm.measure(config, SHORT))
            again = None if number % 2 else measured(fresh.measure(config, SHORT))
            seconds = times * before.measured_seconds
            long = measured(fresh.measure(config, {**SHORT, "min_seconds": seconds, "max_seconds": seconds}))
            behind = measured(warm.measure(config, SHORT))
            pairs.append(pair := Pair(name, config, (before, behind), long, again))
            figures = [rate(each) for each in (before, behind, long, again) if each is not None]
            shown = " ".join(f"{figure:8.1f}" for figure in figures)
            show(f"  {config.short():90} {shown} images/s, others {pair.others_percent:.0f} %")
    return pairs


def share_of_bound(launch: Launch, configs: list[PipelineConfig], rounds: int) -> float:
    """Return what the best configuration reaches of its bound, both read by turns in several processes: the median."""
    with TrialRunner(launch) as runner:
        measured(runner.measure(configs[0], SHORT))
        best = max(configs, key=lambda config: rate(measured(runner.measure(config, SHORT))))
    shares = []
    for _ in range(rounds):
        with TrialRunner(launch) as runner:
            before = measured(runner.measure(best, SHORT))
            ceiling = runner.ceiling(best.model_setup, {"page_cache": "warm"})
            if isinstance(ceiling, TrialFailure):
                sys.exit(f"the ceiling failed: {ceiling.message}")
            behind = measured(runner.measure(best, SHORT))
        limit = bounds(ceiling, best)
        shares.append((rate(before) + rate(behind)) / 2 / limit.images_per_second)
        show(f"  {rate(before):8.1f} {rate(behind):8.1f} images/s, {best.short()}: {bottleneck(limit).sentence}")
    return median(shares)


def neighbour(launch: Launch, repeats: int) -> int:
    """Return how many trials with a neighbour in one half of them were called unstable."""
    flagged = 0
    options: JsonObject = {**SHORT, "min_seconds": 3.0, "max_seconds": 3.0}
    burner = subprocess.Popen([sys.executable, "-c", BURN])
    timers: list[threading.Timer] = []

    def turn(number: int) -> None:
        os.kill(burner.pid, number)

    def on_event(event: Event) -> None:
        if isinstance(event, PhaseBegan) and event.phase is Phase.MEASURE and switch is not None:
            timers.append(threading.Timer(1.5, turn, [switch]))
            timers[-1].start()

    switch: int | None = None
    try:
        turn(signal.SIGSTOP)
        with TrialRunner(launch, on_event=on_event) as runner:
            measured(runner.measure(CONFIGS[0], SHORT))
            for number in range(repeats):
                turn(signal.SIGSTOP if number % 2 else signal.SIGCONT)
                switch = signal.SIGCONT if number % 2 else signal.SIGSTOP
                found = measured(runner.measure(CONFIGS[0], options))
                show(f"  {'stable' if found.stable else ' '.join(found.warnings)}")
                flagged += not found.stable
                for timer in timers:
                    timer.join()
    finally:
        burner.kill()
        burner.wait()
    return flagged


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def claims_of(pairs: list[Pair], times: int) -> list[Claim]:
    """Return what short trials claim."""
    errors = [error for pair in pairs for error in pair.errors]
    both = [(pair.short[0], pair.fresh) for pair in pairs if pair.fresh is not None]
    isolation = [abs(rate(warm) / rate(fresh) - 1) for warm, fresh in both]
    warm = median([each.overhead_seconds for pair in pairs for each in pair.short])
    fresh = median([each.overhead_seconds for _, each in both])
    return [
        Claim(
            f"short trial against a run {times}x longer in a fresh process, {len(errors)} trials",
            spread(errors),
            "median <= 3 %, worst <= 8 %",
            median(errors) <= 0.03 and max(errors) <= 0.08,
        ),
        Claim("the same short trial before and behind the long run", spread([pair.noise for pair in pairs])),
        Claim("warm process against a fresh one", spread(isolation), "median <= 3 %", median(isolation) <= 0.03),
        Claim("overhead of a trial, warm", f"{warm:.2f} s (median)", "<= 0.5 s", warm <= 0.5),
        Claim("overhead of a trial, fresh process", f"{fresh:.1f} s (median)"),
    ]


def within(what: str, error: float, note: str = "") -> Claim:
    return Claim(what, f"{100 * error:+.1f} %{note}", "within 3 %", abs(error) <= 0.03)


def spread(errors: list[float]) -> str:
    return f"median {100 * median(errors):.1f} %, worst {100 * max(errors):.1f} %"


@dataclasses.dataclass
class Judge:
    """Judges the workloads, group of claims by group of claims."""

    launches: dict[str, Launch]
    quick: bool
    pairs: list[Pair] = dataclasses.field(default_factory=list)

    @property
    def configs(self) -> list[PipelineConfig]:
        return CONFIGS[:3] if self.quick else CONFIGS

    def trials(self) -> list[Claim]:
        times = 4 if self.quick else 10
        for name, launch in self.launches.items():
            show(f"{name}: warm before, warm behind, fresh and long, fresh")
            self.pairs += compare(name, launch, self.configs, times)
        return claims_of(self.pairs, times)

    def queue(self) -> list[Claim]:
        show("a loader 10 % slower than the model")
        errors = alone(inside_trials.slower_loader, 3 if self.quick else 5)
        what = "a loader 10 % slower than the model behind a queue of 64, against its own rate"
        return [within(what, errors["trial"], f" (naive: {100 * errors['naive']:+.1f} %)")]

    def model(self) -> list[Claim]:
        show("the model alone, and fit on a repeated tensor")
        return [
            within(
                f"model alone against fit on a repeated tensor: {name}",
                alone(inside_trials.model_alone, str(launch.workload), dict(launch.environment)),
            )
            for name, launch in self.launches.items()
            if launch.simulate is None
        ]

    def bound(self) -> list[Claim]:
        table = []
        for name, launch in self.launches.items():
            show(f"{name}: the best configuration, and its bound")
            share = share_of_bound(launch, self.configs, rounds=2 if self.quick else 4)
            what = f"best configuration over its bound: {name}"
            table.append(Claim(what, f"{share:.2f}", "0.90 to 1.02", 0.9 <= share <= 1.02))
        return table

    def neighbour(self) -> list[Claim]:
        show("a neighbour")
        repeats = 2 if self.quick else 6
        flagged = neighbour(self.launches["photos, small CNN"], repeats)
        what = "a neighbour on one core for half of the trial: called unstable or drifting"
        return [Claim(what, f"{flagged} of {repeats}", "all", flagged == repeats)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--camvid", type=Path, required=True)
    parser.add_argument("--only", default=",".join(GROUPS), help="groups of claims, separated by commas")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    chosen = parser.parse_args()
    wanted = chosen.only.split(",")
    if unknown := set(wanted) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    judge = Judge(launches(chosen.photos.resolve(), chosen.camvid.resolve()), chosen.quick)
    table = [claim for group in GROUPS if group in wanted for claim in getattr(judge, group)()]
    if chosen.as_json:
        shown = {"claims": table, "pairs": [as_json(pair) for pair in judge.pairs]}
        print(json.dumps(shown, indent=2, default=dataclasses.asdict))
        return
    print("\n".join(map(str, table)))


def as_json(pair: Pair) -> dict[str, Any]:
    return {
        "workload": pair.workload,
        "config": pair.config.short(),
        "short": [rate(each) for each in pair.short],
        "long": rate(pair.long),
        "fresh": None if pair.fresh is None else rate(pair.fresh),
        "stable": [each.stable for each in pair.short],
        "others_percent": pair.others_percent,
        "overhead_seconds": [each.overhead_seconds for each in pair.short],
    }


if __name__ == "__main__":
    main()
