"""The rows of `benchmarks/regimes.py`: what stands for a regime, and the configurations that are known to be best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.workers import Processes, Threads

NO_CACHE = ("--only", "keep=none")


@dataclasses.dataclass(frozen=True)
class Regime:
    """One regime.

    Attributes:
        name: what it is called.
        workload: a function of `regime_workloads.py`.
        data: what is real in it and what synthetic, but for what the fields below say.
        known: configurations that are best by arithmetic or by hand; the best of them is what counts.
        bottleneck: kinds that are right for the winner.
        options: of `autopipe tune`, beside the defaults.
        simulate: a simulated accelerator in the model's place.
        bytes_per_second: what the storage gives at most. Who keeps thousands of samples in flight is faster than that
            in a short block, by what was read before its clock began: no rate counts for more than this.
    """

    name: str
    workload: str
    data: str
    known: Sequence[PipelineConfig]
    bottleneck: Sequence[str] = ("op", "model")
    _: dataclasses.KW_ONLY
    options: Sequence[str] = ()
    simulate: str | None = None
    bytes_per_second: float | None = None

    @property
    def stands_for(self) -> str:
        """What is real in it and what synthetic."""
        said = f"{self.data}, no cache" if self.options[-2:] == NO_CACHE else self.data
        return said if self.simulate is None else f"{said}; simulated accelerator: {self.simulate}"


def _of(loader: LoaderConfig, **rest: Any) -> PipelineConfig:
    return PipelineConfig(loader=loader, **{"device_prefetch": 0, **rest})


def _both(*counts: int, **rest: Any) -> tuple[PipelineConfig, ...]:
    """Return threads and processes, so many of them."""
    return tuple(_of(loader(workers=count), **rest) for count in counts for loader in (Threads, Processes))


TWO, CACHED = _both(2), _both(2, keep="memory")
HOST = _of(Threads(workers=2), keep="memory", finish="host")
READERS = (_of(Threads(workers=2, read_ahead=32)), _of(Threads(workers=2, read_ahead=128)), _of(Threads(workers=64)))
ARRAYS = (
    *TWO,
    _of(TfData()),
    _of(Threads(workers=1)),
    _of(Threads(workers=1), steps_per_execution=32),
    _of(Threads(workers=2), steps_per_execution=32),
    _of(Threads(workers=2, queue_size=2), finish="host"),
)
OF_ARRAYS = ("op", "model", "python lock", "hand-over")
STORAGE = ("storage latency", "storage bandwidth")
SLOW: dict[str, Any] = {"options": NO_CACHE, "simulate": "32ms"}  # 1,000 images/s, fed by a slow storage

REGIMES = (
    Regime("warm", "warm", "local JPEG in the page cache, small CNN on the cores", (*CACHED, *TWO, HOST)),
    Regime("latency-5ms", "latency_5ms", "each read waits 5 ms (synthetic)", READERS, ("model",), **SLOW),
    Regime("latency-20ms", "latency_20ms", "each read waits 20 ms (synthetic)", READERS, ("model",), **SLOW),
    Regime(
        "latency-100ms", "latency_100ms", "each read waits 100 ms (synthetic)", READERS, ("model", STORAGE[0]), **SLOW
    ),
    Regime(
        "s3", "s3", "an S3 server (moto's, on these two cores) with 20 ms before each answer (a proxy)",
        READERS, (*STORAGE, "op"), **SLOW,
    ),
    Regime(
        "bandwidth", "bandwidth_20mb", "storage of 20 MB/s (synthetic)",
        (*READERS, *TWO), (STORAGE[1],), bytes_per_second=20e6, **SLOW,
    ),
    Regime(
        "cold", "warm", "local JPEG, dropped from the page cache before each trial",
        (*TWO, *READERS, _of(Threads(workers=4))), ("op", "model", *STORAGE),
        options=("--page-cache", "cold", *NO_CACHE), simulate="15ms",
    ),
    Regime(
        "python-lock", "python_lock", "an op of 5 ms under Python's lock",
        (*TWO, _of(Processes(workers=3))), ("op",), **SLOW,
    ),
    Regime(
        "heavy-tail", "heavy_tail", "one photograph in fifty is 30 times as large",
        (*TWO, *_both(3), _of(Threads(workers=4))), options=NO_CACHE, simulate="15ms",
    ),
    Regime("arrays-28", "arrays_28", "60,000 arrays of 28x28, MLP", ARRAYS, OF_ARRAYS),
    Regime("arrays-32", "arrays_32", "50,000 arrays of 32x32x3, small CNN", ARRAYS, OF_ARRAYS),
    Regime(
        "memory", "warm", "local JPEG, `--max-memory 1500M` leaves no room for a cache",
        (*TWO, _of(Threads(workers=3))), ("op", "model", "memory"),
        options=("--max-memory", "1500M", *NO_CACHE), simulate="15ms",
    ),
    Regime(
        "short", "warm", "local JPEG, `--epochs 2`: a conversion does not pay",
        (*TWO, *CACHED), ("model",), options=("--epochs", "2"), simulate="32ms",
    ),
    Regime(
        "model-bound", "mobilenet", "MobileNetV2 at 224 on the cores",
        (_of(Threads(workers=1)), _of(TfData(), finish="host")), ("model",),
    ),
    Regime("accelerator", "warm", "local JPEG", (*TWO, *CACHED), simulate="15ms"),
    Regime(
        "mlperf-h100", "mlperf_h100", "local JPEG of 38 kB, ResNet-50 on an H100 by MLPerf Storage: 224 ms for 400",
        (*TWO, *CACHED), ("model",), simulate="224ms/400",
    ),
    Regime(
        "mlperf-h100-own-size", "mlperf_h100_own_size",
        "the same with JPEG of 640x480 and 114,660 bytes, as large as those of MLPerf Storage",
        (*TWO, *CACHED), simulate="224ms/400",
    ),
    Regime(
        "mlperf-b200", "mlperf_b200",
        "JPEG of 1024x768 and 323 kB, RetinaNet on a B200 by MLPerf Storage: 47.55 ms for 24",
        (*TWO, *CACHED), simulate="47.55ms/24",
    ),
    Regime(
        "colours", "colours", "local JPEG, brightness, contrast, saturation and hue; small CNN on the cores",
        (*TWO, *CACHED, _of(Processes(workers=3), keep="memory")),
    ),
    Regime(
        "crops", "crops", "local JPEG of varied sizes, random resized crops; small CNN on the cores",
        (*CACHED, HOST, *TWO),
    ),
    Regime("crops-uncached", "crops", "the same", (*TWO, *_both(3)), options=NO_CACHE),
    Regime(
        "crops-20ms", "crops_20ms", "the same, each read waits 20 ms (synthetic), memory for encoded samples only",
        _both(2, 3, keep="encoded"), options=("--only", "keep=none,encoded"),
    ),
    Regime(
        "crops-half", "crops_500",
        "random resized crops of 500x375, `--max-memory 2300M`: half of the decoded photographs fit beside two workers",
        (*_both(2, keep="memory:50%"), *_both(2, keep="encoded"), *TWO), ("op", "model", "memory"),
        options=("--max-memory", "2300M"),
    ),
    Regime(
        "progressive", "progressive", "progressive JPEG of varied sizes, random resized crops; small CNN on the cores",
        (*CACHED, *TWO),
    ),
    Regime(
        "scenes", "scenes",
        "scenes of 6 bands, uint16 (GeoTIFF in tiles of 256, deflate; synthetic), windows of 128 at random, small CNN",
        (*CACHED, *TWO),
    ),
    Regime(
        "deep-masks", "deep_masks",
        "PNG of 16 bits of the photographs with masks (synthetic), random crops of 192 and flips, small CNN",
        (*CACHED, HOST, *TWO),
    ),
)  # fmt: skip
