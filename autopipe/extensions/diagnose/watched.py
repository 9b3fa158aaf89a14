"""The figures of a watched training, the verdict on them, and both as text: how long steps wait, and for what.

`run` measures. The text has the rate, the use of time, the verdict, and code to paste.
"""

from __future__ import annotations

import enum
import math
import resource
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray
from rich.table import Table

from autopipe.hardware import processes
from autopipe.measure import bottleneck, meter
from autopipe.measure.facts import OpCost
from autopipe.measure.lines import Lines
from autopipe.measure.outcome import Resources, Window
from autopipe.measure.stats import Ratio
from autopipe.reports import tables, terminal, wording
from autopipe.values import Value
from autopipe.workload.ops.progressive import Progressive

if TYPE_CHECKING:
    from autopipe.extensions.diagnose.run import Step

MODEL_SHARE = 0.9  # of the model's own rate: from it on the model is called the limit


class Verdict(enum.StrEnum):
    """The bottleneck of a training."""

    MODEL = "model"  # its steps take as long as they do without any data
    DATA = "data"  # steps wait for batches
    CORES = "cores"  # steps take longer than they do alone, because making batches takes the same cores
    CALLBACKS = "callbacks"  # time goes between steps
    UNKNOWN = "unknown"  # the model alone was not timed


# -------------------- page faults, and the kernel's time

_KERNEL_SHARE: Final = 0.1  # of the processor's time, in the kernel
_FAULTS: Final = 256  # a step; fewer take no time that matters
_EXPLAINED: Final = 1.5  # times what the kernel's share explains: a larger gain is the doing of other programs


class Pages(Value):
    """Page faults and the kernel's part of the processor's time, of the process without its children."""

    faults_per_step: float
    kernel_share: float  # 0 to 1
    kept: Pages | None = None  # the same while freed memory was kept; None without a second look
    gain: Ratio | None = None  # images/s with freed memory kept over those without; None without a second look

    @property
    def matter(self) -> bool:
        return self.kernel_share >= _KERNEL_SHARE and self.faults_per_step >= _FAULTS


class PageCounts:
    """Counts page faults step by step. With `again`, a second look may be made, which changes the process for good."""

    def __init__(self, *, again: bool) -> None:
        self.kept_from: int | None = None  # the number of the first step of the second look
        self._again = again
        self._steps: list[NDArray[np.float64]] = []  # of each step: faults, seconds in the kernel, all seconds
        self.restart()

    def restart(self) -> None:
        self._last = _used()

    def step_ended(self) -> None:
        before, self._last = self._last, _used()
        self._steps.append(self._last - before)

    def look_again(self, seen: Sequence[Step]) -> bool:
        """Keep freed memory from now on, if pages took much of the last steps, which were `seen`; True if so."""
        if not self._again or self.kept_from is not None or not self._of(len(seen), None).matter:
            return False
        processes.keep_freed_memory()
        self.kept_from = len(self._steps)
        return True

    def found(self, seen: Sequence[Step], later: Sequence[Step]) -> Pages:
        """Return the figures of the last steps of the first look, and of those of the second, if there was one."""
        kept = {"kept": self._of(len(later), None), "gain": compared(seen, later)} if later else {}
        return self._of(len(seen), self.kept_from).model_copy(update=kept)

    def _of(self, count: int, end: int | None) -> Pages:
        faults, kernel, seconds = map(float, np.sum(self._steps[:end][-count:], axis=0))
        return Pages(faults_per_step=faults / count, kernel_share=kernel / seconds if seconds else 0.0)


def _used() -> NDArray[np.float64]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([used.ru_minflt, used.ru_stime, used.ru_utime + used.ru_stime])


def compared(before: Sequence[Step], after: Sequence[Step]) -> Ratio:
    """Return the ratio of images/s of later steps to those before, decided only if their intervals do not overlap."""
    windows = ([Window(images=step.images, seconds=step.seconds) for step in steps] for steps in (before, after))
    old, new = map(meter.overall, windows)
    high = new.high / old.low if old.has_interval else None
    return Ratio(ratio=new.value / old.value, low=new.low / old.high, high=high)


