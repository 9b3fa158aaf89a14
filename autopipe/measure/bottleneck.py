"""The bottleneck of a configuration: the limit that holds it back, with its figure, in words.

The limits themselves are computed in `autopipe.measure.costs`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from autopipe.measure import costs as cost_model
from autopipe.measure.costs import Bounds, Kind, Limit
from autopipe.measure.facts import OVERTAKEN, OpCost
from autopipe.measure.outcome import Resources
from autopipe.values import count_text, figure_text, listed
from autopipe.values import milliseconds_text as _ms

MODEL_SHARE = 0.9  # the share of the model's own rate below which the model is not called the limit

_NETWORK = 1_250.0  # MB/s that 10 Gbit/s carry: where more is needed, cores elsewhere are of no use
_PAUSES = "which may be pauses between epochs"
_READ_HIGH = 1.25  # times the cores: each alone, model and loader are seen to take up to so much more than together
_BUSY = 0.5  # of the cores: model and loader that take more of them together get in each other's way


class Bottleneck(NamedTuple):
    """The bottleneck of a configuration."""

    limit: Limit | None  # the limiting one; None if no measured limit is near the rate
    sentence: str  # the same in words, with the remedy


def bottleneck(
    bounds: Bounds,
    rate: float,
    model_share: float | None = None,
    loader_alone: float | None = None,
    used: Resources | None = None,
) -> Bottleneck:
    """Find the bottleneck of a configuration that runs at `rate` images/s. `model_share` is that over the model's own
    rate if both were measured side by side; None: by these figures. `loader_alone` is what its loader made without the
    model, in images/s, and `used` what the training took of the machine, if that was measured.
    """
    share = rate / bounds.model_images_per_second if model_share is None else model_share
    others = [each for each in bounds.limits if each.kind is not Kind.MODEL]
    known = bool(bounds.costs.op_costs) or any(each.images_per_second <= OVERTAKEN * rate for each in others)
    model = bounds.model_images_per_second
    if share < MODEL_SHARE and not (known and others):
        making, cores = "making batches is the limit", bounds.costs.cores or 0.0
        if (idle := leaves_cores_idle(used, bounds.costs.cores)) is not None and used is not None:
            own, others_took = (used.cpu_percent or 0.0) / 100, (used.others_cpu_percent or 0.0) / 100
            busy = f"with {own:.1f} of {count_text(cores, 'core')} in use"
            making += f": it waits, {busy}" if idle else f" beside the model, {busy}"
            if idle and own + others_took > _BUSY * cores:
                making = f"making batches is the limit, {busy}, and {others_took:.1f} by other programs"
        return Bottleneck(limit=None, sentence=f"{making}; the model alone takes {_text(model)} images/s.")
    if share >= MODEL_SHARE:
        sentence = _model(others, model, loader_alone)
        return Bottleneck(limit=Limit(kind=Kind.MODEL, images_per_second=model), sentence=sentence)
    following = _in_the_way(bounds, others, min(rate, share * model))  # each by figures of one time
    found: Limit | None = following
    dearest = max(bounds.work.paid, key=lambda op: op.wall_seconds_per_image, default=None)
    # Three equal parts that take turns give three times the rate; a limit beyond that explains nothing.
    unexplained = following is None or following.images_per_second > 3.0 * rate
    if unexplained and dearest is not None and loader_alone is not None and loader_alone <= OVERTAKEN * rate:
        found = Limit(kind=Kind.OP, images_per_second=loader_alone, op=dearest.name)
        words = (
            f"the loader is the limit: without a model it makes {_text(loader_alone)} images/s, most of it "
            f"in {dearest.name}; the ops by themselves take less, {_reason(used, 'so its workers hold each other up')}"
        )
    elif unexplained and 1.0 <= _core_share(bounds, rate) <= _READ_HIGH:
        found, words = _between(bounds, rate, Limit(kind=Kind.OP, images_per_second=rate))
    elif following is None:
        words = f"no limit that was measured explains what is missing: all of them are below {_text(rate)} images/s"
    elif unexplained:
        found = None
        words = (
            f"no limit that was measured explains what is missing, {_reason(used, _PAUSES)}: the next one, "
            f"{following.op or following.kind}, is {_text(following.images_per_second)} images/s"
        )
    elif following.images_per_second > model:
        found, words = _between(bounds, rate, following)
    else:
        words = _WORDS[following.kind](bounds, following)
    return Bottleneck(limit=found, sentence=f"{words}; the model alone takes {_text(model)}.")


def _reason(used: Resources | None, else_: str) -> str:
    took = 0.0 if used is None else (used.others_cpu_percent or 0.0) / 100
    return f"which may be due to the {took:.1f} cores that other programs took" if took > _BUSY else else_


def leaves_cores_idle(used: Resources | None, cores: float | None) -> bool | None:
    """Return True if a training keeps no more than half of the cores busy; None if that is not known."""
    if used is None or used.cpu_percent is None or cores is None:
        return None
    return used.cpu_percent <= 100 * _BUSY * cores


def _model(others: list[Limit], model: float, loader_alone: float | None) -> str:
    feeds = loader_alone or min((each.without_model or each.images_per_second for each in others), default=0.0)
    more = f"; the loader alone delivers {_text(feeds)}" if model < feeds < math.inf else ""
    return f"the model is the limit: fed from one batch in memory it takes {_text(model)} images/s{more}."


def _between(bounds: Bounds, reached: float, following: Limit) -> tuple[Limit, str]:
    """Find the bottleneck if each limit alone allows the model's rate: the loader's work on busy cores, else a gap."""
    does, costs, allowed = bounds.work, bounds.costs, following.images_per_second
    together = f"together they reach {_text(reached)} images/s"
    if _core_share(bounds, reached) >= _BUSY:
        dearest = max(does.paid, key=lambda op: op.seconds_per_image).name
        return Limit(kind=Kind.OP, images_per_second=allowed, op=dearest), (
            f"model and loader share {count_text(costs.cores or 1.0, 'core')}, of which an image takes "
            f"{_ms(costs.model_core_seconds_per_image)} in the model and {_ms(_here(bounds))} in the loader, most of "
            f"that in {dearest}: {together}"
        )
    return Limit(kind=Kind.HAND_OVER, images_per_second=allowed), (
        f"time is lost between loader and model, as in pauses between epochs: {together}, where "
        f"{following.op or following.kind} allows {_text(allowed)}"
    )


def _here(bounds: Bounds) -> float:
    """Return the core-seconds of an image in the loader, on this machine."""
    does = bounds.work
    return cost_model.received_core_seconds(does) if bounds.config.loader.works_elsewhere else does.core_seconds


def _core_share(bounds: Bounds, rate: float) -> float:
    """Return the share of the cores' time that model and loader take at a rate, by what each takes alone, or 0."""
    needed = rate * (_here(bounds) + bounds.costs.model_core_seconds_per_image)
    return needed / (bounds.costs.cores or 1.0) if bounds.work.paid else 0.0


