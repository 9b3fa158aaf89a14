"""What two epochs of a user's own dataset tell about its training: samples of another part of the data, targets that
belong to other samples, epochs that are all alike; and what asking for a batch changes.

Samples are compared by digests. Random changes hide which sample is which; tf.data can be read without them, other
datasets cannot, and then the answer says so. `verify` calls this module; random numbers that repeat are in
`randomness`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import AutopipeError
from autopipe.frameworks import grain, tfdata
from autopipe.measure import randomness
from autopipe.measure.randomness import SHAPE_BYTES
from autopipe.pipeline.batching import pickling, stream, torch_batches
from autopipe.pipeline.batching.datasets import copied, counts_on, forks, has_batches, race_of_workers
from autopipe.pipeline.wrap import WrappedData

Sample: TypeAlias = tuple[bytes, bytes]  # digests of x, and of y with the weights
Epoch: TypeAlias = Sequence[tuple[Sample, ...]]  # batches, each as its samples

_SAME: Final = 0.5  # of the samples of an epoch came in the one before, if random changes do not hide them
ANOTHER_Y: Final = 0.01
"""The share of samples from which on another y, or samples that are in both of two parts, are no chance."""
_SECONDS: Final = 10.0  # for reading a dataset anew, and for asking it out of turn
MANY_ORDERS: Final = 100  # of whole batches, one of which chance hardly gives again
UNLIKE: Final = 8  # samples with other targets than the most frequent one, by which an order is told
MIXED: Final = 0.75  # of the targets that a batch would hold by chance

LOST_CACHE: Final = (
    "`cache()` stands before `take()`, is never read to its end, and so is thrown away by TensorFlow in each epoch: "
    "take(...) first, then cache()"
)

MIXED_EPOCHS: Final = (
    "`shuffle` follows `repeat`: the end of an epoch and the begin of the next one are mixed, so that an epoch of "
    "steps_per_epoch= steps can have a sample twice and lack another. Shuffle first, then repeat"
)

SHUFFLED_BATCHES: Final = (
    "`shuffle` comes after `batch`: batches change their places, but each has the same samples in every epoch. Shuffle "
    "first, then batch"
)

CACHED: Final = {
    "endless": "`cache()` stands behind `repeat()`, which has no end: it is never read, and keeps all that ever comes, "
    "until memory or the disk is full. Put it before",
    "lists": "`cache()` stands before anything is read or decoded, and keeps only what is in memory anyway, such as "
    "paths: it belongs behind the `map` that reads, if memory has room",
    "changes": "every epoch has the same random changes, which `cache()` keeps with the samples, as `snapshot()` does: "
    "put it before them",
    "order": "every epoch has the same batches: `cache()` keeps the order of the `shuffle` before it, as `snapshot()` "
    "does. Cache, then shuffle, then batch; with batch_size=None `image_dataset_from_directory` gives single images",
}


def samples(batch: Iterable[Any], most: int | None = None) -> tuple[Sample, ...]:
    """Return the digests of each sample of a batch (x, y, weights); `most` as in `randomness.digests`."""
    x, *others = (slot for slot in batch if slot is not None)
    first = randomness.digests([x], most)
    return tuple(
        zip(first, randomness.digests(others, most, about=True) if others else [b""] * len(first), strict=True)
    )


@dataclasses.dataclass(slots=True)
class Findings:
    """What is wrong with a dataset, and what is worth to know, in sentences."""

    faults: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    is_pass: bool = True  # an epoch holds each sample once
    hidden: bool = False  # random changes make another sample of each, so that none is seen twice
    unchanged: bool = False  # the samples were read without their random changes


def look(data: WrappedData, first: Epoch, second: Epoch, *, whole: bool, has_y: Callable[[], bool]) -> Findings:
    """Return the faults and notes of a dataset by two of its epochs, which are complete if `whole`. The function's
    defaults make the dataset once more, and it is read again. `has_y()`: what follows x is its y.
    """
    found = Findings(is_pass=data.is_pass)
    tensorflow = sys.modules.get("tensorflow")
    ends = None if tensorflow is None else randomness.watch_maps(found.faults.append, tensorflow)
    dataset = data.make(data.defaults).dataset
    if ends is not None:
        ends()
    fixed = _asked(data, dataset, found)
    _prepared(data, dataset, first, found)
    if made_by(dataset, "FilterDataset"):
        until, iterator = time.monotonic() + 3.0, iter(dataset)
        with contextlib.suppress(sys.modules["tensorflow"].errors.OpError):  # behind the samples that were asked for
            collections.deque(itertools.takewhile(lambda _: time.monotonic() < until, iterator), maxlen=0)
        found.notes += filter(None, [tfdata.thrown_away(iterator)])
    if randomness.is_passed_once(dataset):
        every = list(itertools.chain(*first))
        found.faults += filter(None, [copies(len(every), len(set(every)), getattr(dataset, "num_workers", 0))])
    if found.faults and data.by_index and whole and 0 < (count := sum(map(len, first))) < len(data):
        found.notes.append(f"an epoch gave {count:,} of {len(data):,} samples")
    if found.faults or not first or not second:
        return found
    as_read = first
    if whole and made_by(dataset, "CacheDataset") and _is_kept(data, first, second):
        found.faults.append(CACHED["changes"])
        return found
    if _new(first, second) and hasattr(dataset, "element_spec"):
        first, second = _without_changes(data, dataset, first, second)
        found.unchanged = first is not as_read
    found.hidden = data.is_pass and len(_new(first, second)) > (1 - _SAME) * len(_xs(second)) and not fixed
    if not data.is_pass:
        _no_pass(first, second, found, is_sure=bool(fixed))
    found.faults += [said] if (said := another_y([first, second])) and has_y() else []
    differ = list(first) != list(second)
    found.notes += filter(None, [hardly_mixed(first, drawn=draws_parts(dataset))] if differ else [])
    if data.is_pass and whole:
        _other_samples(data, dataset, first, second, found, is_sure=bool(fixed))
        _alike(dataset, first, second, found)
    return found


def overlapping(batches: Epoch) -> str | None:
    """Say that batches of a dataset with an index share most of their samples with others, if so."""
    shared = collections.Counter[tuple[int, int]]()
    places = collections.defaultdict[bytes, list[int]](list)
    for number, batch in enumerate(batches[:64]):
        for x in {x for x, _ in batch}:
            shared.update((other, number) for other in places[x])
            places[x].append(number)
    most = max(shared.values(), default=0)
    size = max(map(len, batches), default=0)
    if not 0.75 * size <= most < size or len(places) < 4 * size:  # few samples are drawn together by chance
        return None
    return (
        f"batches share {most} of {size} samples with others: if `__getitem__` cuts a list, it begins at the index "
        "times the batch size, `files[index * size : (index + 1) * size]`"
    )


def _xs(epoch: Epoch) -> set[bytes]:
    return {x for batch in epoch for x, _ in batch}


def _new(first: Epoch, second: Epoch) -> set[bytes]:
    return _xs(second) - _xs(first)


def _without_changes(data: WrappedData, dataset: Any, first: Epoch, second: Epoch) -> tuple[Epoch, Epoch]:
    """Read a `tf.data.Dataset` whose random ops give all samples the same numbers; if that does not help, as it was."""
    if made_by(dataset, "FilterDataset", "DirectedInterleaveDataset"):  # random numbers choose its samples
        return first, second
    with tfdata.constant_numbers():
        epochs = _read_anew(data, [len(first), len(second)])
    if epochs is None:
        return first, second
    seen = len(_xs(epochs[1])) - len(_new(epochs[0], epochs[1]))
    helps = seen > len(_xs(second)) - len(_new(first, second))
    is_of_changes = len(_xs(epochs[0])) > 0.1 * sum(map(len, epochs[0]))  # else random numbers make the samples
    return (epochs[0], epochs[1]) if helps and is_of_changes else (first, second)


def _read_anew(data: WrappedData, counts: Sequence[int]) -> list[Epoch] | None:
    """Make a dataset anew, and read so many batches of its epochs; None if that takes long."""
    made, until, found = data.make(data.defaults), time.monotonic() + _SECONDS, list[Epoch]()
    for count in counts:
        batches = list[tuple[Sample, ...]]()
        with contextlib.closing(made.epoch("arrays")) as elements:
            for element in itertools.islice(elements, count):
                parts = data.like.checked(element, "a batch")
                batches.append(samples(parts if data.structure is None else data.structure.packed(parts)))
                if time.monotonic() > until:
                    return None
        found.append(batches)
    return found


def _is_kept(data: WrappedData, first: Epoch, second: Epoch) -> bool:
    """Return True if both epochs have the same samples, and those of the dataset made anew have other x, but not y."""
    if _new(first, second) or (anew := _read_anew(data, [len(first)])) is None:
        return False
    targets = [collections.Counter(y for _, y in itertools.chain(*epoch)) for epoch in (first, anew[0])]
    return len(_new(first, anew[0])) > _SAME * len(_xs(first)) and targets[0] == targets[1]


def _no_pass(first: Epoch, second: Epoch, found: Findings, *, is_sure: bool) -> None:
    total, distinct = sum(map(len, first)), len(set(itertools.chain(*first)))
    said = f"an epoch is the batches that `steps` counts: {distinct:,} of its {total:,} samples are distinct"
    said += ", but for random changes" * found.unchanged
    if distinct == total and len(_new(first, second)) == len(_xs(second)):
        said += ", and the next epoch has others" + "; random changes would hide samples that come twice" * (
            not is_sure
        )
    found.notes.append(said)


def another_y(epochs: Iterable[Epoch]) -> str | None:
    """Say that samples come again with another y in a later epoch, if so; a new y of the shape of x is a view of it."""
    known, changed, again = dict[bytes, bytes](), 0, 0
    for epoch in (list(itertools.chain(*batches)) for batches in epochs):
        count = collections.Counter(x for x, _ in epoch)
        # Equal samples, such as blank ones, have any y. One that is padded as its batch needs has several shapes.
        once = {x + y[:SHAPE_BYTES]: y for x, y in epoch if count[x] == 1}
        shared = known.keys() & once.keys()
        ys, others = set(known.values()), {x: once[x] for x in shared if known[x] != once[x]}
        again += len(shared)
        changed += sum(y in ys or y[:SHAPE_BYTES] != x[:SHAPE_BYTES] for x, y in others.items())
        known |= once
    if changed <= max(1, ANOTHER_Y * again):
        return None
    return (
        f"{changed:,} of {again:,} samples that came again had another y than before, for the same x: x and y "
        "are shuffled apart, or y is drawn anew. Put them together, then shuffle"
    )


def _other_samples(
    data: WrappedData, dataset: Any, first: Epoch, second: Epoch, found: Findings, *, is_sure: bool
) -> None:
    """Tell of a second epoch with other samples than the first, more than a last, short batch holds."""
    new, lost = len(_new(first, second)), len(_new(second, first))
    if new < data.batch_size:
        return
    said = f"the second epoch has {new:,} samples that the first had not, and lacks {lost:,}"
    if tfdata.splits_anew(dataset):
        said = "each epoch has other samples" if new == len(_xs(second)) else said
        found.faults.append(
            f"{said}: `take`, `skip` or `shard` follows a `shuffle` that gives another order in each epoch. If they "
            "split training from validation, each comes to have the samples of the other: "
            "shuffle(..., reshuffle_each_iteration=False) before the split"
        )
        return
    if found.hidden or len({x[:SHAPE_BYTES] for x in _xs(first)}) > 1:  # padding makes other samples, too
        return
    why = "" if is_sure else ", or random changes make other samples of them"
    found.notes.append(
        f"{said}{why}. If this is one part of a split, it trains on samples of the other: split once, then shuffle"
    )


def _alike(dataset: Any, first: Epoch, second: Epoch, found: Findings) -> None:
    if len(first) < 2:  # a single batch has no order
        return
    frame = getattr(dataset, "gi_frame", None)  # of a generator, which may read a dataset that has the hook
    own = {hook(each) for each in (dataset, *(frame.f_locals.values() if frame else ()))}
    if sorted(first) == sorted(second):
        order = "in the same order" if list(first) == list(second) else "in another order"
        found.notes.append(
            f"the samples of each of {len(first):,} batches are the same in both epochs, which have them {order}: "
            "right for a validation; a training is better shuffled"
            + "".join(f". `{name}` has no effect on them" for name in sorted(own) if name)
            + f". {grain.ORDERS_ANEW}" * grain.is_grain(dataset)
            + f". {SHUFFLED_BATCHES}" * tfdata.shuffles_batches(dataset)
        )
        return
    said = [same_targets([first, second])] if found.hidden and not draws_parts(dataset) else []
    found.notes += filter(None, [*said, orders_nothing(dataset)])


def same_targets(epochs: Sequence[Epoch]) -> str | None:
    """Say that the targets of epochs come in one order, if so and if there are several."""
    targets, *others = [[y for _, y in itertools.chain(*epoch)] for epoch in epochs]
    usual = max(collections.Counter(targets).values(), default=0)
    if len(targets) - usual < UNLIKE or any(each != targets for each in others):
        return None
    batches = collections.Counter(tuple(y for _, y in batch) for batch in epochs[0])
    orders = math.factorial(batches.total()) / math.prod(map(math.factorial, batches.values()))  # which y tells apart
    if orders ** len(others) < MANY_ORDERS:
        return None
    return f"y comes in the same order in each of {len(epochs)} epochs: the samples are not shuffled"


def draws_parts(dataset: Any) -> bool:
    """Return True for a `tf.data.Dataset` that is drawn from several, as by `sample_from_datasets`."""
    return made_by(dataset, "DirectedInterleaveDataset")


def hardly_mixed(batches: Epoch, *, drawn: bool = False) -> str | None:
    """Say that batches hold far fewer targets than chance would give them, if so; `drawn`: from several datasets."""
    if len(batches) < 6 or (held := targets_held(batches)) is None:
        return None
    here, chance = (float(np.mean(each)) for each in held)
    if here > MIXED * chance:
        return None
    counts = [collections.Counter(y for _, y in batch) for batch in batches]
    often = collections.Counter(itertools.chain(*(each.values() for each in counts)))
    usual, again = max(often.values()), sum(map(len, counts)) > len(set[bytes]().union(*counts))
    if again and min(map(len, counts)) > 1 and usual >= 0.9 * sum(often.values()):
        return None  # each batch is made of so many classes with so many samples each
    why = _ENDED_PART if drawn else _SORTED
    return f"a batch holds {here:.1f} different y, but {chance:.1f} if the order were random: {why}"


_SORTED: Final = (
    "the data are sorted by y, and to shuffle batches, or a small buffer, mixes neighbours only. Shuffle the whole "
    "list, of paths and labels, before they are read"
)
_ENDED_PART: Final = (
    "`sample_from_datasets` goes on with what is left once one of its datasets has ended. `.repeat()` each of them, "
    "and give `fit` steps_per_epoch="
)


def targets_held(parts: Epoch) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return the number of targets in each part, and that by chance; None if that tells nothing, as of one target."""
    ends = np.cumsum([len(part) for part in parts])[:-1]
    every = [y for _, y in itertools.chain(*parts)]
    _, targets = np.unique(every, return_inverse=True)
    if len({y[:SHAPE_BYTES] for y in every}) != 1 or not 1 < targets.max() + 1 <= len(targets) // 4:
        return None

    def held(order: Any) -> NDArray[Any]:
        return np.array([len(set(part.tolist())) for part in np.split(order, ends)])

    rng = np.random.default_rng(0)
    return held(targets), np.mean([held(rng.permutation(targets)) for _ in range(8)], axis=0)


