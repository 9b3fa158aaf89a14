"""The figures of a watched training, the verdict on them, and both as text: how long steps wait, and for what.

`run` measures. The text has the rate, the use of time, the verdict, and code to paste.
"""

from __future__ import annotations

import enum
import math
import resource
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray
from rich.console import Group, RenderableType

from autopipe.extensions.diagnose.paste import Code, written
from autopipe.extensions.diagnose.steps import Epochs
from autopipe.measure import bottleneck
from autopipe.measure.facts import OpCost
from autopipe.measure.lines import Lines
from autopipe.measure.outcome import Resources
from autopipe.measure.rows import Row
from autopipe.reports import tables, terminal, wording
from autopipe.values import Estimate, Value, capital, count_text, figure_text
from autopipe.workload.ops.headers import Progressive

_GO_ON = ("keras.utils.PyDataset", "a generator")  # unless something of them begins anew, an epoch opens nothing
_BEHIND = 0.25  # of the time of steps is waited for data: they are made more slowly than the model takes them
NOTEWORTHY = 0.1  # of the time, that layers of augmentation take
# Of the cores: what the training uses, what others use, and what all use together, that makes figures doubtful.
# A training that sleeps or waits for files uses less.
_SOME, _MUCH, _FULL = 0.1, 0.25, 0.9


class Verdict(enum.StrEnum):
    """The bottleneck of a training."""

    MODEL = "model"  # its steps take as long as they do without any data
    DATA = "data"  # steps wait for batches
    CORES = "cores"  # steps take longer than they do alone, because making batches takes the same cores
    CALLBACKS = "callbacks"  # time goes between steps, or between epochs
    COMPILING = "compiling"  # batches come in new shapes, for each of which the model is compiled
    AUGMENTATION = "augmentation"  # layers of the model that draw random changes take the time
    VALIDATION = "validation"  # of which not all need be waiting for data
    PAUSES = "pauses"  # time goes where an epoch's data are opened and dropped
    OTHERS = "others"  # other programs take the cores, so that the figures are of them, too
    UNKNOWN = "unknown"  # the model alone was not timed


_KERNEL_SHARE: Final = 0.1  # of the processor's time, in the kernel
_FAULTS: Final = 256  # a step; fewer take no time that matters


class Pages(Value):
    """Page faults and the kernel's part of the processor's time, of the process without its children."""

    faults_per_step: float
    kernel_share: float  # 0 to 1

    @property
    def matter(self) -> bool:
        return self.kernel_share >= _KERNEL_SHARE and self.faults_per_step >= _FAULTS


