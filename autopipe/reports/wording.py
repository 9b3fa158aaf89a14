"""How figures and failures are said in few words, everywhere alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autopipe.core.config import ModelSetup, PipelineConfig
from autopipe.core.costs import Bounds
from autopipe.core.outcome import Measurement, Resources, TrialFailure
from autopipe.core.value import Estimate, count_text, milliseconds_text, rate_text
from autopipe.hardware.memory import size_text

_LONGEST_MESSAGE = 160
_MINUTES = 5  # from which on seconds are too fine


def failed(failure: TrialFailure) -> str:
    """Return a failure in one line."""
    message = " ".join(failure.message.split())
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[: _LONGEST_MESSAGE - 1]}…"
    kind, phase = (str(word).replace("_", " ") for word in (failure.kind, failure.phase))
    return f"{kind} in {phase}: {message}"


def setup(setup: ModelSetup) -> str:
    """Return what is special about a setup of the model, in a few words; "" if nothing is."""
    usual = ModelSetup()
    return " ".join(f"{name}={value}" for name, value in setup._asdict().items() if value != getattr(usual, name))


def seconds(duration: float) -> str:
    """Return a duration with as many digits as matter."""
    if duration >= _MINUTES * 60:
        return f"{duration / 60:.0f} min"
    return f"{duration:.0f} s" if duration >= 10 else f"{duration:.2g} s"


def budget(duration: float) -> str:
    """Return a duration as `--budget` takes it, rounded up to what a person would write."""
    if duration <= 60:
        return f"{math.ceil(duration / 10) * 10:.0f}s"
    return f"{math.ceil(duration / 60)}m"


def pays(epochs: float | None) -> str:
    """Say when it pays to keep samples in another form: after so many epochs, or never."""
    if epochs is None:
        return "never pays"
    return f"pays after {max(epochs, 0.1):.1f} epochs" if epochs else "pays at once"


rate, milliseconds, count = rate_text, milliseconds_text, count_text


def rates(estimate: Estimate) -> str:
    """Return images/s with their interval."""
    return f"{rate(estimate.value)} ({span(estimate.low, estimate.high)})"


def span(low: float, high: float) -> str:
    """Return an interval of images/s, as `Estimate` has it: of one window, none is known."""
    if low <= 0:
        return "one window, no interval"
    return f"{rate(low)} to {rate(high)}"


def listed(names: Sequence[str]) -> str:
    """Return names, at least one, as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def resources(used: Resources, cores: float | None = None) -> str:
    """Say what was used, as far as it is known; of `cores`, or in percent of one core."""
    parts = []
    if used.cpu_percent is not None:
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


def elsewhere(measurement: Measurement | None, config: PipelineConfig, limits: Bounds | None) -> str:
    """Say what workers on other machines bring, and what the way from there costs; "" where there are none."""
    if measurement is None or not config.loader.works_elsewhere:
        return ""
    parts = []
    if limits is not None and (busy := limits.work.core_seconds + limits.work.op_wait_seconds) > 0:
        parts.append(f"a core like one of these makes {rate(1 / busy)} images/s there")
    if measurement.hand_over_seconds:
        took = measurement.hand_over_seconds
        size = 0 if limits is None else limits.work.sent_bytes * measurement.batch_size
        speed = f", {size / took / 1e6:,.3g} MB/s" if size else ""
        parts.append(f"a batch takes {milliseconds(took)} from there{speed}, while the next is made")
    workers = config.loader.worker_count() or 0
    each = rate(measurement.images_per_second.value / max(1, workers))
    parts.append(f"each of the {workers} workers brought {each} images/s")
    return "; ".join(parts)


def times(ratio: float) -> str:
    """Return how many times, with digits that differ where the ratios do."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.3g}x" if ratio < 1000 else f"{ratio:,.0f}x"


def interval(low: float, high: float | None) -> str:
    """Return a 95 % interval of a ratio; None is an open end."""
    ends = ["" if end is None else times(end).removesuffix("x") for end in (low, high)]
    return f"{ends[0]} to {ends[1]}" if high is not None else f"{ends[0]} or more"
