"""What the samples of a watched training tell of it, whatever makes them: validation samples that are trained on,
targets that belong to other samples, epochs that are all alike.

Samples are compared by digests of some of their values, of as many batches as take a hundredth of the time. Random
changes of x hide all of this but the order of y.
"""

from __future__ import annotations

import collections
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from autopipe import frameworks
from autopipe.measure import epochs, randomness
from autopipe.measure.epochs import ANOTHER_Y, MIXED, Sample, targets_held
from autopipe.values import capital

_VALUES: Final = 1024  # of each array of a sample
_TIME_SHARE: Final = 0.01
_FIRST: Final = 4  # batches of an epoch whose order is compared
_FIRST_SHARE: Final = 0.05  # of the time, for these


class Samples:
    """The digests of a training's samples, by epoch, and of its validation's."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, *, drawn: bool = False, has_y: bool = True
    ) -> None:
        """`drawn`: from several datasets, which may be in an order of classes that no shuffle changes; `has_y`: what
        follows x is its y, and not a part of a sample such as a pair's other image.
        """
        self._clock, self._began, self._spent = clock, clock(), 0.0
        self._epochs = list[list[tuple[Sample, ...]]]()  # of each epoch, the batches that were looked at
        self._firsts = list[list[tuple[Sample, ...]]]()  # of each epoch, its first batches
        self._batches = 0  # of the epoch that goes on
        self._validations = list[list[tuple[Sample, ...]]]()  # of each validation, its batches; () if not looked at
        self._readable, self._drawn, self._has_y = True, drawn, has_y
        self._noted = 0.0  # seconds
        self._looked_at, self._odd = 0, 0  # samples, and those of them with values that are no numbers
        self._ranges: dict[int, tuple[float, float, bool]] = {}  # of x and y: least, largest, and whether all are whole

    def epoch_began(self) -> None:
        self._epochs.append([])
        self._firsts.append([])
        self._batches = 0

    def trained(self, batch: Any) -> None:
        """Look at a batch that is trained on, if that takes no time that matters."""
        if not self._epochs:
            self.epoch_began()
        self._batches += 1
        is_first = self._batches <= _FIRST
        seen = self._looked(batch, always=is_first)
        if seen:
            self._epochs[-1].append(seen)
        if is_first and seen:
            self._firsts[-1].append(seen)

    def validation_began(self) -> None:
        self._validations.append([])

    def validated(self, batches: Any) -> Any:
        """Return batches of the validation, a list or an iterator, each looked at as those that are trained on."""

        def passed() -> Iterator[Any]:
            for batch in batches:
                self._validations[-1].append(self._looked(batch, always=len(self._validations[-1]) < _FIRST))
                yield batch

        return list(passed()) if isinstance(batches, list) else passed()

    def _looked(self, batch: Any, *, always: bool = False) -> tuple[Sample, ...]:
        now = self._clock()
        share = _FIRST_SHARE if always else _TIME_SHARE
        if not self._readable or self._spent > share * (now - self._began) > 0:
            return ()
        try:
            slots = batch if isinstance(batch, tuple | list) else [batch]
            found = epochs.samples(slots if self._has_y else [slots], _VALUES)
            if self._noted <= _TIME_SHARE * (now - self._began):
                self._note_values(slots[:2])
            return found
        except (TypeError, ValueError, RuntimeError, AttributeError):  # of no arrays, or of arrays in several places
            self._readable = False
            return ()
        finally:
            self._spent += self._clock() - now

    def _note_values(self, slots: Sequence[Any]) -> None:
        began, odd = self._clock(), np.False_
        for number, slot in enumerate(slots):
            for array in map(np.asarray, randomness.leaves(slot)):
                if array.dtype.kind in "biuf" and array.size:
                    rows = array.reshape(len(array), -1)
                    rows = rows[:, :: 1 + rows.shape[1] // _VALUES]
                    numbers = np.isfinite(rows)
                    odd |= (number == 0) & ~numbers.all(axis=1)  # a loss may leave out a y that is missing
                    some = np.append(rows[numbers].astype(np.float64), self._ranges.get(number, ())[:2])
                    is_whole = self._ranges.get(number, (0, 0, True))[2] and bool((some % 1 == 0).all())
                    self._ranges[number] = float(some.min()), float(some.max()), is_whole
        self._looked_at, self._odd = self._looked_at + np.size(odd), self._odd + int(np.sum(odd))
        took = self._clock() - began
        self._noted, self._spent = self._noted + took, self._spent - took  # of a time of its own

    def said(self) -> Iterator[str]:
        """Yield what is wrong or worth to know, in sentences, and look at no more."""
        self._readable = False
        yield from self.no_numbers()
        yield from self.leaks()
        yield from self.other_validations()
        yield from self.other_targets()
        yield from self.same_order()
        yield from self.hardly_mixed()
        yield from self.few_targets()

    def no_numbers(self) -> Iterator[str]:
        """Tell of samples with values that are NaN or infinite."""
        if self._odd:
            yield (
                f"x of {self._odd:,} of {self._looked_at:,} samples that were looked at has values that are no numbers "
                "(NaN or infinite), and so have the loss and all weights after it. A blank image that is divided by "
                "its own deviation has: `/ max(image.std(), 1e-6)`."
            )

    def misfits(self, model: Any) -> Iterator[str]:
        """Tell of values that a model's first layers, or its loss, are not made for."""
        if 0 in self._ranges and not self._ranges[0][2]:
            low, high, _ = self._ranges[0]
            layers = [each for each in frameworks.layers(model) if type(each).__name__ == "Rescaling"]
            scales = [(each.name, each.scale) for each in layers if isinstance(each.scale, float | int)]
            once_more = [(name, scale) for name, scale in scales if abs(scale) <= _RESCALED and high - low <= _SMALL]
            for name, scale in once_more[:1]:
                yield _SCALED.format(low=low, high=high, name=name, scale=scale)
        if 1 not in self._ranges or isinstance(model.loss, dict | list | tuple):
            return
        low, high, is_whole = self._ranges[1]
        loss = sys.modules["keras"].losses.get(model.loss)
        name = getattr(loss, "name", getattr(loss, "__name__", ""))
        *_, outputs = getattr(model, "output_shape", None) or (None,)
        if name in _BINARY and not 0 <= low <= high <= 1:
            yield _NOT_BINARY.format(low=low, high=high, loss=name)
        if name != "sparse_categorical_crossentropy":
            return
        if not is_whole:
            yield _BETWEEN
        if isinstance(outputs, int) and not 0 <= low <= high < outputs and getattr(loss, "ignore_class", None) is None:
            yield _NO_CLASS.format(low=low, high=high, outputs=outputs, last=outputs - 1)

    def leaks(self) -> Iterator[str]:
        trained = {x for batches in self._epochs for batch in batches for x, _ in batch}
        validated = {x for batches in self._validations for batch in batches for x, _ in batch}
        both = len(validated & trained)
        if both > max(1, ANOTHER_Y * len(validated)):
            yield (
                f"{both:,} of {len(validated):,} validation samples that were looked at are trained on, too, so "
                "that its figures are better than those of new data. Split first; copy and shuffle within each part."
            )

    def other_validations(self) -> Iterator[str]:
        """Tell of validations one after the other that have neither a sample nor the targets in common: changes at
        random alone leave the targets as they are.
        """
        looked = [[*itertools.chain(*batches)] if batches and all(batches) else None for batches in self._validations]
        pairs = [(one, other) for one, other in itertools.pairwise(looked) if one is not None and other is not None]
        xs = [({x for x, _ in one}, {x for x, _ in other}) for one, other in pairs]
        if not pairs or not all(one.isdisjoint(other) for one, other in xs):
            return
        ys = [[collections.Counter(y for _, y in each) for each in pair] for pair in pairs]
        if all(one != other for one, other in ys):
            yield (
                f"Each of {1 + len(pairs)} validations had other samples than the one before, so that their figures "
                "tell as much of the samples as of the model: with validation_steps= Keras goes on where it ended, and "
                "random changes of x and y make others, too. Give it all batches, or a `take` of them and no steps, "
                "without random changes."
            )
        elif all(one == other and len(one) > 1 for one, other in ys):
            yield (
                f"Each of {1 + len(pairs)} validations had the y of the one before, and none of its x: random changes, "
                "such as augmentation, are made to the validation, too, unless it drew other samples. Make its data "
                "without them, so that its figures tell of the model alone."
            )

    def copies(self, workers: int) -> Iterator[str]:
        """Tell of samples that come once from each of several workers."""
        every = [collections.Counter(itertools.chain(*batches)) for batches in self._firsts if len(batches) > 1]
        seen, distinct = sum(sum(each.values()) for each in every), sum(map(len, every))
        yield from _sentence(epochs.copies(seen, distinct, workers))

    def other_targets(self) -> Iterator[str]:
        """Tell of samples that come again with another y."""
        yield from _sentence(epochs.another_y(self._epochs))

    def same_order(self) -> Iterator[str]:
        """Tell of epochs that begin with the same batches in the same order."""
        first, *others = [batches for batches in self._firsts if batches] or [[]]
        others = [batches for batches in others if len(batches) == len(first)]  # the last epoch may just have begun
        if len(first) < 2 or not others:
            return
        if all(batches == first for batches in others):
            told = f"Each of {1 + len(others)} epochs begins with the same batches in the same order"
            yield f"{told}: nothing shuffles them anew."
        elif not self._drawn:
            yield from _sentence(epochs.same_targets([first, *others]))

    def hardly_mixed(self) -> Iterator[str]:
        """Tell of data that are sorted by y, in the epoch of which most was looked at."""
        said = epochs.hardly_mixed(max(self._epochs, key=len, default=[]), drawn=self._drawn)
        yield from map(capital, _sentence(said))

    def few_targets(self) -> Iterator[str]:
        """Tell of a validation that has far fewer targets than if it had been drawn from all samples."""
        whole = [tuple(itertools.chain(*batches)) for batches in self._validations if batches and all(batches)]
        trained = tuple(itertools.chain(*max(self._epochs, key=len, default=[])))
        held = targets_held([whole[0], trained]) if whole else None
        if held is not None and held[0][0] <= MIXED * held[1][0]:
            yield (
                f"The validation has {held[0][0]} different y, but {held[1][0]:.1f} if it were drawn from all samples. "
                "`validation_split` takes the last samples as they stand: of sorted data those of the last classes, "
                "which are trained on less or not at all. Shuffle x and y together, then split."
            )