class PageCounts:
    """Counts page faults step by step."""

    def __init__(self) -> None:
        self._steps: list[NDArray[np.float64]] = []  # of each step: faults, seconds in the kernel, all seconds
        self.restart()

    def restart(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._last = np.array([used.ru_minflt, used.ru_stime, used.ru_utime + used.ru_stime])

    def step_ended(self) -> None:
        before = self._last
        self.restart()
        self._steps.append(self._last - before)

    def of_last(self, count: int) -> Pages:
        faults, kernel, seconds = map(float, np.sum(self._steps[-count:], axis=0))
        return Pages(faults_per_step=faults / count, kernel_share=kernel / seconds if seconds else 0.0)


class Watched(Value):
    """Some steps of a training, and the same model on a batch in memory."""

    status: Literal["watched"] = "watched"
    schema_version: Literal[1] = 1
    data: str | None = None  # the kind of the training's data, such as "tf.data.Dataset"; None if unknown
    backend: str | None = None  # of Keras; None: a loop that was not Keras's
    loop: str | None = None  # where a loop of the user's own stands, whose steps these are; None: it is `fit`
    workers: int | None = None  # processes that make the loop's batches, by its data; None: not known
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
    # those that the data name, and how many are progressive; None if they do not
    image_files: Progressive | None = None
    folder: str | None = None  # the innermost one that holds these files
    lines: Lines | None = None  # of the user's files, that make the data; None if too little was seen of any
    ops: tuple[OpCost, ...] = ()  # the read and the ops of autopipe's own data, as the training pays them
    threads: int = pydantic.Field(default=1, ge=1)  # of one process that take turns in those that are Python
    not_native: str | None = None  # why the native library makes no samples; None: it does, or the data are others
    epochs: Epochs | None = None  # by parts; None if none was seen to its end
    compiling_seconds: float = pydantic.Field(default=0.0, ge=0)  # by which steps on batches of new shapes were longer
    shapes: int = 1  # of batches
    validation_lines: Lines | None = None  # as `lines`, of the validation's data
    code: Code | None = None  # what the script gives to `fit`, as its own file names it
    autotune: str | None = None  # what tf.data's AUTOTUNE has chosen; None: it chooses nothing
    begins_anew: str | None = None  # what an epoch's first batch waits for; None: an iterator, no more is known
    bound: str | None = None  # what bound the process to fewer cores than it had
    warnings: tuple[str, ...] = ()  # doubts about the figures

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds

    @property
    def shares(self) -> dict[Verdict, float]:
        """The shares of the time of steps, together 1.

        A device may still be busy with the step before while the host waits for a batch, so that all parts together are
        not longer than the difference to the model's own rate.
        """
        alone = self.alone_images_per_second
        left = 1.0 if alone is None else max(0.0, 1 - self.images_per_second / alone)
        found = {Verdict.DATA: self.waiting_seconds, Verdict.CALLBACKS: self.between_seconds}
        found[Verdict.COMPILING] = self.compiling_seconds
        for part, seconds in found.items():
            found[part] = max(0.0, min(seconds / self.seconds, left))
            left -= found[part]
        found[Verdict.CORES] = 0.0 if alone is None else max(0.0, left)
        return {**found, Verdict.MODEL: 1 - sum(found.values())}

    @property
    def parts(self) -> dict[Verdict, float]:
        """The shares of the time of an epoch, or of steps if none was seen to its end; together 1."""
        steps = self.shares
        steps[Verdict.AUGMENTATION] = steps[Verdict.MODEL] * (self.augmentation_share or 0.0)
        steps[Verdict.MODEL] -= steps[Verdict.AUGMENTATION]
        if self.epochs is None:
            return steps
        whole = self.epochs.seconds
        found = {part: share * self.epochs.steps_seconds / whole for part, share in steps.items()}
        found[Verdict.DATA] += self.epochs.queue_seconds / whole
        found[Verdict.CALLBACKS] += self.epochs.callbacks_seconds / whole
        found[Verdict.VALIDATION] = self.epochs.validation_seconds / whole
        found[Verdict.PAUSES] = self.epochs.between_seconds / whole
        goes_on = self.begins_anew is None and self.loop is None and self.data in _GO_ON
        # An iterator of tf.data whose steps wait, too, would make the first batches of `fit` no earlier if it went on.
        goes_on |= self.loop is None and self.data == "tf.data.Dataset" and steps[Verdict.DATA] >= _BEHIND
        found[Verdict.DATA if goes_on else Verdict.PAUSES] += self.epochs.first_batch_seconds / whole
        return found

    @property
    def waits(self) -> bool:
        """Whether waiting for data, or making them, takes a share of the time that matters."""
        return self.parts[Verdict.DATA] + self.parts[Verdict.CORES] >= NOTEWORTHY

    @property
    def opening_share(self) -> float:
        """The share of epochs in which data are opened and dropped: workers that begin anew may do so in either."""
        if self.epochs is None:
            return 0.0
        return self.parts[Verdict.PAUSES] + self.epochs.queue_seconds / self.epochs.seconds

    @property
    def possible_gain(self) -> float | None:
        """How many times as fast the training would be if data cost nothing; None if unknown."""
        if self.alone_images_per_second is None:
            return None
        left = 1 - self.parts[Verdict.DATA] - self.parts[Verdict.CORES]
        return 1 / left if left > 0 else math.inf

    @property
    def augmentation_share(self) -> float | None:
        """The share of the model's own time that its augmentation takes, 0 to 1; None if unknown."""
        alone, without = self.alone_images_per_second, self.without_augmentation_images_per_second
        return None if alone is None or without is None else max(0.0, 1 - alone / without)

    @property
    def busy_neighbours(self) -> bool:
        """Whether other programs kept so many cores busy that this training got fewer than it could have used."""
        own, others = self.resources.cpu_percent or 0.0, self.resources.others_cpu_percent or 0.0
        whole = 100 * self.cores
        return own >= _SOME * whole and others >= _MUCH * whole and own + others >= _FULL * whole

    @property
    def verdict(self) -> Verdict:
        """The bottleneck of the training: the largest part of the time but the model's own."""
        parts = dict(self.parts)
        model = parts.pop(Verdict.MODEL)
        largest = max(parts, key=lambda verdict: parts[verdict])
        lost = 1 - model - parts[Verdict.AUGMENTATION]
        if lost <= 1 - bottleneck.MODEL_SHARE and parts[Verdict.AUGMENTATION] < NOTEWORTHY:
            return Verdict.UNKNOWN if self.alone_images_per_second is None else Verdict.MODEL
        if self.busy_neighbours and largest in (Verdict.DATA, Verdict.CORES):
            return Verdict.OTHERS
        if self.alone_images_per_second is None and largest in (Verdict.DATA, Verdict.CALLBACKS):
            return Verdict.UNKNOWN
        return largest

    @property
    def row(self) -> Row:
        alone = self.alone_images_per_second
        return Row(
            name=self.data or "the training",
            model=None if alone is None else Estimate.of_one(alone),
            together=Estimate.of_one(self.images_per_second),
        )


# -------------------- as text


def show(watched: Watched) -> None:
    """Print the table, and what may be run or pasted."""
    terminal.Console().print(Group(*parts(watched)), soft_wrap=True, highlight=False)  # one output of a notebook's cell


def parts(watched: Watched) -> list[RenderableType]:
    """Return an empty line, the figures, the table, and what may be run or pasted."""
    line, code = to_run(watched), to_paste(watched)
    more = [f"next         {line}"] * (line is not None) + [f"\n{code}"] * (code is not None)
    return ["", tables.rows([watched.row]), "", terminal.labelled(rows(watched)), *more]


def rows(watched: Watched) -> list[tuple[str, str]]:
    """Return the lines of the table."""
    step = watched.seconds / watched.steps
    words = {
        Verdict.DATA: "waits for data",
        Verdict.CORES: "slower than alone",
        Verdict.COMPILING: "compiles for new shapes",
        Verdict.CALLBACKS: "callbacks and Keras",
        Verdict.MODEL: "the loop" if watched.loop else "the model",
    }
    shares = _shares({words[part]: watched.shares[part] for part in words}, words[Verdict.DATA], words[Verdict.MODEL])
    found = [("a step", f"{_time(step)} for {figure_text(watched.images / watched.steps)} images: {shares}")]
    if watched.epochs is not None:
        found.append(("an epoch", _epoch(watched.epochs)))
    anew = f"{capital(watched.begins_anew or '')}."
    if watched.begins_anew and watched.verdict is not Verdict.PAUSES and anew not in watched.warnings:
        found += [("first batch", watched.begins_anew)] * (watched.opening_share >= NOTEWORTHY)
    if watched.augmentation:
        found.append(("augmentation", _augmentation(watched)))
    found += [
        ("resources", wording.resources(watched.resources, watched.cores) or "not known"),
        (
            "watched",
            f"{count_text(watched.steps, 'step')}, {wording.seconds(watched.seconds)}; the first of all took "
            f"{wording.seconds(watched.first_step_seconds)}",
        ),
        ("data", (watched.data or "not seen") + (f" ({watched.backend})" if watched.backend else "")),
    ]
    found += [(name, said) for name, said in (("AUTOTUNE", watched.autotune), ("loop", watched.loop)) if said]
    if watched.pages is not None and watched.pages.matter and watched.verdict is not Verdict.OTHERS:
        said = f"{watched.pages.faults_per_step:,.0f} a step; the kernel takes {watched.pages.kernel_share:.0%} of the "
        found.append(("page faults", f"{said}processor's time. `autopipe tune` tries to keep freed memory"))
    if watched.image_files is not None and watched.image_files.progressive:
        found.append(("progressive", wording.progressive(watched.image_files)))
    found += _line_rows(watched)
    if python := bottleneck.python_text(watched.ops, watched.threads, watched.not_native):
        found.append(("Python", python))
    if watched.left_out:
        said = "may write files; their time is not in these figures. `--callbacks` runs them"
        found.append(("left out", f"{', '.join(watched.left_out)}: {said}"))
    told = watched.resources.warnings if watched.verdict is Verdict.OTHERS else ()
    told += (anew,) * (watched.verdict is Verdict.PAUSES)
    found += [("note", warning) for warning in watched.warnings if warning not in told]
    return [*found, ("verdict", sentence(watched))]


def _line_rows(watched: Watched) -> Iterator[tuple[str, str]]:
    lines, is_validation = watched.lines, watched.verdict is Verdict.VALIDATION
    limits = watched.verdict in (Verdict.DATA, Verdict.CORES, Verdict.OTHERS, Verdict.UNKNOWN, Verdict.PAUSES)
    if lines is not None and lines.lines and not is_validation:
        yield from tables.slow_lines(lines, limits=limits)
    if lines is not None and lines.own and watched.shares[Verdict.MODEL] >= _MOST:
        whole = sum(line.seconds for line in lines.own)
        slow = tuple(line for line in lines.own[:_OWN_LINES] if line.seconds >= _OWN_SHARE * whole)
        yield from tables.slow_lines(lines.model_copy(update={"lines": slow, "seconds": whole}), _OF_LOOP)
    if watched.validation_lines is not None and is_validation:
        yield from tables.slow_lines(watched.validation_lines, "of the validation's data")


def sentence(watched: Watched) -> str:
    """Return the verdict in a few sentences, of which the first names the largest part of the time."""
    said = _sentence(watched, watched.verdict)
    if watched.bound is None or watched.verdict not in (Verdict.DATA, Verdict.CORES, Verdict.OTHERS):
        return said
    return f"{watched.bound} {capital(said)}"


def _sentence(watched: Watched, verdict: Verdict) -> str:
    gain = watched.possible_gain or 1.0
    up_to = f"up to {gain:.1f}x" if gain < 10 else f"up to {gain:.0f}x" if gain < 100 else _BEYOND
    tune = "`autopipe tune`" if watched.data == "autopipe" else "`autopipe tune` or `ap.wrap`"
    if watched.loop is not None:
        tune = _READ_AHEAD.get(watched.data or "", "a loader that reads ahead (`ap.live`, `ap.wrap`)")
        if "{workers}" in tune and (watched.workers or 0) >= watched.cores and not _only_waits(watched):
            tune = _ENOUGH_WORKERS
        tune = tune.format(workers=watched.workers, cores=f"{watched.cores:g}", size=watched.batch_size)
    said = _SENTENCES[verdict].replace("the model is", "the loop itself is" if watched.loop else "the model is")
    if verdict is Verdict.OTHERS:
        parts = watched.parts
        as_it_was = Verdict.DATA if parts[Verdict.DATA] >= parts[Verdict.CORES] else Verdict.CORES
        others, cores = (watched.resources.others_cpu_percent or 0.0) / 100, f"{watched.cores:g}"
        return said.format(others=f"{others:.1f}", cores=cores) + _sentence(watched, as_it_was).partition(":")[0] + "."
    if verdict is Verdict.VALIDATION and watched.epochs is not None:
        waits = watched.epochs.validation_waiting_seconds / max(1e-9, watched.epochs.validation_seconds)
        said += _SLOW_VALIDATION if waits >= _MOST else _LONG_VALIDATION
        said = said.replace("{part}", f"{min(1.0, waits):.0%}")
    if verdict is Verdict.DATA and watched.data == "tf.data.Dataset" and watched.lines and watched.lines.lines:
        said += _INSIDE
    if verdict is Verdict.DATA and _only_waits(watched):
        said += _WAITING_LINES
    share = watched.shares[Verdict.DATA] if verdict is Verdict.UNKNOWN else watched.parts.get(verdict, 0.0)
    fewer = "Fewer callbacks are" if watched.backend == "torch" else _FEWER_CALLS
    anew = watched.begins_anew or (_AT_ENDS if watched.loop else _OPENED)
    return said.format(share=share, seen=watched, up_to=up_to, tune=tune, anew=anew, fewer=fewer)


def _only_waits(watched: Watched) -> bool:
    """Return True if the lines that make data wait for something that is neither a core nor Python's lock."""
    lines = [] if watched.lines is None else [line for line in watched.lines.lines if not line.beside]
    computed, seconds = (sum(getattr(line, name) for line in lines) for name in ("processor_seconds", "seconds"))
    own, others = watched.resources.cpu_percent or 0.0, watched.resources.others_cpu_percent or 0.0
    idle = own <= _LOCKED and own + others <= 100 * watched.cores / 2
    return bool(lines) and idle and computed <= _SOME * seconds


_AT_ENDS = "what the loop does there, such as a validation, or its data being opened"
_OPENED = "its data are opened. Fewer, longer epochs are the next step"
_MOST, _OWN_LINES, _OWN_SHARE = 0.5, 4, 0.03
_OF_LOOP = "of the loop itself; one that takes a value from a device, such as `.item()`, waits for what it computes"
_BEYOND = "at best 100x or more, if data cost no time"
_LOCKED = 60.0  # percent of a core; threads that take turns in Python's lock use one
_FEWER_CALLS = "Fewer callbacks, or steps_per_execution=8 in model.compile, is"  # on torch, Keras refuses it
_INSIDE = (
    " Your lines run inside tf.data: a generator in one thread, a `map` in as many as num_parallel_calls and "
    "options.threading.private_threadpool_size allow, of which one at a time computes in Python. A "
    "keras.utils.PyDataset allows worker processes."
)
_WAITING_LINES = (
    " The slow lines wait and hardly compute, while cores are idle: many more readers than cores, files kept in "
    "memory, or a copy of them nearby makes that faster."
)
_SENTENCES = {
    Verdict.UNKNOWN: "{share:.0%} of the time waits for data; what the model could do alone is not known.",
    Verdict.MODEL: "the model is the limit: nothing to gain from how its data are made.",
    Verdict.AUGMENTATION: "the model is the limit, and its own augmentation takes {share:.0%} of the time: workers "
    "could do that instead, in the pipeline, if cores are free.",
    Verdict.CALLBACKS: "{share:.0%} of the time goes to callbacks, the progress bar and Keras, between steps and "
    "epochs. {fewer} the next step.",
    Verdict.COMPILING: "{share:.0%} of the time compiles the model, for batches of {seen.shapes} shapes so far. "
    "Batches of one shape are the next step: pad them, and drop the last one if it is smaller.",
    Verdict.CORES: "{share:.0%} of the time goes because steps take longer than they do alone: what makes the data, or "
    "another program, takes the same cores: {up_to}. A cheaper pipeline is the next step: {tune}.",
    Verdict.DATA: "{share:.0%} of the time waits for data: {up_to}. The next step is {tune}.",
    Verdict.VALIDATION: "{share:.0%} of an epoch is validation, ",
    Verdict.PAUSES: "{share:.0%} of an epoch passes before its first batch comes and after its last step: {anew}.",
    Verdict.OTHERS: "other programs used {others} of {cores} cores meanwhile, so these figures are theirs, too. Run "
    "again on a quiet machine before you change anything. As it was, ",
}
_SLOW_VALIDATION = "which waits for its data for {part} of its time. Faster validation data are the next step."
_LONG_VALIDATION = "which computes. Larger batches of validation data, or validation_freq=2, are the next step."
_READ_AHEAD = {
    "keras.utils.PyDataset": "workers: a loop that calls dataset[i] has none, whatever its workers= says. "
    "`ap.live(dataset)` reads ahead",
    "autopipe": "less work in the slow lines: autopipe's workers feed this loop already, and `ap.live` tries more of "
    "them as it goes",
    "tf.data.Dataset": "the dataset itself: .prefetch(2) at its end, num_parallel_calls= in map",
    "torch DataLoader": "its num_workers=, {workers} now, with persistent_workers=True; `ap.live` finds them meanwhile",
    "torch DataLoader of an IterableDataset": "its num_workers=, {workers} now, if its `__iter__` gives each worker a "
    "part of the samples by `torch.utils.data.get_worker_info()`, as webdataset does: otherwise each gives them all",
    "torch DataLoader of a TensorDataset": "whole batches: samples are picked and stacked one by one, and to pass them "
    "on from workers takes longer. `DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), "
    "{size}, drop_last=False))` picks each batch by one index, in the order of shuffle=True",
    "torch DataLoader of Hugging Face's Trainer": "dataloader_num_workers= of TrainingArguments, {workers} now, with "
    "dataloader_persistent_workers=True",
    "torch DataLoader of Ultralytics": "workers= of `train`, {workers} now",
    "grain DataLoader": "its worker_count=, {workers} now",
    "grain DataLoaderIterator": "its worker_count=, {workers} now",
    **dict.fromkeys(
        ("grain DatasetIterator", "grain IterDataset", "grain MapDataset"),
        ".to_iter_dataset(grain.ReadOptions(num_threads=16, prefetch_buffer_size=64)), or .mp_prefetch() behind it",
    ),
}
_ENOUGH_WORKERS = "cheaper slow lines: {workers} workers are enough for {cores} cores"


def _time(seconds: float) -> str:
    return wording.seconds(seconds) if seconds >= 1 else wording.milliseconds(seconds)


def _epoch(epochs: Epochs) -> str:
    parts = {
        "steps": epochs.steps_seconds,
        "its first batch": epochs.first_batch_seconds,
        "validation": epochs.validation_seconds,
        "callbacks": epochs.callbacks_seconds,
        "waits for the next epoch's first batches": epochs.queue_seconds,
        "after the last step": epochs.between_seconds,
    }
    said = _shares({part: seconds / epochs.seconds for part, seconds in parts.items()})
    rate = f", {wording.rate(epochs.images / epochs.seconds)} images/s" * bool(epochs.images)
    return f"{_time(epochs.seconds / epochs.count)}{rate}: {said}"


def _shares(shares: Mapping[str, float], *always: str) -> str:
    return ", ".join(f"{share:.0%} {part}" for part, share in shares.items() if share >= 0.005 or part in always)


def to_run(watched: Watched) -> str | None:
    """Return the command that rewrites progressive JPEG files; None if there are none."""
    if watched.image_files is None or watched.folder is None:
        return None
    return wording.rewriting(watched.image_files, watched.folder)


def to_paste(watched: Watched) -> str | None:
    """Return code that tunes such a training, for its owner to complete; None if there is nothing to gain."""
    limits = watched.verdict in (Verdict.DATA, Verdict.CORES) and watched.loop is None
    if not limits or watched.data == "autopipe":  # which has a workload
        return None
    return written(watched.code, watched.data, watched.batch_size)


def _augmentation(watched: Watched) -> str:
    names = f"{', '.join(watched.augmentation)} in the model"
    share, alone = watched.augmentation_share, watched.alone_images_per_second
    if share is None or alone is None:
        return names
    step = watched.batch_size / alone
    return f"{names}: {wording.milliseconds(share * step)} of its {wording.milliseconds(step)} a step ({share:.0%})"
