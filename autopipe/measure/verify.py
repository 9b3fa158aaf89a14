"""Verification: compares the batches of configurations with those that the workload asks for, samples and pixels.

Each configuration runs twice over a part of the data: as it is, and over samples that are only their numbers, which
separates missing and repeated samples from changed ones. `Values` has what a model is not made for, also for others.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import AutopipeError, LoaderError
from autopipe.frameworks import grain
from autopipe.measure import epochs, randomness
from autopipe.measure.outcome import FEWEST_VERIFIED, Agreement, Report, Verification, VerifyOptions
from autopipe.pipeline import assembly
from autopipe.pipeline.batching import pickling
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.loaders.workers import Threads
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.pipeline.wrap import OwnStep, WrappedData
from autopipe.values import figure_text
from autopipe.workload.data import source as data_source
from autopipe.workload.ops import planner
from autopipe.workload.ops.decode import Decode
from autopipe.workload.sample import FieldKind, Source, leaves
from autopipe.workload.workload import Workload

_REFERENCE = PipelineConfig(loader=Threads(workers=1, queue_size=1), finish="host", device_prefetch=0)


class _Numbers:
    """A source of one-pixel dark samples with their numbers as targets; of files if the data are files."""

    y_kind = FieldKind.LABEL

    def __init__(self, data: Source, *, encoded: bool) -> None:
        self.x_kind = FieldKind.ENCODED if encoded else FieldKind.IMAGE
        self._count, self.block_starts = len(data), getattr(data, "block_starts", None)
        pixel = np.zeros((1, 1, 1), np.uint8)
        self._x = simplejpeg.encode_jpeg(pixel, colorspace="GRAY") if encoded else pixel

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> tuple[Any, int]:
        return self._x, index


def verify(
    workload: Workload, configs: Sequence[PipelineConfig], *, samples: int, report: Report, own: Any = None
) -> Verification:
    """Compare the first epoch of each configuration with that of one thread, over at most `samples` samples, and look
    at the values of these. `own`: as of `repeats`.
    """
    part = dataclasses.replace(workload, data=data_source.part(workload.data, samples), drop_remainder=False)
    part = dataclasses.replace(part, batch_size=min(part.batch_size, len(part.data)))
    encoded = planner.make_plan(part).source.x.kind is FieldKind.ENCODED
    ops = (Decode(strict=False),) if encoded else ()  # a loader may take only samples that it decodes
    numbered = dataclasses.replace(part, data=_Numbers(part.data, encoded=encoded), ops=ops)
    values = Values()
    reference = _Epoch.of(part, numbered, _REFERENCE, values)
    agreements = _each(configs, lambda config: _compare(config, reference, _Epoch.of(part, numbered, config)), report)
    return Verification(agreements=agreements, notes=(*values.notes(_model(workload, own)), *_leaks(workload)))


def _leaks(workload: Workload) -> Iterator[str]:
    """Tell of files of the validation that are trained on, if each sample is a file of its own."""
    if workload.validation is None:
        return
    ours, theirs = ({*data_source.files(each)} for each in (workload.data, workload.validation))
    if len(theirs) >= len(workload.validation) and (shared := sorted(ours & theirs)):
        yield (
            f"{len(shared):,} of the {len(theirs):,} files of the validation are trained on as well, such as "
            f"`{shared[0]}`, so that its figures are too good. Parts of one folder need the same `seed` of the split"
        )


def _each(
    configs: Iterable[PipelineConfig], look: Callable[[PipelineConfig], Agreement], report: Report
) -> tuple[Agreement, ...]:
    found = []
    for config in configs:
        try:
            found.append(look(config))
        except AutopipeError as error:
            found.append(Agreement(config=config, digest="", samples=0, message=str(error)))
        report.progress(len(found), 0.0)
    return tuple(found)


@dataclasses.dataclass(frozen=True, slots=True)
class _Epoch:
    """One epoch, sample by sample: all of x and of the targets (weights included) in order, and samples' numbers."""

    x: tuple[NDArray[Any], ...]
    targets: tuple[NDArray[Any], ...]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload, numbered: Workload, config: PipelineConfig, values: Values | None = None) -> _Epoch:
        x, targets = _collected(workload, config, values)
        _, numbers = _collected(numbered, config)
        return cls(x, targets, numbers[0].astype(np.int64))

    def digest(self) -> str:
        found = hashlib.sha256()
        for part in (*self.x, *self.targets):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()[:16]