def _in_the_way(bounds: Bounds, others: list[Limit], reached: float) -> Limit | None:
    """Return the lowest limit but the model that is not below the measured rate; a partial cache is lack of memory."""
    lowest = next((each for each in others if reached <= OVERTAKEN * each.images_per_second), None)
    config = bounds.config
    if lowest is not None and config.kept.in_memory and config.kept.part < 1 and bounds.work.from_source > 0:
        whole = cost_model.work(config.keeping(part=1.0), bounds.costs)
        takes = bounds.work.core_seconds + bounds.work.read_wait_seconds
        if whole.core_seconds + whole.read_wait_seconds < 0.5 * takes:
            return dataclasses.replace(lowest, kind=Kind.MEMORY)
    return lowest


def _latency(bounds: Bounds, found: Limit) -> str:
    reads = bounds.costs.reads
    read = next((op for op in bounds.work.paid if op.name == cost_model.READ), None)
    latency = reads.latency_seconds if reads else read.wall_seconds_per_image if read else 0.0
    at_once = bounds.config.loader.reads_at_once() or math.ceil(bounds.costs.cores or 1)
    target = bounds.model_images_per_second
    needed = math.ceil(target * latency * max(bounds.work.from_source, 0.0))
    most = reads.best_images_per_second / bounds.work.from_source if reads and reads.saturated else math.inf
    lift = ""
    if found.images_per_second <= most < target:  # a lower one was read while something else used the storage
        lift = f"; more of them bring no more than {_text(most)}"
    elif reads and len(reads.rungs) > 1 and max(at_once, reads.most_at_once) < needed:
        lift = f"; more than {max(at_once, reads.most_at_once)} were not measured"
    elif at_once < needed:
        lift = f"; {needed} reads at a time would feed the model"
    bring = f"bring{'s' if at_once == 1 else ''} at most {_text(found.images_per_second)} images/s"
    return f"each read waits {_ms(latency)}: {at_once} at a time {bring}{lift}"


