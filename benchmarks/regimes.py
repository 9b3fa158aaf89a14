"""Judge the tuner where the bottleneck differs: waiting, bandwidth, Python's lock, tails, tiny samples, memory, models.

    python benchmarks/regimes.py --photos PHOTOS [--only NAME,...] [--rounds N] [--json]

For each regime, `autopipe tune` runs as a user runs it, with defaults; then its winner and the best configurations that
are known for it (by arithmetic, or found by hand) run by turns in one process, each alone on the machine. What is
synthetic stands in `regime_workloads.py`, and in the table. PHOTOS is a folder of 500x375 JPEG in class folders.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
from claims import Claim, arguments, at_least, at_most
from regime_table import REGIMES, Regime

from autopipe.api.request import accelerator
from autopipe.measure.outcome import TrialFailure
from autopipe.measure.stats import median
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import confirmation, searching
from autopipe.search.measurer import TrialMeasurer
from autopipe.search.settings import Settings

_IN_BUCKET = 600  # photographs
WORKLOADS = Path(__file__).with_name("regime_workloads.py")
SECONDS = 132.0  # the default budget and a tenth


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """What a regime came to: images/s by configuration, the storage's limit, and what `autopipe tune --json` said."""

    regime: Regime
    winner: PipelineConfig
    rates: Mapping[str, float]
    document: Mapping[str, Any]
    wall_seconds: float
    most: float | None

    @property
    def ratio(self) -> float:
        """The winner over the best known, neither of them beyond what the storage gives."""
        known = max(self.rates[config.key()] for config in self.regime.known if config.key() in self.rates)
        most = math.inf if self.most is None else self.most
        return min(self.rates[self.winner.key()], most) / min(known, most)

    @property
    def bottleneck(self) -> str:
        """What the tune names."""
        return str((self.document["ceiling"] or {}).get("bottleneck_kind"))


@contextlib.contextmanager
def bucket(photos: Path) -> Iterator[None]:
    """Put the photographs into an S3 server that answers late, and tell the workloads."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.fakes import s3

    with s3.server() as port:
        proxy = s3.Proxy(port)
        os.environ |= {"AWS_ENDPOINT_URL": proxy.url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
        os.environ["AUTOPIPE_BUCKET"] = "s3://photos"
        files = fsspec.filesystem("s3")
        files.mkdir("photos")
        for path in sorted(photos.glob("*/*.jpg"))[:_IN_BUCKET]:
            files.pipe_file(f"photos/{path.parent.name}/{path.name}", path.read_bytes())
        proxy.latency_seconds = 0.02
        yield
        proxy.close()


def judge(regime: Regime, photos: Path, rounds: int) -> Judged:
    os.environ["AUTOPIPE_PHOTOS"] = str(photos.resolve())
    with bucket(photos) if regime.workload == "s3" else contextlib.nullcontext():
        return _judge(regime, photos, rounds)


def _judge(regime: Regime, photos: Path, rounds: int) -> Judged:
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
    most = None if regime.bytes_per_second is None else regime.bytes_per_second / mean_bytes(photos)
    return Judged(regime=regime, winner=winner, rates=rates, document=document, wall_seconds=wall, most=most)


def mean_bytes(photos: Path) -> float:
    return statistics.fmean(path.stat().st_size for path in photos.glob("*/*.jpg"))


def by_turns(regime: Regime, workload: str, configs: Sequence[PipelineConfig], rounds: int) -> dict[str, float]:
    """Return the median images/s of each configuration that runs, over blocks in which all run."""
    simulate = None if regime.simulate is None else accelerator(regime.simulate, "--simulate-step")
    left = {config.key(): config for config in configs}
    rates: dict[str, list[float]] = {key: [] for key in left}
    settings = Settings(simulate=simulate, page_cache="cold" if "cold" in regime.options else "warm")
    with searching.runner_for(workload, settings) as runner:
        measurer = TrialMeasurer(runner, searching.description(runner), settings)
        for number in range(rounds):
            for key in confirmation.block_order(list(left), number, seed=0):
                outcome = measurer.measure(left[key], proof=True)
                if isinstance(outcome, TrialFailure):
                    print(f"{regime.name}: {left[key].short()}: {outcome.message}", file=sys.stderr)
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
        used = found.document.get("accelerator_utilisation")
        busy = "" if used is None else f"; accelerator busy {json.dumps(used)}"
        verdict = "" if found.bottleneck in regime.bottleneck else " (WRONG)"
        print(
            f"{regime.name:14} {found.rates[found.winner.key()]:9.1f} images/s, {found.ratio:5.3f} of the best known "
            f"({found.rates[best.key()]:.1f}); {found.bottleneck}{verdict}; {found.wall_seconds:.0f} s{busy}\n"
            f"{'':14} {regime.stands_for}\n{'':14} winner {found.winner.short()}\n{'':14} known  {best.short()}",
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