_RESCALED, _SMALL = 1 / 64, 2.0  # a factor for images of 0 to 255, and the range of those that were scaled before
_SCALED = (
    "x goes from {low:.3g} to {high:.3g}, and the model's layer `{name}` multiplies it by {scale:.3g} once more, so "
    "that all images look nearly alike to the model. Leave out one of the two."
)
_BINARY = ("binary_crossentropy", "binary_focal_crossentropy")
_NOT_BINARY = (
    "y goes from {low:g} to {high:g}, but {loss} takes 0 to 1: such a loss means nothing, and falls below 0. Divide "
    "masks of 0 and 255 by 255."
)
_BETWEEN = (
    "y has values between whole numbers, but is to number classes. Masks that are resized come to have them: resize by "
    'the nearest pixel (method="nearest", cv2.INTER_NEAREST).'
)
_NO_CLASS = (
    "y goes from {low:g} to {high:g}, but the model's {outputs} outputs are classes 0 to {last}. Without an error, as "
    "on JAX and on GPUs, the loss is wrong, or NaN. Number the classes from 0, or give the model more outputs; "
    "SparseCategoricalCrossentropy(ignore_class=255) leaves out pixels of no class."
)


def _sentence(said: str | None) -> Iterator[str]:
    if said is not None:
        yield f"{said}."