def _bandwidth(bounds: Bounds, found: Limit) -> str:
    each = bounds.costs.bytes_per_image or (bounds.costs.reads.bytes_per_image if bounds.costs.reads else 0.0)
    rates = (found.images_per_second, bounds.model_images_per_second)
    gives, needed = (rate * bounds.work.from_source * each / 1e6 for rate in rates)
    return (
        f"the storage gives {figure_text(gives)} MB/s, {_text(found.images_per_second)} images/s; "
        f"{figure_text(needed)} MB/s would feed the model"
    )


def _op(bounds: Bounds, found: Limit) -> str:
    does, shared = bounds.work, bounds.costs.model_core_seconds_per_image
    if found.workers:
        waits = does.op_wait_seconds + cost_model.worker_read_seconds(bounds.config, does)
        lift = math.ceil(bounds.model_images_per_second * (does.core_seconds + waits))
        needed = bounds.model_images_per_second * (does.core_seconds + shared)
        enough = bounds.config.loader.works_elsewhere or needed <= (bounds.costs.cores or 0.0)
        return (
            f"{_work(bounds, found)}; this many workers cannot feed more than {_text(found.images_per_second)}; "
            f"{lift}{'' if enough else f' on {math.ceil(needed)} cores'} would feed the model"
        )
    loader = does.core_seconds
    if found.elsewhere:
        lift = math.ceil(bounds.model_images_per_second * loader)
        there = count_text(bounds.costs.cores_elsewhere or 0, "core")
        return (
            f"{_work(bounds, found)}; the {there} elsewhere cannot feed more than "
            f"{_text(found.images_per_second)} images/s; {lift} would feed the model"
        )
    parts = [_work(bounds, found)] if loader > 0.1 * shared else []
    parts += [f"the model takes {_ms(shared)} of the cores for an image"] if shared > 0.1 * loader else []
    return (
        f"{', and '.join(parts)}; {count_text(bounds.costs.cores or 0, 'core')} cannot feed more than "
        f"{_text(found.images_per_second)} images/s{_more_cores(bounds)}"
    )


def _more_cores(bounds: Bounds) -> str:
    does, costs, target = bounds.work, bounds.costs, bounds.model_images_per_second
    free = max(0.0, (costs.cores or 0.0) - target * costs.model_core_seconds_per_image)
    elsewhere = target * does.core_seconds - free
    if elsewhere <= 0:
        return ""
    count = math.ceil(elsewhere)
    megabytes = elsewhere / does.core_seconds * does.sent_bytes / 1e6
    if megabytes > _NETWORK:
        return f"; {count_text(count, 'more core')} would feed the model"
    network = f", {figure_text(megabytes)} MB/s through the network" if megabytes else ""
    return f"; {count_text(count, 'more core')} elsewhere would feed the model{network}"


def _lock(bounds: Bounds, found: Limit) -> str:
    needed = math.ceil(bounds.model_images_per_second * (bounds.work.core_seconds + bounds.work.op_wait_seconds))
    return (
        f"{python_text(bounds.work.paid, cost_model.turns(bounds.config.loader, bounds.costs.cores or 1.0))}; "
        f"{needed} processes on as many cores would feed the model"
    )


