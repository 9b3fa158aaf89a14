"""Figures, failures, configurations and machines in few words, the same everywhere."""

from __future__ import annotations

import math
import os
import shlex

from autopipe.artifact import pick
from autopipe.errors import cut
from autopipe.hardware.machine import size_text
from autopipe.measure.costs import Bounds
from autopipe.measure.fingerprint import Hardware
from autopipe.measure.outcome import FailureKind, Resources, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.search.result import Result
from autopipe.search.settings import Request, step_text
from autopipe.values import UNSTEADY, Estimate, JsonObject, count_text, figure_text, milliseconds_text, span_text
from autopipe.workload.mode import Mode
from autopipe.workload.ops.headers import Progressive

_LONGEST_MESSAGE = 160
_MINUTES = 5  # from which on seconds are too fine
_LONG_SECONDS = 90.0
_NEAR = 1.5  # a ratio whose second decimal matters


def failed(failure: TrialFailure) -> str:
    """Return a failure in one line."""
    message = cut(" ".join(failure.message.split()), _LONGEST_MESSAGE)
    kind, phase = (str(word).replace("_", " ") for word in (failure.kind, failure.phase))
    return f"{kind} in {phase}: {message}"


def trials(result: Result) -> str:
    """Return the number of trials, and of them those that failed or were cut."""
    ends = [f", {number} {how}" for number, how in ((result.failed, "failed"), (result.cut, "cut off")) if number]
    return "".join([count(len(result.trials), "trial"), *ends])


def unmeasured(failure: TrialFailure | None) -> str:
    """Say of a baseline without a rate what became of it, as a predicate of "it"."""
    if failure is None:
        return "not measured"
    return "left out" if failure.kind is FailureKind.NOT_PLAIN else "it failed"


def setup(setup: ModelSetup) -> str:
    """Name the special parts of a setup of the model in a few words; "" if there are none."""
    usual = ModelSetup()
    return " ".join(f"{name}={value}" for name, value in setup._asdict().items() if value != getattr(usual, name))


def seconds(duration: float) -> str:
    """Format a duration with as many digits as matter."""
    if duration >= _MINUTES * 60:
        return f"{duration / 60:.0f} min"
    return f"{duration:.0f} s" if duration >= 10 else f"{duration:.2g} s"


def budget(duration: float) -> str:
    """Format a duration for `--budget`, rounded up to a usual value."""
    return f"{math.ceil(duration / 10) * 10:.0f}s" if duration <= 60 else f"{math.ceil(duration / 60)}m"


def seconds_between(low: float, high: float) -> str:
    """Format an interval of seconds, or of minutes; one figure if both ends are written alike."""
    unit, per = ("min", 60.0) if high >= _LONG_SECONDS else ("s", 1.0)
    ends = [f"{end / per:,.0f}" if end >= 10 * per else f"{end / per:.1f}" for end in (low, high)]
    return f"{' to '.join(dict.fromkeys(ends))} {unit}"


def pays(epochs: float | None) -> str:
    """Return when another form of samples pays: after a number of epochs, or never."""
    if epochs is None:
        return "never pays"
    return f"pays after {epochs_number(epochs)} epochs" if epochs else "pays at once"


def epochs_number(epochs: float) -> str:
    """Format a number of epochs."""
    return f"{epochs:,.0f}" if epochs >= 10 else f"{max(epochs, 0.1):.1f}"


rate, milliseconds, count = figure_text, milliseconds_text, count_text


def locked(seconds: float, *, native: bool) -> str:
    """Say how long an op holds Python's lock; the native library holds none."""
    return "native" if native else milliseconds(seconds)


def rates(estimate: Estimate) -> str:
    """Format images/s with their interval."""
    return f"{rate(estimate.value)} ({span_text(estimate.low, estimate.high)})"


def counted(parts: str) -> str:
    """Say what images/s counts if a sample is not plainly an image."""
    return f"images/s counts rows of the batch's first axis. A row is {parts}."


def resources(used: Resources, cores: float | None = None) -> str:
    """Format the used resources, as far as they are known; of `cores`, or in percent of one core."""
    parts = []
    if used.cpu_percent is not None and (cores is None or used.cpu_percent <= 105 * cores):  # else ticks of a moment
        percent = f"CPU {used.cpu_percent:.0f} % (one core is 100)"
        parts.append(percent if cores is None else f"{used.cpu_percent / 100:.1f} of {cores:g} cores")
    if used.peak_rss_bytes is not None:
        parts.append(f"memory {size_text(used.peak_rss_bytes)}")
    if used.gpu_percent is not None:
        low, high = used.gpu_idlest_percent, used.gpu_busiest_percent
        several = "" if low is None or high is None or low == high else f" (idlest {low:.0f} %, busiest {high:.0f} %)"
        parts.append(f"GPU {used.gpu_percent:.0f} %{several}")
    if used.gpu_memory_bytes is not None:
        parts.append(f"GPU memory {size_text(used.gpu_memory_bytes)}")
    if used.gpu_watts is not None:
        parts.append(f"{used.gpu_watts:.0f} W")
    return ", ".join(parts)