# -------------------- the figures of a training


class Watched(Value):
    """Some steps of a training, and the same model on a batch in memory."""

    status: Literal["watched"] = "watched"
    schema_version: Literal[1] = 1
    data: str | None = None  # the kind of the training's data, such as "tf.data.Dataset"; None if unknown
    backend: str  # of Keras
    batch_size: int = pydantic.Field(ge=1)  # samples of a full batch
    steps: int = pydantic.Field(ge=1)  # how many were timed
    images: int = pydantic.Field(ge=1)  # samples in them
    seconds: float = pydantic.Field(gt=0)  # that they took, from the end of the step before
    waiting_seconds: float = pydantic.Field(ge=0)  # the part in which the training's thread waited for a batch
    between_seconds: float = pydantic.Field(ge=0)  # the part between steps: callbacks, the progress bar, Keras
    first_step_seconds: float = pydantic.Field(ge=0)  # the first step of all, which compiles
    # the model on one batch, repeated; None if that could not be timed
    alone_images_per_second: float | None = pydantic.Field(default=None, gt=0)
    augmentation: tuple[str, ...] = ()  # classes of the layers in the model that draw random changes
    # the model alone with these layers passing their input on
    without_augmentation_images_per_second: float | None = pydantic.Field(default=None, gt=0)
    cores: float = pydantic.Field(gt=0)  # that the process may use
    resources: Resources = Resources()  # of the process and all it started
    pages: Pages | None = None  # of the process alone
    left_out: tuple[str, ...] = ()  # the user's callbacks that were left out, because they may write files
    image_files: Progressive | None = (
        None  # those that the data name, and how many are progressive; None if they do not
    )
    folder: str | None = None  # the innermost one that holds these files
    lines: Lines | None = None  # of the user's files, that make the data; None if too little was seen of any
    ops: tuple[OpCost, ...] = ()  # the read and the ops of autopipe's own data, as the training pays them
    threads: int = pydantic.Field(default=1, ge=1)  # of one process that take turns in those that are Python
    not_native: str | None = None  # why the native library makes no samples; None: it does, or the data are others
    warnings: tuple[str, ...] = ()  # doubts about the figures

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds

    @property
    def lost_share(self) -> float | None:
        """The share of the time in which the model could have trained, 0 to 1; None if its own rate is unknown."""
        if self.alone_images_per_second is None:
            return None
        return max(0.0, 1 - self.images_per_second / self.alone_images_per_second)

    @property
    def waiting_share(self) -> float:
        """The share of the time in which the model waited for data, 0 to 1.

        A device may still be busy with the step before while the host waits for a batch, so the model cannot have
        waited for longer than the difference to its own rate.
        """
        lost = self.lost_share
        return min(1.0, self.waiting_seconds / self.seconds, 1.0 if lost is None else lost)

    @property
    def between_share(self) -> float:
        lost = self.lost_share
        left = 1.0 if lost is None else lost - self.waiting_share
        return min(1.0, self.between_seconds / self.seconds, left)

    @property
    def slowed_share(self) -> float:
        """The share of the time by which steps took longer than the model takes alone, 0 to 1."""
        lost = self.lost_share
        return 0.0 if lost is None else max(0.0, lost - self.waiting_share - self.between_share)

    @property
    def possible_gain(self) -> float | None:
        """How many times as fast the training would be if data cost nothing; None if unknown."""
        if self.alone_images_per_second is None:
            return None
        left = 1 - self.waiting_share - self.slowed_share
        return 1 / left if left > 0 else math.inf

    @property
    def augmentation_share(self) -> float | None:
        """The share of the model's own time that its augmentation takes, 0 to 1; None if unknown."""
        alone, without = self.alone_images_per_second, self.without_augmentation_images_per_second
        return None if alone is None or without is None else max(0.0, 1 - alone / without)

    @property
    def verdict(self) -> Verdict:
        """The bottleneck of the training: the largest part of the lost time."""
        lost = self.lost_share
        if lost is None:
            return Verdict.UNKNOWN
        if lost <= 1 - MODEL_SHARE:
            return Verdict.MODEL
        parts = {
            Verdict.DATA: self.waiting_share,
            Verdict.CORES: self.slowed_share,
            Verdict.CALLBACKS: self.between_share,
        }
        return max(parts, key=lambda verdict: parts[verdict])


