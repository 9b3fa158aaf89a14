"""Judge the tuner where the bottleneck differs: waiting, bandwidth, Python's lock, tails, tiny samples, memory, models.

    python benchmarks/regimes.py --photos PHOTOS [--only NAME,...] [--rounds N] [--json]

For each regime, `autopipe tune` runs as a user runs it, with defaults; then its winner and the best configurations that
are known for it (by arithmetic, or found by hand) run by turns in one process, each alone on the machine. What is
synthetic stands in `regime_workloads.py`, and in the table. PHOTOS is a folder of 500x375 JPEG in class folders.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claims import Claim, arguments, at_least, at_most

from autopipe.api import searching
from autopipe.api.measurer import TrialMeasurer
from autopipe.cli.settings import accelerator
from autopipe.core.config import LoaderConfig, PipelineConfig
from autopipe.core.outcome import TrialFailure
from autopipe.core.stats import median
from autopipe.loaders.keras import Keras
from autopipe.loaders.processes import Processes
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads
from autopipe.search import confirm
from autopipe.search.measurer import Effort

WORKLOADS = Path(__file__).with_name("regime_workloads.py")
SECONDS = 132.0  # the default budget and a tenth


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regime:
    """One regime.

    Attributes:
        name: what it is called.
        workload: a function of `regime_workloads.py`.
        stands_for: what is real in it and what synthetic.
        known: configurations that are best by arithmetic or by hand; the best of them is what counts.
        bottleneck: kinds that are right for the winner.
        options: of `autopipe tune`, beside the defaults.
        simulate: a simulated accelerator in the model's place.
    """

    name: str
    workload: str
    stands_for: str
    known: Sequence[PipelineConfig]
    bottleneck: Sequence[str]
    options: Sequence[str] = ()
    simulate: str | None = None


def _of(loader: LoaderConfig, **rest: Any) -> PipelineConfig:
    return PipelineConfig(loader=loader, **{"device_prefetch": 0, **rest})


TWO = (_of(Threads(workers=2)), _of(Processes(workers=2)))
CACHED = (_of(Threads(workers=2), cache="memory"), _of(Processes(workers=2), cache="memory"))
READERS = (_of(Threads(workers=2, read_ahead=32)), _of(Threads(workers=2, read_ahead=128)), _of(Threads(workers=64)))
NO_CACHE = ("--set", "cache=none")

REGIMES = (
    Regime(
        name="warm",
        workload="warm",
        stands_for="local JPEG in the page cache, small CNN on the cores",
        known=(*CACHED, *TWO, _of(Threads(workers=2), cache="memory", finish="host")),
        bottleneck=("op", "model"),
    ),
    Regime(
        name="latency-5ms",
        workload="latency_5ms",
        stands_for="each read waits 5 ms (synthetic), no room for a cache; accelerator of 1,000 images/s (simulated)",
        known=READERS,
        bottleneck=("model",),
        options=NO_CACHE,
        simulate="32ms",
    ),
    Regime(
        name="latency-20ms",
        workload="latency_20ms",
        stands_for="each read waits 20 ms (synthetic), no room for a cache; accelerator of 1,000 images/s (simulated)",
        known=READERS,
        bottleneck=("model",),
        options=NO_CACHE,
        simulate="32ms",
    ),
    Regime(
        name="latency-100ms",
        workload="latency_100ms",
        stands_for="each read waits 100 ms (synthetic), no room for a cache; accelerator of 1,000 images/s (simulated)",
        known=READERS,
        bottleneck=("model", "storage latency"),
        options=NO_CACHE,
        simulate="32ms",
    ),
    Regime(
        name="bandwidth",
        workload="bandwidth_20mb",
        stands_for="storage of 20 MB/s (synthetic), no room for a cache; accelerator of 1,000 images/s (simulated)",
        known=(*READERS, *TWO),
        bottleneck=("storage bandwidth",),
        options=NO_CACHE,
        simulate="32ms",
    ),
    Regime(
        name="cold",
        workload="warm",
        stands_for="local JPEG, dropped from the page cache before each trial; accelerator of 2,100 (simulated)",
        known=(*TWO, *READERS, _of(Threads(workers=4))),
        bottleneck=("op", "model", "storage latency", "storage bandwidth"),
        options=("--page-cache", "cold", *NO_CACHE),
        simulate="15ms",
    ),
    Regime(
        name="python-lock",
        workload="python_lock",
        stands_for="an op of 5 ms under Python's lock, cache held off; accelerator of 1,000 images/s (simulated)",
        known=(*TWO, _of(Processes(workers=3))),
        bottleneck=("op",),
        options=NO_CACHE,
        simulate="32ms",
    ),
    Regime(
        name="heavy-tail",
        workload="heavy_tail",
        stands_for="one photograph in fifty is 30 times as large, no cache; accelerator of 2,100 (simulated)",
        known=(*TWO, _of(Threads(workers=3)), _of(Threads(workers=4)), _of(Processes(workers=3))),
        bottleneck=("op", "model"),
        options=NO_CACHE,
        simulate="15ms",
    ),
    Regime(
        name="arrays-28",
        workload="arrays_28",
        stands_for="60,000 arrays of 28x28, MLP",
        known=(*TWO, _of(TfData()), _of(Threads(workers=1)), _of(Threads(workers=2, queue_size=2), finish="host")),
        bottleneck=("op", "model", "python lock"),
    ),
    Regime(
        name="arrays-32",
        workload="arrays_32",
        stands_for="50,000 arrays of 32x32x3, small CNN",
        known=(*TWO, _of(TfData()), _of(Threads(workers=1)), _of(Threads(workers=2, queue_size=2), finish="host")),
        bottleneck=("op", "model", "python lock"),
    ),
    Regime(
        name="memory",
        workload="warm",
        stands_for="local JPEG, `--max-memory 1500M` leaves no room for a cache; accelerator of 2,100 (simulated)",
        known=(*TWO, _of(Threads(workers=3))),
        bottleneck=("op", "model", "memory"),
        options=("--max-memory", "1500M", *NO_CACHE),
        simulate="15ms",
    ),
    Regime(
        name="short",
        workload="warm",
        stands_for="local JPEG, `--epochs 2`: a conversion does not pay; accelerator of 1,000 images/s (simulated)",
        known=(*TWO, *CACHED),
        bottleneck=("model",),
        options=("--epochs", "2"),
        simulate="32ms",
    ),
    Regime(
        name="model-bound",
        workload="mobilenet",
        stands_for="MobileNetV2 at 224 on the cores",
        known=(_of(Keras(), finish="host"), _of(Threads(workers=1)), _of(TfData(), finish="host")),
        bottleneck=("model",),
    ),
    Regime(
        name="accelerator",
        workload="warm",
        stands_for="local JPEG, accelerator that takes 15 ms for 32 (simulated)",
        known=(*TWO, *CACHED),
        bottleneck=("model", "op"),
        simulate="15ms",
    ),
    Regime(
        name="mlperf-h100",
        workload="mlperf_h100",
        stands_for="local JPEG of 38 kB, ResNet-50 on an H100 by MLPerf Storage: 224 ms for 400 (simulated)",
        known=(*TWO, *CACHED),
        bottleneck=("model",),
        simulate="mlperf-resnet50-h100",
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """What a regime came to: images/s by configuration, and what `autopipe tune --json` said."""

    regime: Regime
    winner: PipelineConfig
    rates: Mapping[str, float]
    document: Mapping[str, Any]
    wall_seconds: float

    @property
    def ratio(self) -> float:
        """The winner over the best known."""
        known = max(self.rates[config.key()] for config in self.regime.known if config.key() in self.rates)
        return self.rates[self.winner.key()] / known

    @property
    def bottleneck(self) -> str:
        """What the tune names."""
        return str((self.document["ceiling"] or {}).get("bottleneck_kind"))


def judge(regime: Regime, photos: Path, rounds: int) -> Judged:
    os.environ["AUTOPIPE_PHOTOS"] = str(photos.resolve())
    workload = f"{WORKLOADS}:{regime.workload}"
    command = [sys.executable, "-m", "autopipe", "tune", workload, "--json", *regime.options]
    command += [] if regime.simulate is None else ["--simulate-step", regime.simulate]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = subprocess.run([*command, "--out", folder], capture_output=True, check=False)
        wall = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{regime.name}: autopipe tune ended with {done.returncode}:\n{done.stderr.decode()[-2000:]}")
    document = json.loads(done.stdout)
    winner = PipelineConfig.model_validate(document["best"])
    rates = by_turns(regime, workload, [winner, *regime.known], rounds)
    return Judged(regime=regime, winner=winner, rates=rates, document=document, wall_seconds=wall)


def by_turns(regime: Regime, workload: str, configs: Sequence[PipelineConfig], rounds: int) -> dict[str, float]:
    """Return the median images/s of each configuration that runs, over blocks in which all run."""
    simulate = None if regime.simulate is None else accelerator(regime.simulate, "--simulate-step")
    left = {config.key(): config for config in configs}
    rates: dict[str, list[float]] = {key: [] for key in left}
    cold = "cold" if "cold" in regime.options else "warm"
    with searching.runner_for(workload, searching.Plan(simulate=simulate)) as runner:
        measurer = TrialMeasurer(runner, searching.description(runner), cold)
        for number in range(rounds):
            for key in confirm.block_order(list(left), number, seed=0):
                outcome = measurer.measure(left[key], effort=Effort.PROOF)
                if isinstance(outcome, TrialFailure):
                    print(f"{regime.name}: {left[key].one_line()}: {outcome.message}", file=sys.stderr)
                    del left[key]
                    continue
                rates[key].append(outcome.images_per_second.value)
    return {key: median(rates[key]) for key in left}


def claims_of(judged: Sequence[Judged]) -> list[Claim]:
    ratios = [each.ratio for each in judged]
    right = [each.bottleneck in each.regime.bottleneck for each in judged]
    return [
        at_least("winner over the best known, lowest of the regimes", 0.95, min(ratios)),
        at_least("the same, median of the regimes", 0.99, median(ratios)),
        Claim("bottlenecks named rightly", f"{sum(right)} of {len(right)}", "all", all(right)),
        at_most("seconds of `autopipe tune`, longest", SECONDS, max(each.wall_seconds for each in judged)),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", help="regimes, with commas between")
    chosen = parser.parse_args()
    if not chosen.photos:
        parser.error("--photos is missing")
    names = chosen.only.split(",") if chosen.only else [each.name for each in REGIMES]
    wrong = set(names) - {each.name for each in REGIMES}
    if wrong:
        parser.error(f"no regime is called {', '.join(sorted(wrong))}; there are {', '.join(e.name for e in REGIMES)}")
    judged = []
    for regime in (each for each in REGIMES if each.name in names):
        found = judge(regime, Path(chosen.photos), chosen.rounds)
        judged.append(found)
        best = max(
            (config for config in regime.known if config.key() in found.rates), key=lambda c: found.rates[c.key()]
        )
        verdict = "" if found.bottleneck in regime.bottleneck else " (WRONG)"
        print(
            f"{regime.name:14} {found.rates[found.winner.key()]:9.1f} images/s, {found.ratio:5.3f} of the best known "
            f"({found.rates[best.key()]:.1f}); {found.bottleneck}{verdict}; {found.wall_seconds:.0f} s\n"
            f"{'':14} {regime.stands_for}\n{'':14} winner {found.winner.one_line()}\n{'':14} known  {best.one_line()}",
            file=sys.stderr if chosen.json else sys.stdout,
            flush=True,
        )
    claims = claims_of(judged)
    if chosen.json:
        print(json.dumps({"claims": claims, "regimes": judged}, indent=1, default=_plain))
        return
    print("\n".join(map(str, claims)))


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value.model_dump(mode="json")


if __name__ == "__main__":
    main()
