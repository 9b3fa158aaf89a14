"""The rows of `benchmarks/regimes.py`: what stands for a regime, and the configurations that are known to be best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads


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
        rehearse: a machine that is not here, rehearsed.
        bytes_per_second: what the storage gives at most. Who keeps thousands of samples in flight is faster than that
            in a short block, by what was read before its clock began: no rate counts for more than this.
    """

    name: str
    workload: str
    stands_for: str
    known: Sequence[PipelineConfig]
    bottleneck: Sequence[str]
    options: Sequence[str] = ()
    simulate: str | None = None
    rehearse: str | None = None
    bytes_per_second: float | None = None


def _of(loader: LoaderConfig, **rest: Any) -> PipelineConfig:
    return PipelineConfig(loader=loader, **{"device_prefetch": 0, **rest})


TWO = (_of(Threads(workers=2)), _of(Processes(workers=2)))
CACHED = (_of(Threads(workers=2), keep="memory"), _of(Processes(workers=2), keep="memory"))
READERS = (_of(Threads(workers=2, read_ahead=32)), _of(Threads(workers=2, read_ahead=128)), _of(Threads(workers=64)))
ARRAYS = (
    *TWO,
    _of(TfData()),
    _of(Threads(workers=1)),
    _of(Threads(workers=1), steps_per_execution=32),
    _of(Threads(workers=2), steps_per_execution=32),
    _of(Threads(workers=2, queue_size=2), finish="host"),
)
NO_CACHE = ("--set", "keep=none")


def _many(*counts: int, **rest: Any) -> tuple[PipelineConfig, ...]:
    """Return threads and processes, as many as a larger machine has cores, or one more."""
    return tuple(_of(loader(workers=count), **rest) for count in counts for loader in (Threads, Processes))


REGIMES = (
    Regime(
        name="warm",
        workload="warm",
        stands_for="local JPEG in the page cache, small CNN on the cores",
        known=(*CACHED, *TWO, _of(Threads(workers=2), keep="memory", finish="host")),
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
        name="s3",
        workload="s3",
        stands_for="an S3 server (moto's, on these two cores) with 20 ms before each answer (a proxy), no cache; "
        "accelerator of 1,000 images/s (simulated)",
        known=READERS,
        bottleneck=("storage latency", "storage bandwidth", "op"),
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
        bytes_per_second=20e6,
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
        known=ARRAYS,
        bottleneck=("op", "model", "python lock", "hand-over"),
    ),
    Regime(
        name="arrays-32",
        workload="arrays_32",
        stands_for="50,000 arrays of 32x32x3, small CNN",
        known=ARRAYS,
        bottleneck=("op", "model", "python lock", "hand-over"),
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
        known=(_of(Threads(workers=1)), _of(TfData(), finish="host")),
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
    Regime(
        name="mlperf-h100-own-size",
        workload="mlperf_h100_own_size",
        stands_for="the same with JPEG of 640x480 and 114,660 bytes, as large as those of MLPerf Storage",
        known=(*TWO, *CACHED),
        bottleneck=("model", "op"),
        simulate="mlperf-resnet50-h100",
    ),
    Regime(
        name="mlperf-b200",
        workload="mlperf_b200",
        stands_for="JPEG of 1024x768 and 323 kB, RetinaNet on a B200 by MLPerf Storage: 47.55 ms for 24 (simulated)",
        known=(*TWO, *CACHED),
        bottleneck=("model", "op"),
        simulate="mlperf-retinanet-b200",
    ),
    Regime(
        name="colours",
        workload="colours",
        stands_for="local JPEG, brightness, contrast, saturation and hue; small CNN on the cores",
        known=(*TWO, *CACHED, _of(Processes(workers=3), keep="memory")),
        bottleneck=("op", "model"),
    ),
    Regime(
        name="crops",
        workload="crops",
        stands_for="local JPEG of varied sizes, random resized crops; small CNN on the cores",
        known=(*CACHED, _of(Threads(workers=2), keep="memory", finish="host"), *TWO),
        bottleneck=("op", "model"),
    ),
    Regime(
        name="crops-uncached",
        workload="crops",
        stands_for="the same without a cache",
        known=(*TWO, _of(Threads(workers=3)), _of(Processes(workers=3))),
        bottleneck=("op", "model"),
        options=NO_CACHE,
    ),
    Regime(
        name="crops-20ms",
        workload="crops_20ms",
        stands_for="the same, each read waits 20 ms (synthetic), memory for encoded samples only",
        known=tuple(_of(loader(workers=count), keep="encoded") for count in (2, 3) for loader in (Threads, Processes)),
        bottleneck=("op", "model"),
        options=("--only", "keep=none,encoded"),
    ),
    Regime(
        name="progressive",
        workload="progressive",
        stands_for="progressive JPEG of varied sizes, random resized crops; small CNN on the cores",
        known=(*CACHED, *TWO),
        bottleneck=("op", "model"),
    ),
    Regime(
        name="16/1-decode",
        workload="mlperf_b200",
        stands_for="rehearsed: 16 cores, JPEG of 1024x768, an accelerator that takes 12,000 images/s, no cache",
        known=_many(16, 17),
        bottleneck=("op",),
        options=NO_CACHE,
        rehearse="cores=16,gpus=1,step=2ms",
    ),
    Regime(
        name="16/1-model",
        workload="mlperf_b200",
        stands_for="rehearsed: 16 cores, JPEG of 1024x768, an accelerator that takes 1,200 images/s",
        known=_many(16),
        bottleneck=("model",),
        rehearse="cores=16,gpus=1,step=20ms",
    ),
    Regime(
        name="32/4-starve",
        workload="mlperf_b200",
        stands_for="rehearsed: 32 cores, JPEG of 1024x768, four accelerators of 3,000 images/s each, no cache",
        known=_many(32, 33, devices=4),
        bottleneck=("op",),
        options=NO_CACHE,
        rehearse="cores=32,gpus=4,step=8ms,exchange=0.1ms",
    ),
    Regime(
        name="64/4-reads",
        workload="latency_30ms",
        stands_for="rehearsed: 64 cores, reads that wait 30 ms, four accelerators of 1,300 images/s each, no cache",
        known=(
            _of(Threads(workers=64, read_ahead=512), devices=4),
            _of(Threads(workers=16, read_ahead=512), devices=4),
            _of(Processes(workers=16, read_ahead=512), devices=4),
        ),
        bottleneck=("model",),
        options=NO_CACHE,
        rehearse="cores=64,gpus=4,step=24ms,exchange=0.5ms",
    ),
    Regime(
        name="64/8-lock",
        workload="python_lock",
        stands_for="rehearsed: 64 cores, an op of 5 ms under Python's lock, eight accelerators of 2,000 images/s, "
        "no cache",
        known=_many(64, devices=8),
        bottleneck=("op",),
        options=NO_CACHE,
        rehearse="cores=64,gpus=8,step=16ms,exchange=0.2ms",
    ),
    Regime(
        name="128/8-memory",
        workload="twelve_ms",
        stands_for="rehearsed: 128 cores, a million samples that take 12 ms each, memory for half of them, "
        "eight accelerators of 2,700 images/s",
        known=_many(128, devices=8, keep="memory:50%"),
        bottleneck=("memory", "op", "model"),
        rehearse="cores=128,gpus=8,step=12ms,exchange=0.2ms,memory=90G,samples=1000000",
    ),
)