# -------------------- as text

_NOTEWORTHY = 0.1  # of the model's time, that its augmentation takes


def render(watched: Watched) -> Table:
    """Return the table that `autopipe diagnose` prints; the code to paste is in `to_paste`."""
    return terminal.labelled(rows(watched))


def show(watched: Watched) -> None:
    """Print the table, and what may be run or pasted."""
    line, code = to_run(watched), to_paste(watched)
    more = [f"next         {line}"] * (line is not None) + [f"\n{code}"] * (code is not None)
    for part in ("", render(watched), *more):
        terminal.Console().print(part, soft_wrap=True, highlight=False)


def rows(watched: Watched) -> list[tuple[str, str]]:
    """Return the lines of the table."""
    alone, step = watched.alone_images_per_second, watched.seconds / watched.steps
    took = wording.seconds(step) if step >= 1 else wording.milliseconds(step)
    there = "not known" if alone is None else f"{wording.rate(alone)} images/s on a batch that is already there"
    found = [
        ("images/s", wording.rate(watched.images_per_second)),
        ("model alone", there),
        ("a step", f"{took} for {watched.images / watched.steps:.3g} images: {_shares(watched)}"),
    ]
    if watched.augmentation:
        found.append(("augmentation", _augmentation(watched)))
    found += [
        ("resources", wording.resources(watched.resources, watched.cores) or "not known"),
        (
            "watched",
            f"{watched.steps} steps, {wording.seconds(watched.seconds)}; the first of all took "
            f"{wording.seconds(watched.first_step_seconds)}",
        ),
        ("data", f"{watched.data or 'not seen'} ({watched.backend})"),
    ]
    found += _page_rows(watched.pages) if watched.pages is not None else []
    if watched.image_files is not None and watched.image_files.progressive:
        found.append(("progressive", wording.progressive(watched.image_files)))
    if watched.lines is not None:
        found += tables.slow_lines(watched.lines, limits=watched.verdict not in (Verdict.MODEL, Verdict.CALLBACKS))
    if said := bottleneck.python_text(watched.ops, watched.threads, watched.not_native):
        found.append(("Python", said))
    if watched.left_out:
        found.append(("left out", f"{', '.join(watched.left_out)}: may write files; `--callbacks` runs them"))
    found += [("note", warning) for warning in watched.warnings]
    return [*found, ("verdict", sentence(watched))]


def sentence(watched: Watched) -> str:
    """Return the verdict in one sentence."""
    gain = watched.possible_gain or 1.0
    up_to = f"up to {gain:.1f}x" if gain < 100 else "more than 100x"
    return _SENTENCES[watched.verdict].format(
        seen=watched,
        up_to=up_to,
        cheaper=_cheaper_model(watched),
        tune="`autopipe tune`" if watched.data == "autopipe" else "`autopipe tune` or `ap.wrap`",
    )


_SENTENCES = {
    Verdict.UNKNOWN: "{seen.waiting_share:.0%} of the time waits for data; what the model could do alone is not known.",
    Verdict.MODEL: "the model is the limit: nothing to gain from how its data are made{cheaper}",
    Verdict.CALLBACKS: "{seen.between_share:.0%} of the time goes between steps: callbacks, the progress bar, Keras. "
    "steps_per_execution=8 in model.compile, or fewer callbacks, is the next step.",
    Verdict.CORES: "{seen.slowed_share:.0%} of the time goes because steps take longer than they do alone: what makes "
    "the data, or another program, takes the same cores: {up_to}. A cheaper pipeline is the next step: {tune}.",
    Verdict.DATA: "{seen.waiting_share:.0%} of the time waits for data: {up_to}. {tune} is the next step.",
}


