"""Random numbers that repeat: in every epoch of a wrapped dataset, or in each of its worker processes.

Batches are compared, not code. Two equal epochs prove nothing: those of a validation are equal, and should be. So the
dataset is read once more while every seed in it is another one (`OtherSeeds`). If that gives other samples, random
numbers make them. If they were the same in all epochs nevertheless, the random numbers repeat. Workers are asked for
one and the same sample, of which each should make something else.

Orders are not judged: a sample may come anywhere in an epoch. `verify` calls this module.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
import inspect
import itertools
import math
import os
import pickle
import random
import sys
import time
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import LoaderError
from autopipe.frameworks import grain, tfdata
from autopipe.frameworks.hooks import standing_in
from autopipe.measure.outcome import Report
from autopipe.pipeline import assembly
from autopipe.pipeline.batching import torch_batches
from autopipe.pipeline.batching.datasets import BatchForm, Feeder, feeder, flat, forks, has_index
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.wrap import WrappedData, as_it_is, wrap

Batches: TypeAlias = Sequence[tuple[bytes, ...]]  # batches, each as the digests of its samples

SHAPE_BYTES: Final = 4  # of a sample's digest, for its shapes
_ENOUGH: Final = 24  # batches to compare, at least
_UNLIKELY: Final = 1e-4  # probability of a false alarm
_REMEDY: Final = "seed by epoch and index, as np.random.default_rng((seed, epoch, index)) does"
_REMEDY_OF_OPS: Final = (
    "give no seed to the random ops, nor to all by `tf.random.set_seed` or `keras.utils.set_random_seed`; or use "
    "tf.image.stateless_random_... with a seed for each sample that goes on from epoch to epoch"
)


def leaves(slot: Any) -> Iterable[Any]:
    """Return the arrays of a slot of a batch, which may be nested in mappings, tuples and lists."""
    if isinstance(slot, Mapping):
        return itertools.chain(*map(leaves, slot.values()))
    return itertools.chain(*map(leaves, slot)) if isinstance(slot, tuple | list) else [slot]


def digests(batch: Iterable[Any], most: int | None = None, *, about: bool = False) -> tuple[bytes, ...]:
    """Return a digest of each sample of a batch, over all its parts, or over at most so many values of each, at the
    same places in all samples. It begins with one, of SHAPE_BYTES, of their shapes: padding gives one sample several.
    `about`: floats count to a thousandth.
    """
    parts = [np.asarray(part) for slot in batch for part in leaves(slot) if part is not None]
    shapes = hashlib.blake2b(repr([part.shape[1:] for part in parts]).encode(), digest_size=SHAPE_BYTES).digest()
    made = [hashlib.blake2b(digest_size=16) for _ in parts[0]] if parts else []
    for part in parts:
        rows = part.reshape(len(part), math.prod(part.shape[1:]))
        if most is not None and rows.shape[1] > most:
            rows = rows[:, np.sort(np.random.default_rng(0).integers(rows.shape[1], size=most))]
        rows = _rounded(rows) if about and rows.dtype.kind == "f" else rows
        for sample, row in zip(made, rows, strict=True):
            # Objects, such as texts, are no more than addresses in the array.
            sample.update(repr(row.tolist()).encode() if row.dtype.hasobject else np.ascontiguousarray(row).tobytes())
    return tuple(shapes + sample.digest() for sample in made)


def _rounded(rows: NDArray[Any]) -> NDArray[Any]:
    """Round each row to a thousandth of its scale: a MixUp by nearly nothing leaves x as it was, and y nearly."""
    largest = np.abs(rows).max(axis=1, initial=0, keepdims=True)
    with np.errstate(all="ignore"):  # of NaN and infinity
        step = np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1)))) / 1000
        return np.round(rows / step) * step


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """A look for random numbers that repeat in a dataset that is made with these parameters."""

    data: WrappedData
    parameters: Mapping[str, Any]
    report: Report
    until: float = math.inf  # of the monotonic clock, after which no more is read
    known: Sequence[Batches] = ()  # two epochs that were read before, of the dataset as it is

    def over_epochs(self, seconds: float) -> str | None:
        """Return a sentence if random numbers repeat from epoch to epoch; None if not. Raise LoaderError if it cannot
        be told. The first epoch is read to its end, but not for longer than `seconds`.
        """
        with self._reader(self._made()) as dataset:
            remedy = f"{_REMEDY}, or give no seed"
            remedy = _REMEDY_OF_OPS if hasattr(dataset.dataset, "element_spec") else remedy
            remedy = grain.ORDERS_ANEW if (of_grain := grain.is_grain(dataset.dataset)) else remedy
            if of_grain and len(self.known) == 2 and len(self.known[1]) >= grain.ENOUGH_BATCHES:
                first, later = self.known  # each epoch begins worker processes anew, which takes seconds
            else:
                first = self._read(dataset, self.data.steps, until=time.monotonic() + seconds)
                later = self._epochs(dataset, len(first))
            repeated = _repeated(later, first)
            if not _differ(repeated, len(later), 0, len(later)):
                return None
            # Functions that were traced before draw by ops that no other seeds reach.
            traced = tfdata.functions(dataset.dataset)
            again = tfdata.functions(self._made().dataset) if traced else []
            if any(one is other for one in traced for other in again):
                is_drawn = tfdata.draws(dataset.dataset) and "changes" not in tfdata.cached(dataset.dataset)
            else:
                is_drawn = _differ(repeated, len(later), *self._otherwise(dataset, first, later))
            if not is_drawn:
                return None
        return (
            f"{repeated} of {len(later)} batches of the next epochs hold the samples of the first epoch, made with "
            f"the same random numbers: {remedy}"
        )

    def over_workers(self) -> str | None:
        """Return a sentence if worker processes draw the same numbers as each other, or anew in each epoch; None if
        not, or if they cannot be asked for a sample by its index. Raise LoaderError if it cannot be told.
        """
        source = self.data.make(self.parameters).dataset
        workers = _processes(source)
        if not workers:
            return None
        here = self._read(_asked(source, 3, same=True, here=True), 3)
        if len(set(itertools.chain(*here)) if is_indexed(source) else set(here)) == 1:
            return None  # equal each time: a worker's state has no part in it
        count = max(_ENOUGH, 6 * workers)
        with self._reader(_asked(source, count, same=True)) as asked:
            first, second = self._read(asked, count), self._read(asked, count)
        said = list[str]()
        if workers > 1 and _are_equal(list(itertools.combinations(first, 2))):
            said.append(
                f"{count - len(set(first))} of {count} batches of one and the same sample, made by {workers} workers, "
                "are copies of others, as the workers draw the same random numbers"
            )
        if set(second) <= set(first) and _are_equal(list(itertools.product(first, second))):
            said.append(f"workers draw the same random numbers in every epoch, in {count} of {count} batches")
        if not said:
            return None
        by_worker = ", or give each worker a seed of its own and of the epoch"
        return f"{', and '.join(said)}: {_REMEDY}{by_worker}" + " in `worker_init_fn`" * is_indexed(source)

    def _made(self) -> Feeder:
        """Make the dataset such that its threads, if any, draw random numbers in the same order each time."""
        made = self.data.make(self.parameters)
        dataset = made.dataset
        if hasattr(dataset, "element_spec"):
            import tensorflow as tf

            options = tf.data.Options()
            options.threading.private_threadpool_size = 1
            dataset = dataset.with_options(options)
        elif getattr(dataset, "use_multiprocessing", True):
            return made
        else:
            dataset.workers = 1
        return feeder(dataset, "make_dataset", self.data.wanted_steps, lambda: dataset)

    @contextlib.contextmanager
    def _reader(self, made: Feeder) -> Iterator[Feeder]:
        """Have a PyDataset whose processes Keras forks read in a process of its own, in which no framework has run."""
        if not (forks(made.dataset) and made.by_index):
            yield made
            return
        workload = wrap(lambda: made.dataset, model=None, steps=self.data.wanted_steps, shuffle=self.data.shuffle)
        config = as_it_is(workload)
        assert config is not None
        with assembly.make_loader(workload, config) as loader:
            yield _Loaded(made, loader)

    def _read(
        self,
        dataset: Feeder,
        batches: int,
        *,
        until: float = math.inf,
        on_batch: Callable[[int], None] = lambda batches: None,
    ) -> Batches:
        """Read the first `batches` of the next epoch, or enough `until` then; `on_batch` gets their number, 0 first."""
        found: list[tuple[bytes, ...]] = []
        on_batch(0)
        with contextlib.closing(dataset.epoch("arrays")) as elements:
            for element in itertools.islice(elements, batches):
                found.append(digests(flat(element, self.data.structure)))
                on_batch(len(found))
                self.report.progress(len(found), 0.0)
                if len(found) >= _ENOUGH and time.monotonic() > until:
                    break
                if time.monotonic() > self.until:
                    raise LoaderError("reading the data takes too long")
        return found

    def _epochs(self, dataset: Feeder, batches: int, on_batch: Callable[[int], None] = lambda batches: None) -> Batches:
        """Read the first `batches` of each of the next epochs, until there are enough."""
        found: list[tuple[bytes, ...]] = []
        while len(found) < max(batches, _ENOUGH) and (read := self._read(dataset, batches, on_batch=on_batch)):
            found += read
        return found

    def _otherwise(self, dataset: Feeder, first: Batches, later: Batches) -> tuple[int, int]:
        """Read a dataset again with other numbers; return how many batches repeat the first epoch, of how many."""
        source = dataset.dataset
        of_ops, by_index = hasattr(source, "element_spec"), bool(is_indexed(source) or _processes(source))
        if of_ops:  # of tf.data, which keep the seeds with which they were made
            # On a busy machine ops may draw in another order now and then, even those of one thread.
            again = self._epochs(self._made(), len(first))
            if _differ(_repeated(later, first), len(later), _repeated(again, first), len(again)):
                raise LoaderError(
                    "The function gives other samples each time that it is called, a random part of them."
                )
            with tfdata.other_seeds():
                dataset = self._made()
        elif by_index:  # in this process: the seeds in workers are out of reach, as are the states that they begin with
            dataset = _asked(source, _ENOUGH, here=True)
            first, again = self._read(dataset, _ENOUGH), self._read(dataset, _ENOUGH)
            if (repeated := _repeated(again, first)) < len(again):
                return repeated, len(again)
        if of_grain := grain.is_grain(source):  # which keeps what it drew its numbers with, or draws in workers
            dataset = self._made()
            if (here := grain.in_this_process(dataset.dataset)) is not None:
                dataset = feeder(here, "make_dataset", self.data.wanted_steps, lambda: here)
        # A generator may make the data themselves by random numbers, before its first batch.
        has_hooks = hasattr(source, "use_multiprocessing")  # a PyDataset, which may be given seeds when an epoch ends
        begins = 0 if of_ops or by_index or has_hooks or of_grain else 1
        with OtherSeeds() as seeds:

            def change(batches: int) -> None:
                seeds.change(batches >= begins)

            if has_hooks:
                self._read(dataset, 1, on_batch=change)
            found = self._epochs(dataset, len(first), change)
        return _repeated(found, first), len(found)


class _Loaded(Feeder):
    def __init__(self, made: Feeder, loader: Loader) -> None:
        super().__init__(made.length, goes_on=made.goes_on, is_endless=made.is_endless)
        self.dataset, self._loader, self._number = made.dataset, loader, 0

    def epoch(self, form: BatchForm) -> Generator[Any, None, None]:
        self._number += 1
        yield from self._loader.epoch(self._number - 1)


def _repeated(batches: Batches, first: Batches) -> int:
    """Return the number of batches all of whose samples came in the first epoch, too."""
    known = set(itertools.chain(*first))
    return sum(known.issuperset(batch) for batch in batches)


# -------------------- datasets with an index: a PyDataset of Keras, and a loader like torch's DataLoader


def is_indexed(dataset: Any) -> bool:
    """Return True for a loader that gets samples of a dataset by lists of indices."""
    samples = getattr(dataset, "dataset", None)
    # torch's own inherits `__getitem__`, and a loader of it has a `batch_sampler`, too.
    return (
        getattr(dataset, "batch_sampler", None) is not None
        and hasattr(samples, "__getitem__")
        and not torch_batches.is_streamed(dataset)
    )


def is_passed_once(loader: Any) -> bool:
    """Return True if a pass of such a loader is to have each sample once: webdataset may draw shards again."""
    stages = getattr(getattr(loader, "dataset", getattr(loader, "_dataset", None)), "pipeline", ())
    return torch_batches.is_streamed(loader) and not any(
        type(each).__name__.startswith("ResampledShard") for each in stages
    )


def _processes(dataset: Any) -> int:
    """Return the number of worker processes that can be asked for a sample by its index."""
    if is_indexed(dataset):
        return int(getattr(dataset, "num_workers", 0))
    return int(dataset.workers) if getattr(dataset, "use_multiprocessing", False) else 0


def _asked(dataset: Any, batches: int, *, same: bool = False, here: bool = False) -> Feeder:
    """Return a dataset that is asked for samples in order, or always the same, by its workers or in this process."""
    if is_indexed(dataset):
        indices = itertools.cycle([0] if same else range(len(dataset.dataset)))
        asked = copy.copy(dataset)
        changed = {"batch_sampler": [list(itertools.islice(indices, 8)) for _ in range(batches)]}  # of eight samples
        # Not by `setattr`, which torch refuses. `_iterator` holds workers that persist.
        vars(asked).update(changed, _iterator=None, **({"num_workers": 0, "timeout": 0} if here else {}))
    else:
        import keras

        count = len(dataset) if has_index(dataset) else batches

        class Asked(keras.utils.PyDataset):
            asked_in = os.getpid() if here else None  # the process of the last call

            def __len__(self) -> int:
                return batches

            def __getitem__(self, index: int) -> Any:
                if self.asked_in != os.getpid():
                    self.asked_in = os.getpid()
                    time.sleep(0.2)  # room for the others' first batch: one alone may make all quick ones
                return self.dataset[0 if same else index % count]

        asked = Asked(0 if here else dataset.workers, not here, dataset.max_queue_size)
        asked.dataset = dataset  # by which the pickler finds its modules
    return feeder(asked, "make_dataset", None, lambda: asked)


def _differ(many: int, of_many: int, few: int, of_few: int) -> bool:
    """Return True if `many` of `of_many` is more than `few` of `of_few` by more than chance (Fisher's exact test)."""
    both = many + few
    cases = range(many, min(of_many, both) + 1)
    ways = _log_ways(of_many + of_few, both)
    return sum(math.exp(_log_ways(of_many, n) + _log_ways(of_few, both - n) - ways) for n in cases) < _UNLIKELY


def _log_ways(things: int, taken: int) -> float:
    return math.lgamma(things + 1) - math.lgamma(taken + 1) - math.lgamma(things - taken + 1)


def _are_equal(pairs: Sequence[tuple[tuple[bytes, ...], tuple[bytes, ...]]]) -> bool:
    """Return True if more pairs of batches are equal than would be if each row were random by itself."""
    alike = [sum(map(bytes.__eq__, *pair)) for pair in pairs]
    rows = len(pairs[0][0])
    by_chance = len(pairs) * (sum(alike) / (rows * len(pairs))) ** rows
    fewer, term = 0.0, math.exp(-by_chance)  # of Poisson's distribution
    for count in range(alike.count(rows)):
        fewer += term
        term *= by_chance / (count + 1)
    return 1 - fewer < _UNLIKELY


# -------------------- other seeds


class _Kind(type):
    """The type of a class that stands for the one that it derives from."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


class OtherSeeds:
    """Gives random generators of Python and NumPy other seeds than the code asks for, between calls of `change`.
    Functions and classes that modules have imported by name are replaced in these modules, too. A generator without a
    seed stays as it is. Leaving the context restores everything.
    """

    def __init__(self) -> None:
        self._is_other = False
        self._made: list[Any] = [random, np.random]  # generators that began with the seeds that were asked for
        self._replaced: list[tuple[types.ModuleType, str, Any]] = []

    def __enter__(self) -> Self:
        self._states = random.getstate(), np.random.get_state()
        others = {id(original): other for original, other in self._substitutes()}
        for module in [each for name, each in sys.modules.items() if not name.startswith("numpy.random.")]:
            names = vars(module).copy() if isinstance(module, types.ModuleType) else {}
            if others.keys().isdisjoint(map(id, names.values())):  # as of nearly all of ten thousand modules
                continue
            for name, value in names.items():
                if (other := others.get(id(value))) is not None:
                    self._replaced.append((module, name, value))
                    setattr(module, name, other)
        return self

    def __exit__(self, *_: object) -> None:
        for module, name, value in self._replaced:
            setattr(module, name, value)
        self._replaced.clear()
        random.setstate(self._states[0])
        np.random.set_state(self._states[1])

    def change(self, is_other: bool) -> None:
        """Give other seeds from now on, and let generators continue elsewhere; or give those that are asked for."""
        if is_other and not self._is_other:
            for generator in self._made:  # bytes that it leaves out, to go on elsewhere
                (generator.randbytes if hasattr(generator, "randbytes") else generator.bytes)(4000)
            del self._made[2:]
        self._is_other = is_other

    def _substitutes(self) -> list[tuple[Any, Any]]:
        seed_python, seed_numpy, default_rng = random.seed, np.random.seed, np.random.default_rng
        seeds = self

        def seed_of_python(a: Any = None, version: int = 2) -> None:
            seed_python(seeds._text(a), version)

        def seed_of_numpy(seed: Any = None) -> None:
            seed_numpy(seeds._words(seed))

        def generator(seed: Any = None) -> np.random.Generator:
            return seeds._began(default_rng(seeds._words(seed)))  # type: ignore[no-any-return]

        class Random(random.Random, metaclass=_Kind):
            def seed(self, a: Any = None, version: int = 2) -> None:
                super().seed(seeds._text(a), version)
                seeds._began(self)

        def of_bits(kind: Any) -> Any:
            class Bits(kind, metaclass=_Kind):
                def __init__(self, seed: Any = None, *, key: Any = None, **named: Any) -> None:
                    is_changed = seeds._is_other and key is not None
                    given = {} if key is None or is_changed else {"key": key}
                    super().__init__(seeds._words(key if is_changed else seed), **given, **named)

            Bits.__name__ = kind.__name__  # by which it is pickled
            return Bits

        class RandomState(np.random.RandomState, metaclass=_Kind):
            def __init__(self, seed: Any = None) -> None:
                super().__init__(seeds._words(seed))
                seeds._began(self)

            def seed(self, seed: Any = None) -> None:
                super().seed(seeds._words(seed))

        return [
            (seed_python, seed_of_python),
            (seed_numpy, seed_of_numpy),
            (default_rng, generator),
            (random.Random, Random),
            (np.random.RandomState, RandomState),
            *((kind, of_bits(kind)) for kind in (np.random.PCG64, np.random.Philox)),
        ]

    def _began(self, generator: Any) -> Any:
        if not self._is_other:
            self._made.append(generator)
        return generator

    def _text(self, seed: Any) -> Any:
        return f"another seed than {seed!r}" if self._is_other and seed is not None else seed

    def _words(self, seed: Any) -> Any:
        if not self._is_other or not isinstance(
            seed, int | np.integer | np.ndarray | Sequence | np.random.SeedSequence
        ):
            return seed
        entropy, key = (seed.entropy, seed.spawn_key) if isinstance(seed, np.random.SeedSequence) else (seed, ())
        try:
            return np.random.SeedSequence(entropy, spawn_key=(*key, 0x5EED)).generate_state(4)
        except (TypeError, ValueError):
            return seed  # which NumPy refuses itself


# -------------------- numbers that are drawn once, as tf.data traces a function

_ONCE: Final = (
    "{} draws random numbers of Python or NumPy, but tf.data calls it only once, to trace it, so that all samples of "
    "all epochs get the same numbers: draw by tf.random.uniform there, or call it by tf.numpy_function"
)


def watch_maps(told: Callable[[str], None], tensorflow: Any) -> Callable[[], None]:
    """Call `told` when tf.data traces a function that draws numbers of Python or NumPy; return what stops that."""
    kind, undo = tensorflow.data.Dataset, contextlib.ExitStack()

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def traced(dataset: Any, map_func: Any, *arguments: Any, **named: Any) -> Any:
            function = _plain(map_func)
            with _drawing(function) as draws:
                made = original(dataset, map_func, *arguments, **named)
            if function is not None and draws() and "tf_keras" not in sys.modules:  # whose layers draw seeds there, too
                code = function.__code__
                place = f"{os.path.relpath(code.co_filename)}:{code.co_firstlineno}"
                told(_ONCE.format(f"`{function.__name__}` ({place})"))
            return made

        return traced

    for name in ("map", "flat_map", "interleave"):
        undo.callback(setattr, kind, name, getattr(kind, name))
        setattr(kind, name, watching(getattr(kind, name)))
    return undo.close


@contextlib.contextmanager
def _drawing(function: types.FunctionType | None) -> Iterator[Callable[[], bool]]:
    """Yield what tells if random numbers were drawn, but for the seed of a layer of Keras at its first call."""
    keras: Any = frameworks.layer_seeds()
    seed: Any = getattr(keras, "make_default_seed", None)
    before, drawn = _states(function), False

    def draws() -> bool:
        return drawn or _states(function) != before

    def of_layer() -> Any:
        nonlocal before, drawn
        drawn, made = draws(), seed()
        before = _states(function)
        return made

    with contextlib.nullcontext() if seed is None else standing_in(keras, "make_default_seed", of_layer):
        yield draws


def _plain(function: Any) -> types.FunctionType | None:
    """Return the function of the user's in a `tf.function` or a partial; None if there is none."""
    while not isinstance(function, types.FunctionType | None):
        function = getattr(function, "python_function", None) or getattr(function, "func", None)
    return function


def _states(function: types.FunctionType | None) -> bytes:
    """Return the states of the common random generators, and of those that a function names."""
    if function is None:
        return b""
    held = inspect.getclosurevars(function)
    kinds = (random.Random, np.random.Generator, np.random.RandomState)
    own = [each for each in (*held.nonlocals.values(), *held.globals.values()) if isinstance(each, kinds)]
    return pickle.dumps((random.getstate(), np.random.get_state(), own))
