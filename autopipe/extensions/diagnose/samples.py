"""What the samples of a watched training tell of it, whatever makes them: validation samples that are trained on,
targets that belong to other samples, epochs that are all alike.

Samples are compared by digests of some of their values, of as many batches as take a hundredth of the time. Random
changes of x hide all of this but the order of y.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, Final

from autopipe.measure import epochs
from autopipe.measure.epochs import ANOTHER_Y, MIXED, Sample, targets_held
from autopipe.measure.verify import Values
from autopipe.values import capital

_VALUES: Final = 1024  # of each array of a sample
_TIME_SHARE: Final = 0.01
_FIRST: Final = 4  # batches of an epoch whose order is compared
_FIRST_SHARE: Final = 0.05  # of the time, for these


class Samples:
    """The digests of a training's samples, by epoch, and of its validation's."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        drawn: bool = False,  # from several datasets, which may be in an order of classes that no shuffle changes
        has_y: bool = True,  # what follows x is its y, and not a part of a sample such as a pair's other image
        before: Set[bytes] = frozenset(),  # samples, as of `xs`, that the model was trained on earlier
    ) -> None:
        self._clock, self._began, self._spent = clock, clock(), 0.0
        self._epochs = list[list[tuple[Sample, ...]]]()  # of each epoch, the batches that were looked at
        self._firsts = list[list[tuple[Sample, ...]]]()  # of each epoch, its first batches
        self._batches = list[int]()  # of each epoch
        self._passes = list[tuple[float, int | None]]()  # of each epoch: its beginning, and which loader's it is
        self._trained = collections.Counter[int]()  # epochs with steps of a training, and how many were seen
        self._validations = list[list[tuple[Sample, ...]]]()  # of each validation, its batches; () if not looked at
        self._readable, self._drawn, self._has_y, self._before = True, drawn, has_y, before
        self._noted = 0.0  # seconds
        self.values, self._validation_values = Values(), Values()

    def epoch_began(self, loader: int | None = None) -> None:
        self._passes.append((self._clock(), loader))
        self._epochs.append([])
        self._firsts.append([])
        self._batches.append(0)

    def epoch_trains(self) -> None:
        self._trained[len(self._epochs) - 1] += 1

    def trained(self, batch: Any) -> None:
        if not self._epochs:
            self.epoch_began()
        self._batches[-1] += 1
        is_first = self._batches[-1] <= _FIRST
        if seen := self._looked(batch, self.values, always=is_first):
            self._epochs[-1].append(seen)
            self._firsts[-1] += [seen] * is_first

    def validation_began(self) -> None:
        self._validations.append([])

    def validated(self, batches: Any) -> Any:
        """Return batches of the validation, a list or an iterator, each looked at as those that are trained on."""

        def passed() -> Iterator[Any]:
            for batch in batches:
                always, values = len(self._validations[-1]) < _FIRST, self._validation_values
                self._validations[-1].append(self._looked(batch, values, always=always))
                yield batch

        return list(passed()) if isinstance(batches, list) else passed()

    def _looked(self, batch: Any, values: Values, *, always: bool = False) -> tuple[Sample, ...]:
        now = self._clock()
        share = _FIRST_SHARE if always else _TIME_SHARE
        if not self._readable or self._spent > share * (now - self._began) > 0:
            return ()
        try:
            slots = batch if isinstance(batch, tuple | list) else [batch]
            found = epochs.samples(slots if self._has_y else [slots], _VALUES)
            if self._noted <= share * (now - self._began):
                noting = self._clock()
                values.note(slots, _VALUES)
                took = self._clock() - noting
                self._noted, self._spent = self._noted + took, self._spent - took  # of a time of its own
            return found
        except (TypeError, ValueError, RuntimeError, AttributeError):  # of no arrays, or of arrays in several places
            self._readable = False
            return ()
        finally:
            self._spent += self._clock() - now

    def said(self) -> Iterator[str]:
        """Yield what is wrong or worth to know, in sentences, and look at no more."""
        self._readable = False
        yield from self.values.no_numbers()
        yield from self.values.unlike(self._validation_values)
        yield from self.leaks()
        yield from self.other_validations()
        yield from self.other_targets()
        yield from self.same_order()
        yield from self.hardly_mixed()
        yield from self.few_targets()

    @property
    def xs(self) -> set[bytes]:
        """The digests of the samples that were trained on."""
        return _xs(*self._epochs)

    def leaks(self) -> Iterator[str]:
        validated = _xs(*self._validations)
        for trained, said in ((self.xs, _LEAKS), (self._before - self.xs, _LEAKED)):
            both = len(validated & trained)
            if both > max(1, ANOTHER_Y * len(validated)):
                yield said.format(both, len(validated))

    def other_validations(self) -> Iterator[str]:
        """Tell of validations in a row without a sample in common; changes at random leave the targets as they are."""
        pairs = [pair for pair in itertools.pairwise(self._validations) if all(each and all(each) for each in pair)]
        if not pairs or not all(_xs(one).isdisjoint(_xs(other)) for one, other in pairs):
            return
        ys = [[collections.Counter(y for batch in each for _, y in batch) for each in pair] for pair in pairs]
        each_of = f"Each of {1 + len(pairs)} validations had"
        if all(one != other for one, other in ys):
            yield (
                f"{each_of} other samples than the one before, so that their figures tell as much of the samples as of "
                "the model: with validation_steps= Keras goes on where it ended, and random changes of x and y make "
                "others, too. Give it all batches, or a `take` of them and no steps, without random changes."
            )
        elif all(one == other and len(one) > 1 for one, other in ys):
            yield (
                f"{each_of} the y of the one before, and none of its x: random changes, such as augmentation, are made "
                "to the validation, too, unless it drew other samples. Make its data without them, so that its figures "
                "tell of the model alone."
            )

    def tested(self, loops: Iterable[tuple[str, Samples]]) -> Iterator[str]:
        """Tell of samples that loops, by place, read without a step of the training, as a validation does."""
        if not self._tells:
            return
        began, loaders = self._passes[min(self._trained)][0], {self._passes[number][1] for number in self._trained}
        known = _xs(*(self._epochs[number] for number in self._trained))
        for place, each in loops:
            tests = [
                number
                for number, (at, loader) in enumerate(each._passes)
                if number not in each._trained and at > began and (loader is None or loader not in loaders)
            ]
            seen = _xs(*(each._epochs[number] for number in tests))
            both = len(seen & known)
            if both > max(1, ANOTHER_Y * len(seen)):
                yield (
                    f"{both:,} of {len(seen):,} samples that {place} reads without a step of the training are trained "
                    "on, too. If that is a validation, its figures are better than those of new data: split first; "
                    "copy and shuffle within each part."
                )
            firsts = [each._firsts[number] for number in tests if len(each._firsts[number]) == _FIRST]
            anew = len(firsts) > 1 and all(_xs(one).isdisjoint(_xs(two)) for one, two in itertools.pairwise(firsts))
            if anew and epochs.same_targets(firsts) is not None:
                yield (
                    f"Each of {len(firsts)} passes of {place} without a step of the training had the y of the one "
                    "before, and none of its x: random changes, such as augmentation, are made there, too. A "
                    "validation is better without: give it a dataset of its own, as parts of `random_split` share one "
                    "and its transform."
                )
            if tests and each is not self:
                yield from self.values.unlike(each.values)

    @property
    def _tells(self) -> bool:
        """Whether each epoch that trains is known: of a step that is compiled, as by tf.function, only the first is."""
        return bool(self._trained) and all(2 * seen >= self._batches[number] for number, seen in self._trained.items())

    def copies(self, workers: int, *, whole: bool = True) -> Iterator[str]:
        """Tell of samples that each worker reads; `whole`: a pass comes to its end."""
        for looked in (self._firsts, *[[self._fullest]] * whole):  # workers may have orders of their own
            every = [collections.Counter(itertools.chain(*batches)) for batches in looked if len(batches) > 1]
            seen, distinct = sum(sum(each.values()) for each in every), sum(map(len, every))
            more = sum(count for each in every for count in each.values() if count > workers)  # drawn at random
            if more <= seen / 8 and (said := epochs.copies(seen, distinct, workers)) is not None:
                yield f"{said}."
                return

    @property
    def _fullest(self) -> list[tuple[Sample, ...]]:
        """The batches of the epoch of which most was looked at."""
        return max(self._epochs, key=len, default=[])

    def other_targets(self) -> Iterator[str]:
        yield from _sentence(epochs.another_y(self._epochs))

    def same_order(self, anew: str = "") -> Iterator[str]:
        """Tell of epochs that begin with the same batches in the same order, and what would order them `anew`."""
        which = sorted(self._trained) if self._tells else range(len(self._firsts))
        first, *others = [batches for batches in map(self._firsts.__getitem__, which) if batches] or [[]]
        others = [batches for batches in others if len(batches) == len(first)]  # the last epoch may just have begun
        if len({*first}) < 2 or not others:  # batches that are all alike have no order
            return
        if all(batches == first for batches in others):
            told = f"Each of {1 + len(others)} epochs begins with the same batches in the same order"
            yield f"{told}: nothing shuffles them anew{anew}."
        elif not self._drawn:
            yield from _sentence(epochs.same_targets([first, *others]))

    def overlapping(self) -> Iterator[str]:
        yield from map(capital, _sentence(epochs.overlapping(self._fullest)))

    def hardly_mixed(self) -> Iterator[str]:
        yield from map(capital, _sentence(epochs.hardly_mixed(self._fullest, drawn=self._drawn)))

    def few_targets(self) -> Iterator[str]:
        """Tell of a validation that has far fewer targets than if it had been drawn from all samples."""
        whole = [tuple(itertools.chain(*batches)) for batches in self._validations if batches and all(batches)]
        trained = tuple(itertools.chain(*self._fullest))
        # MixUp and CutMix make targets for the training that no validation has.
        held = targets_held([whole[0], trained]) if whole and self.values.is_whole(1) else None
        if held is not None and held[0][0] <= MIXED * held[1][0]:
            yield (
                f"The validation has {held[0][0]} different y, but {held[1][0]:.1f} if it were drawn from all samples. "
                "One end of sorted data, as `validation_split` takes it, has few classes, which are trained on less or "
                "not at all. Shuffle x and y together, then split."
            )


_LEAKS: Final = (
    "{:,} of {:,} validation samples that were looked at are trained on, too, so that its figures are better than "
    "those of new data. Split first; copy and shuffle within each part."
)
_LEAKED: Final = (
    "{:,} of {:,} validation samples that were looked at were trained on by the same model in an earlier `fit`, as of "
    "another fold, so that its figures are better than those of new data. Make a new model for each fold."
)


def _sentence(said: str | None) -> Iterator[str]:
    if said is not None:
        yield f"{said}."


def _xs(*passes: list[tuple[Sample, ...]]) -> set[bytes]:
    return {x for batches in passes for batch in batches for x, _ in batch}