def hook(dataset: Any) -> str:
    """Return the name of a dataset's own `on_epoch_end`; empty if it has none."""
    kind = type(dataset)
    usual = getattr(getattr(sys.modules.get("keras"), "utils", None), "PyDataset", None)
    hook = getattr(kind, "on_epoch_end", None)
    return "" if hook in (None, getattr(usual, "on_epoch_end", None)) else f"{kind.__name__}.on_epoch_end"


def orders_nothing(dataset: Any) -> str | None:
    """Say that a dataset's own `on_epoch_end` draws an order by which nothing is read, if so."""
    if not (name := hook(dataset)) or not (drawn := pickling.drawn_for_nothing(dataset)):
        return None
    said = f"`{name}` draws {', '.join(f'`{each}`' for each in drawn)} anew, which no other method reads"
    return f"{said}: each batch keeps its samples. Let `__getitem__` take them in that order"


def made_by(dataset: Any, *ops: str) -> bool:
    """Return True if one of the ops of a `tf.data.Dataset` is of such a kind: a "CacheDataset" keeps its samples."""
    return any(type(each).__name__.strip("_") in ops for each, _ in tfdata.dataset_ops(dataset))


# -------------------- a dataset with an index: what asking changes, and what workers get


def _samples_of(dataset: Any) -> Any:
    """Return what has an index of a dataset: itself, or the samples of a loader like torch's."""
    return dataset.dataset if randomness.is_indexed(dataset) else dataset if has_batches(dataset) else None