def _cheaper_model(watched: Watched) -> str:
    share = watched.augmentation_share
    if share is None or share < _NOTEWORTHY:
        return "."
    return f"; its own augmentation takes {share:.0%} of its time, which workers could do instead."


def to_run(watched: Watched) -> str | None:
    """Return the command that rewrites progressive JPEG files; None if there are none."""
    if watched.image_files is None or watched.folder is None:
        return None
    return wording.rewriting(watched.image_files, watched.folder)


def to_paste(watched: Watched) -> str | None:
    """Return code that tunes such a training, for its owner to complete; None if there is nothing to gain."""
    if watched.verdict not in (Verdict.DATA, Verdict.CORES) or watched.data == "autopipe":  # which has a workload
        return None
    if watched.data == "arrays":
        return _HEAD + _ARRAYS.format(batch_size=watched.batch_size)
    parameters = _PARAMETERS.get(watched.data or "")
    hint = ". Give it these parameters: they change its speed and nothing else" if parameters else ""
    more = f", parameters={parameters}" if parameters else ""
    if watched.data == "a generator":
        hint, more = ". STEPS is the number of batches in an epoch, your steps_per_epoch", ", steps=STEPS"
    wrapped = _WRAP.format(hint=hint, parameters=more)
    return _HEAD + _NOTES.get(watched.data or "", "") + wrapped


_HEAD = """\
# tune_me.py: build_model() returns your compiled model. Then: autopipe tune tune_me.py:workload
import autopipe as ap

"""
_WRAP = """\
# make_dataset() returns what you give to fit{hint}.
workload = ap.wrap(make_dataset, model=build_model{parameters})
"""
_PARAMETERS = {
    "tf.data.Dataset": '{"num_parallel_calls": [1, 2, 4, 8], "prefetch": [1, 2, 8]}',
    "torch DataLoader": '{"num_workers": [1, 2, 4, 8], "prefetch_factor": [2, 4]}',
}
_NOTES = {
    "torch DataLoader": """\
# The workers of a DataLoader must not be forked once a framework has run:
# DataLoader(..., multiprocessing_context="forkserver" if num_workers else None)
""",
}
_ARRAYS = """\
# x, y: what you give to fit.
workload = ap.Workload(data=ap.Arrays(x, y), ops=[], batch_size={batch_size}, model=build_model)
"""


def _shares(watched: Watched) -> str:
    others = [(watched.slowed_share, "slower than alone"), (watched.between_share, "callbacks and Keras")]
    parts = [(watched.waiting_share, "waits for data"), *(part for part in others if part[0] >= 0.005)]
    parts.append((max(0.0, 1 - sum(share for share, _ in parts)), "the model"))
    return ", ".join(f"{share:.0%} {what}" for share, what in parts)


def _augmentation(watched: Watched) -> str:
    names = ", ".join(watched.augmentation)
    share, alone = watched.augmentation_share, watched.alone_images_per_second
    if share is None or alone is None:
        return f"{names} in the model"
    step = watched.batch_size / alone
    return (
        f"{names} in the model: {wording.milliseconds(share * step)} of its {wording.milliseconds(step)} a step "
        f"({share:.0%})"
    )


def _page_rows(found: Pages) -> list[tuple[str, str]]:
    """Return the lines on page faults; none if they take no time that matters."""
    if not found.matter:
        return []
    said = f"{found.faults_per_step:,.0f} a step; the kernel takes {found.kernel_share:.0%} of the processor's time"
    if found.kept is None or (gain := found.gain) is None:
        return [("page faults", said)]
    said += f". With freed memory kept: {found.kept.faults_per_step:,.0f} and {found.kept.kernel_share:.0%}"
    if not gain.decided or gain.low * (1 - found.kernel_share) > _EXPLAINED:
        return [("page faults", f"{said}; whether that is faster could not be told")]
    said += f", {wording.times(gain.ratio)} the images/s ({wording.interval(gain.low, gain.high)})"
    to_run = " ".join([*(f"{name}={value}" for name, value in processes.KEEPING.items()), "python ..."])
    return [("page faults", said), *([("keep memory", to_run)] if gain.faster else [])]