def elsewhere(
    rate_here: float, hand_over_seconds: float | None, batch_size: int, config: PipelineConfig, limits: Bounds | None
) -> str:
    """Return gain and cost of workers on other machines; empty without such workers."""
    if not config.loader.works_elsewhere:
        return ""
    parts = []
    if limits is not None and (busy := limits.work.core_seconds + limits.work.op_wait_seconds) > 0:
        parts.append(f"a core like the ones here makes {rate(1 / busy)} images/s there")
    if hand_over_seconds:
        size = 0 if limits is None else limits.work.sent_bytes * batch_size
        speed = f", {figure_text(size / hand_over_seconds / 1e6)} MB/s" if size else ""
        parts.append(f"a batch takes {milliseconds(hand_over_seconds)} from there{speed}, while the next is made")
    workers = config.loader.worker_count() or 0
    parts.append(f"each of the {workers} workers brought {rate(rate_here / max(1, workers))} images/s")
    return "; ".join(parts)


def asked(request: Request) -> str:
    """Return the task that a profile was tuned for, such as "training"."""
    mode = "training" if request.mode is Mode.TRAIN else f"`{request.mode}`"
    return mode if request.simulate is None else f"{mode} on a simulated accelerator of {step_text(request.simulate)}"


def config(known: JsonObject) -> str:
    """Return a configuration in few words."""
    found = next(pick.readable([known]), None)
    unknown = "one that this installation does not know: the package of its loader is missing"
    return unknown if found is None else found.short()


def way(known: JsonObject) -> str:
    """Return a configuration's way to keep samples."""
    if (found := next(pick.readable([known]), None)) is None:
        return config(known)
    kept = found.kept
    where = f"converted to {kept.form}" if kept.converts else "files"
    where += f" after {count(kept.cut, 'op')}" if isinstance(kept.cut, int) else ""
    if not kept.in_memory:
        return where + ("" if kept.converts else " as they are")
    part = "" if kept.part == 1 else f" ({kept.part:.0%} of them)"
    return f"{where}, cached in memory{' as they are read' if kept.encoded else ''}{part}"


def machine(hardware: Hardware) -> str:
    """Return a machine in few words."""
    gpus = ", ".join(gpu.name for gpu in hardware.gpus) or "no GPU"
    gpus += "" if hardware.visible_gpus is None else f" (CUDA_VISIBLE_DEVICES={hardware.visible_gpus})"
    gpus += f", {hardware.virtual_devices} virtual devices" if hardware.virtual_devices else ""
    backend = "" if hardware.keras_backend is None else f", Keras on {hardware.keras_backend}"
    return f"{count(hardware.cores, 'core')} ({hardware.cpu_model}), {gpus}{backend}"


def times(ratio: float) -> str:
    """Format a ratio: with two decimals near 1, where they matter, then with one, then with none."""
    if ratio < _NEAR:
        return f"{ratio:.2f}x"
    return f"{ratio:.1f}x" if ratio < 10 else f"{ratio:,.0f}x"


def interval(low: float, high: float | None) -> str:
    """Format a 95 % interval of a ratio; None is an open end. A wide one is told only if it excludes 1."""
    if high is not None and low <= 1 <= high and high > UNSTEADY**2 * low:
        return "not known"
    ends = ["" if end is None else times(end).removesuffix("x") for end in (low, high)]
    return f"{ends[0]} to {ends[1]}" if high is not None else f"{ends[0]} or more"


def progressive(found: Progressive) -> str:
    """Return how many images are progressive JPEG, in one or two sentences."""
    of = f"{found.looked_at:,} images"
    of += "" if found.looked_at == found.files else f" that were looked at, of {found.files:,} in all"
    if not found.progressive:
        return f"none of {of}"
    return f"{found.progressive:,} of {of}. They take 1.5 to 3 times as long to decode as baseline JPEG"


def rewriting(found: Progressive, folder: str) -> str | None:
    """Return the command that makes a copy of a folder and rewrites its progressive files there; None if there are
    none. Without `-strict`, jpegtran would make whole files of damaged ones.
    """
    folder = os.path.abspath(folder)  # noqa: PTH100  links are not resolved
    if not found.progressive or folder == os.sep:
        return None
    old, new = shlex.quote(folder), shlex.quote(f"{folder}-baseline")
    listed = f"find {new} -type f -iname '*.jp*g' -print0"
    return (
        f"cp -rLT {old} {new} && {listed} | "
        'xargs -0 -P "$(nproc)" -I{} jpegtran -copy all -optimize -strict -outfile {} {}'
    )