def _aside(data: WrappedData, source: Any) -> Any:
    """Return a copy of what has an index; if there is none, another one that the user's function makes."""
    try:
        return copied(source)
    except AutopipeError:
        if data.is_itself:
            raise
        return _samples_of(data.make(data.defaults).dataset)


_TOSSES = 6  # by which random changes of a whole batch, such as a flip, are told from what asking changes


def _asked(data: WrappedData, dataset: Any, found: Findings) -> bool | None:
    """Ask a copy for batches out of turn, and tell of changes; True if a batch stays the same, None without index."""
    if (source := _samples_of(dataset)) is None:
        return None
    name, until = type(source).__name__, time.monotonic() + _SECONDS
    try:
        asked = _aside(data, source)
        probed = 6  # batches that are asked for, each before the first one is asked for again
        count = probed if counts_on(asked) else len(asked)
        _, before, again = (_read(asked, 0) for _ in range(3))  # the first call may prepare something
        sizes = _sizes(asked)
        for index in dict.fromkeys([count - 1, *range(1, min(count, probed)), count // 2]):
            held = _values(asked)
            _read(asked, index)
            changed = sorted(key for key, value in _values(asked).items() if held.get(key) != value)
            after = _read(asked, 0)
            is_again = (after == (_read(asked, index), _read(asked, 0))[1] for _ in range(_TOSSES))
            if before == again and after != before and after[0] == before[0] and not all(is_again):
                again = after  # random changes came out alike before
            if after[0] != before[0] or (before == again and after != before):
                sets = f": it sets {', '.join(f'`{key}`' for key in changed)}" if changed else ""
                found.faults.append(
                    f"`{name}[0]` is another one after `{name}[{index}]` was asked for{sets}. Batches are asked for in "
                    "any order, and by several workers: change nothing of the dataset in `__getitem__`"
                )
                return before == again
            if time.monotonic() > until:
                break
        grown = [f"`{name}.{key}`" for key, size in _sizes(asked).items() if size > sizes.get(key, size)]
        if grown := [*grown, *(f"the cache of `{key}`" for key in pickling.remembering(source))]:
            found.notes.append(
                f"{', '.join(grown)} grows with the batches that are read. Each worker process fills its own, and "
                "those of Keras lose it as the epoch ends; threads share one, which makes later epochs faster"
            )
    except AutopipeError as error:
        found.notes.append(f"whether asking changes `{name}` was not seen: {error.message.rstrip('.')}")
        return None
    except Exception as error:  # noqa: BLE001  # the user's code may raise anything
        found.faults.append(
            f"`{name}` raised {type(error).__name__} when it was asked for batches out of turn: {error}"
        )
        return None
    return before == again


def _read(dataset: Any, index: int) -> tuple[Any, bytes]:
    """Return the shapes and the bytes of a batch or a sample."""
    parts = [np.asarray(part) for part in randomness.leaves(dataset[index])]
    return [part.shape for part in parts], b"".join(part.tobytes() for part in parts)


def _values(dataset: Any) -> dict[str, Any]:
    """Return those attributes that are numbers, texts and the like."""
    plain = (bool, int, float, str, bytes, type(None))
    return {key: value for key, value in getattr(dataset, "__dict__", {}).items() if isinstance(value, plain)}


def _sizes(dataset: Any) -> dict[str, int]:
    """Return the lengths of those attributes that can grow."""
    kinds = (dict, list, set, collections.deque)
    return {key: len(value) for key, value in getattr(dataset, "__dict__", {}).items() if isinstance(value, kinds)}


def copies(seen: int, distinct: int, workers: int) -> str | None:
    """Say so if samples of an IterableDataset come once from each of several workers."""
    if workers < 2 or seen - distinct <= seen / 4 or distinct < UNLIKE:  # fewer copies are not the workers' fault
        return None
    return (
        f"{seen - distinct:,} of {seen:,} samples are copies of others in the same epoch: each of {workers} workers "
        "reads the whole IterableDataset. Let each read a part of its own, by `torch.utils.data.get_worker_info()` in "
        "`__iter__`"
    )


def few_weights(loader: Any) -> str | None:
    """Say that the sampler of a DataLoader, or of its iterator, has fewer weights than there are samples, if so."""
    index = getattr(loader, "_index_sampler", None)
    sampler: Any = getattr(index, "sampler", index)
    samples: Any = getattr(loader, "dataset", getattr(loader, "_dataset", None))
    if type(sampler).__name__ != "WeightedRandomSampler" or not hasattr(samples, "__len__"):
        return None
    drawn, count = len(sampler.weights), len(samples)
    if drawn >= count:
        return None
    return (
        f"the sampler has {drawn:,} weights for {count:,} samples, and so draws the first {drawn:,} only: "
        "WeightedRandomSampler takes one for each sample, as `weights_of_classes[labels]` does"
    )


def shared_files(source: Any) -> str | None:
    """Name the open files of a dataset that forked processes would share; None if there are none."""
    source = torch_batches.whole(source)
    if not (opened := [f"`{type(source).__name__}.{key}`" for key in pickling.open_files(source)]):
        return None
    said = f"{', '.join(opened)}: worker processes that are forked share an open file, and its position"
    return f"{said}: open it in `__getitem__`, in each process once"


def _prepared(data: WrappedData, dataset: Any, first: Epoch, found: Findings) -> None:
    """Tell of a race, what workers cannot get, what they would share, what Keras converts, and batches that overlap."""
    found.faults += filter(None, [few_weights(dataset)])
    if data.by_index and not found.faults and (said := overlapping(first)) is not None:
        found.faults.append(said)
    if (race := race_of_workers(dataset)) is not None:
        found.faults.append(race.rstrip("."))
    if tfdata.loses_cache(dataset):
        found.notes.append(LOST_CACHE)
    found.notes += [MIXED_EPOCHS] * tfdata.mixes_epochs(dataset)
    for kind in dict.fromkeys(tfdata.cached(dataset)):
        (found.notes if kind in ("lists", "order") else found.faults).append(CACHED[kind])
    if hasattr(dataset, "options") and getattr(dataset.options(), "deterministic", None) is False:
        found.notes.append("samples come in no fixed order (`options.deterministic = False`): no two runs are alike")
    if (source := _samples_of(dataset)) is not None:
        name = type(source).__name__
        if (shared := shared_files(source)) is not None:
            (found.faults if forks(dataset) or stream.forks_workers(dataset) else found.notes).append(shared)
        if refused := [f"`{'.'.join(filter(None, (name, key)))}`" for key in pickling.unpicklable(source)]:
            found.notes.append(
                f"{', '.join(refused)} cannot be pickled, so that worker processes cannot be given the dataset: open "
                "files and the like in `__getitem__`, or leave them out in `__getstate__`"
            )
        found.notes += [data.like.against_threads] if data.like.against_threads is not None else []
    if any(data.like.dtypes[number] == np.float64 for number in data.like.shapes):
        found.notes.append("x is float64, which Keras casts to float32: half of its bytes are moved for nothing")