def _collected(
    workload: Workload, config: PipelineConfig, values: Values | None = None
) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
    batches = []
    with assembly.make_loader(workload, config) as loader:
        for batch in loader.epoch(0):
            # The parts of x, y and the weights in the same order for every batch; none of a missing y.
            slots = (dict(sorted(slot.items())) if isinstance(slot, dict) else slot for slot in batch)
            batches.append([[] if slot is None else [np.array(part) for part in leaves(slot)] for slot in slots])
            if values is not None:
                values.note(batch)
    every = [[np.concatenate(parts) for parts in zip(*each, strict=True)] for each in zip(*batches, strict=True)]
    if config.channels == "first":
        every = [[np.moveaxis(part, 1, -1) if part.ndim == 4 else part for part in slot] for slot in every]
    return tuple(every[0]), tuple(itertools.chain(*every[1:]))


def _compare(config: PipelineConfig, reference: _Epoch, epoch: _Epoch) -> Agreement:
    counts = np.bincount(epoch.numbers, minlength=len(reference.numbers))
    same_order = np.array_equal(epoch.numbers, reference.numbers)
    messages: list[str] = []
    if not same_order:
        messages.append("the samples come in another order")
    # NaN, a missing value, equals NaN.
    if not all(np.array_equal(*pair, equal_nan=True) for pair in zip(epoch.targets, reference.targets, strict=False)):
        messages.append("the targets differ")
    if not math.isfinite(largest := _largest_difference(reference, epoch)):
        messages.append("NaN or infinite values stand where others should")
    return Agreement(
        config=config,
        digest=epoch.digest(),
        samples=len(epoch.numbers),
        largest_difference=largest if math.isfinite(largest) else 0.0,
        largest_value=max(float(np.max(np.abs(part), initial=0, where=np.isfinite(part))) for part in reference.x),
        missing=int(np.count_nonzero(counts == 0)),
        repeated=int(np.count_nonzero(counts > 1)),
        message="; ".join(messages) or None,
    )


