"""Judge autopipe's short trials: by ten times longer runs, by a loader whose rate is known, by a noisy neighbour.

    python benchmarks/measurement.py --photos DIR --camvid DIR [--quick] [--json]

DIR for photos has one folder a class (2000 JPEG of 500x375 were used for the targets); for camvid see
examples/segmentation. Trials run as a search runs them. The first configuration of each workload is measured again at
the end, so that the machine's own drift stands beside the errors; use a machine that does nothing else. It takes about
15 minutes; `--quick` takes three configurations and runs four times longer than a trial instead of ten.
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
from statistics import median
from typing import Any

import inside_trials

from autopipe.core.bound import bound
from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import JsonObject, Measurement, Phase, TrialFailure
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.loaders.keras import Keras
from autopipe.loaders.processes import Processes
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads
from autopipe.trial.child import Launch
from autopipe.trial.protocol import Event, PhaseBegan
from autopipe.trial.supervise import Recycling, TrialRunner

ROOT = Path(__file__).resolve().parent.parent
SHORT: JsonObject = {"min_seconds": 0.8, "max_seconds": 2.0, "page_cache": "warm"}
CONFIGS = [
    PipelineConfig(loader=Threads(workers=2, queue_size=8)),
    PipelineConfig(loader=Processes(workers=2, queue_size=8)),
    PipelineConfig(loader=TfData(), finish="host"),
    PipelineConfig(loader=Threads(workers=2, queue_size=8), cache="memory"),
    PipelineConfig(loader=Threads(workers=1, queue_size=4)),
    PipelineConfig(loader=Threads(workers=4, queue_size=16), finish="host"),
    PipelineConfig(loader=TfData(num_parallel_calls=2, prefetch=4)),
    PipelineConfig(loader=Keras(), finish="host", device_prefetch=0),
]
BURN = "while True: pass"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    claim: str
    figure: str
    target: str
    holds: bool | None = None


@dataclasses.dataclass(frozen=True)
class Pair:
    """A configuration in a warm process, for longer in a fresh one and, every second one, as short in a fresh one."""

    workload: str
    config: PipelineConfig
    warm: Measurement
    long: Measurement
    fresh: Measurement | None

    @property
    def error(self) -> float:
        return rate(self.warm) / rate(self.long) - 1


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


def compare(name: str, launch: Launch, configs: list[PipelineConfig], times: int) -> tuple[list[Pair], float, float]:
    """Return each configuration's trials, the best one's share of its bound, and how much the machine changed."""
    pairs = []
    with TrialRunner(launch) as warm, TrialRunner(launch, recycling=Recycling(isolation="process")) as fresh:
        measured(warm.measure(configs[0], SHORT))  # the first trial of a process compiles
        for number, config in enumerate(configs):
            short = measured(warm.measure(config, SHORT))
            seconds = times * short.measured_seconds
            long = measured(fresh.measure(config, {**SHORT, "min_seconds": seconds, "max_seconds": seconds}))
            again = None if number % 2 else measured(fresh.measure(config, SHORT))
            pairs.append(Pair(name, config, short, long, again))
            others = "" if again is None else f"{rate(again):8.1f}"
            show(f"  {config.one_line():90} {rate(short):8.1f} {rate(long):8.1f} {others} images/s")
        best = max(pairs, key=lambda pair: rate(pair.long))
        ceiling = warm.ceiling(best.config.model_setup, {"page_cache": "warm"})
        if isinstance(ceiling, TrialFailure):
            sys.exit(f"the ceiling failed: {ceiling.message}")
        limit = bound(ceiling, best.config)
        show(f"  {best.config.one_line()}: {limit.sentence}")
        drift = rate(measured(warm.measure(configs[0], SHORT))) / rate(pairs[0].warm) - 1
    return pairs, rate(best.long) / limit.images_per_second, drift


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


def percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--camvid", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    chosen = parser.parse_args()
    configs, times, repeats = (CONFIGS[:3], 4, 2) if chosen.quick else (CONFIGS, 10, 6)
    found = launches(chosen.photos.resolve(), chosen.camvid.resolve())
    pairs: list[Pair] = []
    bounds, drifts = {}, {}
    for name, launch in found.items():
        show(f"{name}: warm, fresh, fresh and long")
        mine, bounds[name], drifts[name] = compare(name, launch, configs, times)
        pairs += mine
    show("a loader 10 % slower than the model")
    queue = alone(inside_trials.slower_loader, 3 if chosen.quick else 5)
    show("the model alone, and fit on a repeated tensor")
    resident = {
        name: alone(inside_trials.model_alone, str(launch.workload), dict(launch.environment))
        for name, launch in found.items()
        if launch.simulate is None
    }
    show("a neighbour")
    flagged = neighbour(found["photos, small CNN"], repeats)

    errors = [abs(pair.error) for pair in pairs]
    both = [(pair.warm, pair.fresh) for pair in pairs if pair.fresh is not None]
    isolation = [abs(rate(warm) / rate(fresh) - 1) for warm, fresh in both]
    warm = median(pair.warm.overhead_seconds for pair in pairs)
    fresh = median(fresh.overhead_seconds for _, fresh in both)
    table = [
        Row(
            f"short trial against a run {times}x longer in a fresh process, {len(pairs)} pairs",
            f"median {100 * median(errors):.1f} %, worst {100 * max(errors):.1f} %",
            "median <= 3 %, worst <= 8 %",
            median(errors) <= 0.03 and max(errors) <= 0.08,
        ),
        Row(
            "warm process against a fresh one",
            f"median {100 * median(isolation):.1f} %, worst {100 * max(isolation):.1f} %",
            "median <= 3 %",
            median(isolation) <= 0.03,
        ),
        Row(
            "a loader 10 % slower than the model behind a queue of 64, against the loader's own rate",
            f"{percent(queue['trial'])} (50 steps behind the full queue: {percent(queue['naive'])})",
            "within 3 %",
            abs(queue["trial"]) <= 0.03,
        ),
        *(
            Row(
                f"model alone against fit on a repeated tensor: {name}",
                percent(error),
                "within 3 %",
                abs(error) <= 0.03,
            )
            for name, error in resident.items()
        ),
        *(
            Row(f"best configuration over its bound: {name}", f"{share:.2f}", "0.90 to 1.02", 0.9 <= share <= 1.02)
            for name, share in bounds.items()
        ),
        Row(
            "a neighbour on one core for half of the trial",
            f"{flagged} of {repeats} called unstable or drifting",
            "all",
            flagged == repeats,
        ),
        Row("overhead of a trial, warm", f"{warm:.2f} s (median)", "<= 0.5 s", warm <= 0.5),
        Row("overhead of a trial, fresh process", f"{fresh:.1f} s (median)", "reported"),
        *(
            Row(f"the machine itself, start to end: {name}", percent(drift), "reported")
            for name, drift in drifts.items()
        ),
    ]
    if chosen.as_json:
        details = [
            {
                "workload": pair.workload,
                "config": pair.config.one_line(),
                **{kind: rate(getattr(pair, kind)) for kind in ("warm", "long")},
                "fresh": None if pair.fresh is None else rate(pair.fresh),
                "stable": pair.warm.stable,
                "overhead_seconds": pair.warm.overhead_seconds,
            }
            for pair in pairs
        ]
        print(json.dumps({"rows": [dataclasses.asdict(row) for row in table], "pairs": details}, indent=2))
        return
    for row in table:
        mark = {True: "ok", False: "MISSED", None: ""}[row.holds]
        print(f"{row.claim:88} {row.figure:60} {row.target:28} {mark}")


if __name__ == "__main__":
    main()