def python_text(ops: Sequence[OpCost], threads: int, reason: str | None = None) -> str | None:
    """Say which ops keep samples from being made by the native library, and what one process allows; None: none does.
    `threads` of a process take turns; `reason` says why the library makes no samples at all.
    """
    python = [op.name for op in cost_model.python_ops(ops)]
    if not python:
        return None
    names = ["the read" if name == cost_model.READ else name for name in python]
    said = f"{listed(names)} {'is' if len(python) == 1 else 'are'} Python"
    if reason is not None:
        said = f"samples are made by Python: {reason}"
    held, taken = cost_model.lock_seconds(ops, 1), cost_model.lock_seconds(ops, threads)
    lost, locked = (f"{float(f'{seconds * 1e6:.3g}'):,g} us" for seconds in (taken - held, held))
    turns = f"{threads} threads lose {lost} of it by taking turns"
    most = f"one process ends at {_text(1 / taken)} images/s" if taken else ""
    if held:
        return f"{said}; Python's lock (GIL) is held for {locked} an image{f', and {turns}' * (taken > held)}: {most}"
    said += "; Python's lock (GIL) was not seen to be held, which other load would hide"
    return f"{said}; {turns}: {most} at most" if taken else said


def _hand_over(bounds: Bounds, found: Limit) -> str:
    most = f"no more than {_text(found.images_per_second)} images/s"
    if bounds.config.loader.works_elsewhere:
        return f"batches come from other machines, and to take them beside the model these cores allow {most}"
    return f"to hand batches over beside the model, these cores allow {most}"


def _transfer(bounds: Bounds, found: Limit) -> str:
    sent = bounds.work.sent_bytes
    gigabytes = f", {found.images_per_second * sent / 1e9:.3g} GB/s" if sent else ""
    compact = bounds.costs.sent_bytes("device")
    larger = bounds.config.finish == "host" and 0 < compact < sent
    lift = f"; finish=device sends {sent / compact:.2g} times less" if larger else ""
    most = _text(found.images_per_second)
    return f"sending batches to the device brings no more than {most} images/s{gigabytes}{lift}"


_WORDS: Mapping[Kind, Callable[[Bounds, Limit], str]] = {
    Kind.STORAGE_LATENCY: _latency,
    Kind.STORAGE_BANDWIDTH: _bandwidth,
    Kind.OP: _op,
    Kind.PYTHON_LOCK: _lock,
    Kind.HAND_OVER: _hand_over,
    Kind.TRANSFER: _transfer,
    Kind.MEMORY: lambda bounds, found: (
        f"memory holds {bounds.config.kept.part:.0%} of the samples; reading and making the others brings no more "
        f"than {_text(found.images_per_second)} images/s"
    ),
}


def _work(bounds: Bounds, found: Limit) -> str:
    """Name the core time of a limit's op, or the worker time, which includes waiting."""
    named = (op for op in bounds.work.paid if op.name == found.op)
    dearest: OpCost = max(named, key=lambda op: op.wall_seconds_per_image)
    loader, takes, waits = bounds.work.core_seconds, dearest.seconds_per_image, 0.0
    if found.workers:
        loader += bounds.work.op_wait_seconds + cost_model.worker_read_seconds(bounds.config, bounds.work)
        takes, waits = dearest.wall_seconds_per_image, dearest.wait_seconds_per_image
    waited = f", of which it waits {_ms(waits)}," if waits else ""
    return f"{dearest.name} takes {_ms(takes)}{waited} of the loader's {_ms(loader)} for an image"


def _text(rate: float) -> str:
    """Format a rate with three digits, its actual precision."""
    if not math.isfinite(rate):
        return "any number of"
    if rate < 1000:
        return f"{rate:.3g}"
    digits = 10 ** (math.floor(math.log10(rate)) - 2)
    return f"{round(rate / digits) * digits:,.0f}"