def _apart(made: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Return the largest difference of two values; not finite if only one of the two is finite."""
    first, second = made.astype(np.float64), wanted.astype(np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        return float(np.max(np.where(same, 0.0, np.abs(first - second))))


def _largest_difference(reference: _Epoch, epoch: _Epoch) -> float:
    """Return the largest difference of a value between samples of the same number, or the first that is not finite."""
    place = {number: position for position, number in enumerate(reference.numbers.tolist())}
    found = [
        _apart(row, wanted[place[number]])
        for made, wanted in zip(epoch.x, reference.x, strict=True)
        for row, number in zip(made, epoch.numbers.tolist(), strict=True)
        if number in place and row.size
    ]
    return next((each for each in found if not math.isfinite(each)), max(found, default=0.0))


def repeats(
    workload: Workload, configs: Sequence[PipelineConfig], options: VerifyOptions, report: Report, own: Any = None
) -> Verification:
    """Count repeated samples in the beginning of two epochs with each configuration. `own`: the user's model, if one
    that is simulated stands in the workload. Samples are the same if all bytes of all their parts are. Samples that the
    data hold twice count, too. The first configuration is the unchanged dataset. Another changes the training if its
    epochs are equal and the dataset's are not, or if the dataset's are equal, also when it is made anew, and its own
    differ from them. A first epoch that takes longer than asked for is not read to its end, which caches wait for: then
    the second is not looked at. Random numbers that repeat, if asked for, are looked for in the epochs of the unchanged
    dataset, and among the workers of each configuration; and the unchanged dataset is looked at by `epochs`, too. Of
    slow data, the first configurations are looked at, and a note names the others.
    """
    assert isinstance(workload.data, WrappedData)
    data = workload.data.untouched()
    workload = dataclasses.replace(workload, data=data, drop_remainder=False)  # every batch is looked at
    samples, as_it_is = options.samples, list[epochs.Epoch]()  # of the latter, two
    in_loop = isinstance(own or workload.model, OwnStep | None)  # whose batches need not be (x, y, weights)
    seen_values = functools.partial(Values, slots=2 if in_loop else 3)
    usual, values = list[Agreement](), seen_values()  # the first is of the dataset as it is, and so are these
    patient_until = time.monotonic() + _PATIENCE

    def anew() -> epochs.Epoch:
        with assembly.make_loader(workload, configs[0]) as loader:
            return _beginning(loader, 0, sum(map(len, as_it_is[0])), report, Values())[0]

    def look(config: PipelineConfig) -> Agreement:
        with assembly.make_loader(workload, config) as loader:
            until, noted = time.monotonic() + options.seconds, values if config == configs[0] else seen_values()
            again, is_whole = seen_values(), config == configs[0] and samples is None
            if is_whole and grain.is_in_use() and grain.is_grain(data.make(data.defaults).dataset):
                noted.batches, again.batches = [], []
            seen, ended = _beginning(loader, 0, samples, report, noted, until=until)
            both = [seen, _beginning(loader, 1, samples or sum(map(len, seen)), report, again)[0]] if ended else []
        if config == configs[0]:
            as_it_is.extend(both)
        read = None if usual else [each.batches for each in (noted, again) if each.batches]
        repeat, unseen = _random(workload, config, options, report, until=patient_until, over_epochs=read)
        every = list(itertools.chain(*seen))
        found = Agreement(
            config=config,
            digest=hashlib.blake2b(b"".join(map(b"".join, every)), digest_size=8).hexdigest(),
            samples=len(every),
            repeated=len(every) - len(set(every)),
            random=repeat,
            unseen=unseen,
            epochs=2 if both else 1,
            is_pass=data.is_pass,
        )
        usual.append(found)
        # Random numbers that repeat need not do so in the same order with each configuration.
        message = _changed(as_it_is, both, anew) if as_it_is and both and not usual[0].random else None
        if not data.is_pass and [each.repeated > each.samples // 100 for each in (usual[0], found)] == [False, True]:
            message = f"{found.repeated:,} samples come twice, unlike in the dataset as it is"
        return found.model_copy(update={"message": message})

    begun = itertools.takewhile(lambda _: not usual or time.monotonic() < patient_until or samples is not None, configs)
    agreements = _each(begun, look, report)
    found = epochs.Findings()
    with contextlib.suppress(AutopipeError):  # told in the first row
        if options.random:
            model = functools.cache(lambda: _model(workload, own))
            found = epochs.look(
                data,
                *(as_it_is or ((), ())),
                whole=samples is None,
                has_y=lambda: not (in_loop and data.is_of_pairs) and getattr(model(), "loss", "") is not None,
            )
            found.notes += values.notes(None if isinstance(own or workload.model, OwnStep) else model())
    if left := [config.short() for config in configs[len(agreements) :]]:
        found.notes.append(f"not looked at, as reading took more than {_PATIENCE:.0f} s: {'; '.join(left)}")
    return Verification(
        agreements=agreements, compared=False, faults=tuple(found.faults), notes=tuple(found.notes), hidden=found.hidden
    )


_PATIENCE = 30.0  # seconds of all looks, after which no other is begun unless the number of samples was given


def _model(workload: Workload, own: Any) -> Any:
    """Return the model, or None. If it compiles no loss, its `train_step` says what the slots of a batch are."""
    with contextlib.suppress(Exception):  # the user's code may raise anything
        trained = dataclasses.replace(workload, model=own or workload.model)
        return assembly.build_model(trained, devices=1, channels="last")[1]
    return None


def _random(
    workload: Workload,
    config: PipelineConfig,
    options: VerifyOptions,
    report: Report,
    *,
    until: float,
    over_epochs: Sequence[randomness.Batches] | None,
) -> tuple[str | None, str | None]:
    """Find random numbers that repeat, in sentences, and the reasons why some could not be looked for."""
    if not options.random or not isinstance(config.loader, Wrapped):  # autopipe's own workers draw anew for each batch
        return None, None
    assert isinstance(workload.data, WrappedData)
    look = randomness.Look(workload.data, dict(config.loader.model_extra or {}), report, until, over_epochs or ())
    looks = {"from worker to worker": look.over_workers}
    if over_epochs is not None:
        looks = {"from epoch to epoch": functools.partial(look.over_epochs, options.seconds), **looks}
    repeated, unseen = list[str](), list[str]()
    for where, looked in looks.items():
        try:
            repeated += filter(None, [looked()])
        except LoaderError as error:
            unseen.append(f"whether random numbers repeat {where} was not seen: {error.message.rstrip('.')}")
    return "; ".join(repeated) or None, "; ".join(unseen) or None


def _changed(
    as_it_is: Sequence[epochs.Epoch], both: Sequence[epochs.Epoch], anew: Callable[[], epochs.Epoch]
) -> str | None:
    varies = as_it_is[0] != as_it_is[1]
    if varies and both[0] == both[1]:
        return (
            "every epoch is the same, unlike in the dataset as it is: a cache behind a shuffle or a random change "
            "keeps its first result"
        )
    # The function itself may draw another order each time that it is called.
    alike = varies or both[0] == as_it_is[0] or anew() != as_it_is[0]
    return None if alike else "other samples, or in another order, than as it is"


def _beginning(
    loader: Loader, epoch: int, samples: int | None, report: Report, values: Values, until: float = 0.0
) -> tuple[epochs.Epoch, bool]:
    """Return digests of an epoch's first samples, and True if it was read to its end by then; note their values."""
    found: list[tuple[epochs.Sample, ...]] = []
    count = 0
    for batch in loader.epoch(epoch):
        values.note(batch)
        made = epochs.samples(batch)[: None if samples is None else max(0, samples - count)]
        found += [made] * bool(made)
        count += len(made)
        report.progress(count, 0.0)
        late = time.monotonic() - until
        if (count >= (samples or FEWEST_VERIFIED) and late > 0) or (samples is None and late > _PATIENCE / 2):
            return found, False
    return found, True


# -------------------- values of samples


def _sure_mean(values: Sequence[float]) -> float:
    """Return the mean of different values, or 0 if that is within four of its standard errors."""
    values = sorted(set(values))  # an image that comes again, as in each epoch, tells nothing more
    is_sure = len(values) >= _FEWEST_IMAGES and abs(fmean(values)) > 4 * stdev(values) / math.sqrt(len(values))
    return fmean(values) if is_sure else 0.0


class Values:
    """What values the samples of some batches have."""

    def __init__(self, slots: int = 3) -> None:
        """Look at so many slots of each batch."""
        self._slots = slots
        # Samples, and those of them with values of x or weights that are no numbers.
        self._looked_at, self._odd = 0, collections.Counter[int]()
        # Of x, y and weights: least, largest, and whether all are whole.
        self._ranges: dict[int, tuple[float, float, bool]] = {}
        self._pixels, self._soft, self._ones = 0, 0, 0  # of masks in y, those of them between 0 and 1, and at 1
        self._classes = set[float]()  # values of y
        self.batches: list[tuple[bytes, ...]] | None = None  # a list: the digests of all batches are put there
        self._shapes = collections.defaultdict[int, set[Any]](set)  # of a sample of each part of x
        self._redder = list[float]()  # of each image in x, the mean of its first channel less that of its last

    def note(self, batch: Sequence[Any], most: int | None = None) -> None:
        """Note the values of a batch (x, y, weights), at most so many of each array of a sample."""
        odd = [np.False_] * 3
        if self.batches is not None:
            self.batches.append(randomness.digests(batch))
        for number, slot in enumerate(batch[: self._slots]):
            for part, array in enumerate(map(np.asarray, randomness.leaves(slot))):
                if number == 0:
                    self._shapes[part].add(array.shape[1:])
                if array.dtype.kind in "biuf" and array.size:
                    rows = array.reshape(len(array), -1)
                    rows = rows if most is None else rows[:, :: 1 + rows.shape[1] // most]
                    numbers = np.isfinite(rows)
                    odd[number] |= (number != 1) & ~numbers.all(axis=1)  # a loss may leave out a y that is missing
                    if number == 1 and array.ndim >= _AXES_OF_MASKS:
                        self._pixels, self._ones = self._pixels + rows.size, self._ones + int((rows == 1).sum())
                        self._soft += int(((rows > 0) & (rows < 1)).sum())
                    if number == 1 and len(self._classes) < _MOST_CLASSES:
                        self._classes |= {*np.unique(rows[:, :: 1 + rows.shape[1] // _MOST_PIXELS]).tolist()}
                    if number == 0 and array.ndim == _AXES_OF_IMAGES and array.shape[-1] == _COLOURS:
                        step = 1 if most is None else 1 + math.isqrt(array[0].size // most)
                        means = array[:, ::step, ::step].mean(axis=(1, 2), dtype=np.float64)
                        self._redder += (means[:, 0] - means[:, -1]).tolist()
                    some = np.append(rows[numbers].astype(np.float64), self._ranges.get(number, ())[:2])
                    is_whole = self._ranges.get(number, (0, 0, True))[2] and bool((some % 1 == 0).all())
                    if some.size:
                        self._ranges[number] = float(some.min()), float(some.max()), is_whole
        self._looked_at += np.size(odd[0])
        self._odd.update({number: int(np.sum(each)) for number, each in enumerate(odd)})

    def notes(self, model: Any) -> list[str]:
        """Return the faults of the values as notes of a verification; a model, if one is given, must fit them, too."""
        said = itertools.chain(self.no_numbers(), self.many_shapes(), () if model is None else self.misfits(model))
        return [each.rstrip(".") for each in said]

    def no_numbers(self) -> Iterator[str]:
        """Tell of samples with values that are NaN or infinite, and of weights that leave out all of them."""
        for number, what, why in ((0, "x", _BLANK), (2, "the sample weight", "")):
            if self._odd[number]:
                yield (
                    f"{what} of {self._odd[number]:,} of {self._looked_at:,} samples that were looked at has values "
                    "that are no numbers (NaN or infinite). Unless the model replaces them, so have the loss and all "
                    f"weights after it.{why}"
                )
        if self._ranges.get(2, (1.0,))[:2] == (0.0, 0.0):
            yield f"The sample weights of all {self._looked_at:,} samples that were looked at are 0: nothing is learnt."

    def many_shapes(self) -> Iterator[str]:
        """Tell of samples of several shapes, for each of which some frameworks compile the model."""
        shapes = sorted(max(self._shapes.values(), key=len, default=()))
        if len(shapes) > _FEW_SHAPES:
            yield (
                f"x has {len(shapes):,} shapes, such as {shapes[0]} and {shapes[-1]}: JAX compiles the model for each, "
                "as TensorFlow does with jit_compile, which is usual on GPUs. Pad to a few sizes."
            )

    def unlike(self, validation: Values) -> Iterator[str]:
        """Tell of images that the validation has as bytes, and the training has scaled, or the other way round."""
        if 0 in self._ranges and 0 in validation._ranges:
            spans = [each._ranges[0][:2] for each in (self, validation)]
            scaled = [-_STANDARD <= low < high <= _STANDARD for low, high in spans]
            if scaled[0] != scaled[1] and any(low >= 0 and _HALF < high <= 2 * _HALF for low, high in spans):
                yield _SCALED_APART.format(*map(figure_text, (*spans[0], *spans[1])))
                return
        one, other = map(_sure_mean, (self._redder, validation._redder))
        if one * other < 0 and 2 / 3 <= -one / other <= 3 / 2:
            which = ("more", "less") if one > 0 else ("less", "more")
            yield _TURNED.format(*which, one=figure_text(abs(one)), other=figure_text(abs(other)))

    def is_whole(self, slot: int) -> bool:
        """Return False if values between whole numbers were seen, as mixed targets are."""
        return slot not in self._ranges or self._ranges[slot][2]

    def misfits(self, model: Any) -> Iterator[str]:
        """Tell of values that a model's first layers, or its loss, are not made for."""
        if 0 in self._ranges and not self._ranges[0][2]:
            low, high, _ = self._ranges[0]
            layers = [each for each in frameworks.layers(model) if type(each).__name__ == "Rescaling"]
            scales = [(each.name, each.scale) for each in layers if isinstance(each.scale, float | int)]
            once_more = [(name, scale) for name, scale in scales if abs(scale) <= _RESCALED and high - low <= _SMALL]
            for name, scale in once_more[:1]:
                yield _SCALED.format(low=figure_text(low), high=figure_text(high), name=name, scale=figure_text(scale))
        yield from self._not_prepared(model) if 0 in self._ranges else ()
        usual, own = sys.modules["keras"].Model, type(model)
        calls = own.train_step is usual.train_step or "compute_loss" in pickling.code_names(own.train_step.__code__)
        is_by_loss = calls and own.compute_loss is usual.compute_loss  # else what `compile` got may have no effect
        if 1 not in self._ranges or isinstance(model.loss, dict | list | tuple) or not is_by_loss:
            return
        low, high, is_whole = self._ranges[1]
        loss = sys.modules["keras"].losses.get(model.loss)
        name = getattr(loss, "name", getattr(loss, "__name__", ""))
        *_, outputs = getattr(model, "output_shape", None) or (None,)
        if name in _BINARY and not 0 <= low <= high <= 1:
            instead = _MASKS if high >= _HALF else _CLASSES if low == 0 else _TWO_CLASSES
            yield _NOT_BINARY.format(low=low, high=high, loss=name, instead=instead)
        is_soft = 0 < self._soft < min(self._pixels / 4, self._ones) and 0 <= low <= high <= 1  # and no image
        if is_soft and name in (*_BINARY, "categorical_crossentropy"):
            yield _SOFT.format(share=self._soft / self._pixels)
        if name != "sparse_categorical_crossentropy":
            return
        if not is_whole:
            yield _BETWEEN
        if isinstance(outputs, int) and not 0 <= low <= high < outputs:
            yield from self._no_class(outputs, getattr(loss, "ignore_class", None))

    def _no_class(self, outputs: int, ignored: int | None) -> Iterator[str]:
        low, high, is_whole = self._ranges[1]
        others = sorted(each for each in self._classes if each != ignored and not 0 <= each < outputs)
        if ignored is None:
            yield _NO_CLASS.format(low=low, high=high, outputs=outputs, last=outputs - 1)
        elif others and is_whole:
            shown = ", ".join(f"{each:g}" for each in others[:3])
            yield _NOT_IGNORED.format(others=shown, last=outputs - 1, ignored=ignored)

    def _not_prepared(self, model: Any) -> Iterator[str]:
        """Tell of values that a frozen network of `keras.applications`, the model's first layer, was not trained on."""
        low, high, _ = self._ranges[0]
        steps = {"Sequential": "layers", "Functional": "operations"}.get(type(model).__name__)  # else `call` tells

        def changes(step: Any) -> bool:
            layers = frameworks.layers(step) if hasattr(step, "weights") else [step]  # an op of Keras is no layer
            return any(not type(each).__name__.startswith(_NO_CHANGE) for each in layers)

        base: Any = next(filter(changes, getattr(model, steps)), None) if steps else None
        found = _PRETRAINED.match(getattr(base, "name", ""))
        if found is None or not base.weights or base.trainable_weights:
            return
        by_mean = found["by_mean"] is not None  # of x from 0 to 255, of which a mean is taken; else of x from -1 to 1
        if high <= _SMALL if by_mean else high > _SMALL:
            module = _MODULES.get(found[0], found[0])
            yield _NOT_PREPARED.format(low=figure_text(low), high=figure_text(high), name=base.name, module=module)


_BLANK = " A blank image that is divided by its own deviation has: `/ max(image.std(), 1e-6)`."
_FEW_SHAPES = 2  # of x, which compile soon
_STANDARD, _HALF = 4.0, 128  # the most of an image that was standardised; half of the values of a byte
_SCALED_APART = (
    "x of the training goes from {} to {}, but x of the validation from {} to {}: one of them is "
    "scaled, and the other is not, so that its figures mean nothing. Prepare both alike."
)
_AXES_OF_IMAGES, _COLOURS, _FEWEST_IMAGES = 4, 3, 16
_TURNED = (
    "Images of the training have {} in their first channel than in their last (by {one} in the mean), those of the "
    "validation {} (by {other}). Unless these show other scenes, one is RGB and the other BGR, which OpenCV reads: "
    "read both alike."
)
_RESCALED, _SMALL = 1 / 64, 2.0  # a factor for images of 0 to 255, and the range of those that were scaled before
_SCALED = (
    "x goes from {low} to {high}, and the model's layer `{name}` multiplies it by {scale} once more, so "
    "that all images look nearly alike to the model. Leave out one of the two."
)
_NO_CHANGE = ("InputLayer", "Random", "Resizing", "Sequential")  # of the range of x
_PRETRAINED = re.compile(
    r"mobilenet(v2)?(?=_)|inception_v3|inception_resnet_v2|xception|nasnet|resnet\d+v2|(?P<by_mean>resnet\d+|vgg1[69])"
)
_MODULES = {"mobilenetv2": "mobilenet_v2"}
_MODULES |= {f"resnet{depth}{end}": f"resnet{end and '_v2'}" for depth in (50, 101, 152) for end in ("", "v2")}
_NOT_PREPARED = (
    "x goes from {low} to {high}, and the frozen `{name}` gets it as it is. Weights of Keras were trained on "
    "other values: `keras.applications.{module}.preprocess_input` makes them from x of 0 to 255."
)
_BINARY = ("binary_crossentropy", "binary_focal_crossentropy")
_NOT_BINARY = (
    "y goes from {low:g} to {high:g}, but {loss} takes 0 to 1: such a loss means nothing, and falls below 0. {instead}."
)
_MASKS, _TWO_CLASSES = "Divide masks of 0 and 255 by 255", "If y are two classes, number them 0 and 1"
_CLASSES = "If y numbers classes, the model needs as many outputs, and the loss is sparse_categorical_crossentropy"
_AXES_OF_MASKS = 3  # at least
_SOFT = (
    "y are masks of 0 and 1, of which {share:.2%} of the values lie between: so does resizing, unless it is by the "
    'nearest pixel (method="nearest", cv2.INTER_NEAREST), and JPEG. If no edge is meant to be soft, resize so, and '
    "keep masks as PNG."
)
_BETWEEN = (
    "y has values between whole numbers, but is to number classes. Masks that are resized come to have them: resize by "
    'the nearest pixel (method="nearest", cv2.INTER_NEAREST).'
)
_MOST_CLASSES, _MOST_PIXELS = 4096, 65_536  # values of y, and of a mask in y, that are told apart
_NOT_IGNORED = (
    "y has values such as {others}, but the model's outputs are classes 0 to {last}, and its loss ignores {ignored}. "
    'Masks that are resized come to have them: resize by the nearest pixel (method="nearest", cv2.INTER_NEAREST), and '
    "keep masks as PNG."
)
_NO_CLASS = (
    "y goes from {low:g} to {high:g}, but the model's {outputs} outputs are classes 0 to {last}. Without an error, as "
    "on JAX and on GPUs, the loss is wrong, or NaN. Number the classes from 0, or give the model more outputs; "
    "SparseCategoricalCrossentropy(ignore_class=255) leaves out pixels of no class."
)
