"""Batches by index: a user's dataset whose `dataset[i]` is a batch, made by workers as batches of samples are.

`Indexed` stands in a recipe in the place of a source of samples. The process that reads the loader holds the dataset:
there its epochs begin and end, as Keras has them (`on_epoch_begin`, `on_epoch_end`). Worker processes get it pickled,
apart from the recipe, and once more whenever it has changed. Random numbers of a worker process begin anew with each
batch, by seed, epoch and index, because copies of one generator would draw the same numbers in all workers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import hashlib
import itertools
import mmap
import multiprocessing
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import AutopipeError, LoaderError, WorkloadError, told
from autopipe.hardware import machine
from autopipe.hardware.machine import size_text
from autopipe.pipeline.batching import pickling, stream, torch_batches
from autopipe.pipeline.batching.cache import MemoryCache, SharedBlock, places, write_rows
from autopipe.pipeline.batching.datasets import Like, batch_at, counts_on, has_index, length_of
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.loader import Recipe
from autopipe.workload import order
from autopipe.workload.sample import Batch

_NOTHING = np.empty(0, np.uint8)
_HOOKS = ("on_epoch_begin", "on_epoch_end")
_KERAS_SECONDS = 80.0  # without a batch from Keras's own processes; less than a trial's patience with a first batch
_LARGE: Final = re.compile(rb"\x8c[\x05-\xff](keras|torch)\b")  # the name of a module in a pickle
WITHOUT_DEVICES: Final[Mapping[str, str]] = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
}
"""The environment of workers whose user's code may run a framework: on the CPU, since the training has the device."""


class Indexed:
    """A dataset with an index of batches. It pickles without the dataset, which travels in a block."""

    def __init__(  # noqa: PLR0913  each says how batches are counted and made
        self,
        dataset: Any,
        like: Like,
        *,
        steps: int,
        seed: int = 0,
        shuffle: bool = False,
        by_keras: bool = False,
        in_loop: bool = False,
    ) -> None:
        """An epoch has `steps` batches. With `shuffle`, their order is drawn anew in each epoch. Numbers of a dataset
        without a length go on from epoch to epoch. `by_keras`: one worker reads them by Keras's adapter, whose own
        processes make them. `in_loop`: a loop of the user's begins and ends epochs, and not this.
        """
        self.dataset, self.like, self.by_keras = dataset, like, by_keras
        self._hooks = () if in_loop else _HOOKS
        self.name, self.keras_seconds = type(dataset).__name__, _KERAS_SECONDS
        self._steps, self.seed, self.shuffle = steps, seed, shuffle
        # The pickled dataset and the lengths of its parts, if worker processes have to get it.
        self.packed: tuple[SharedBlock, list[int]] | None = None
        self.counts_on, self._as_keras = counts_on(dataset), frameworks.draws_by_epoch()
        self._indices: tuple[int, NDArray[np.int64]] | None = None
        self._generators: list[tuple[Any, int]] | None = None  # of random numbers, in a worker process
        self.unfit: LoaderError | None = None  # why a worker process could not unpickle the dataset

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"dataset": None, "packed": None}

    def __len__(self) -> int:
        return self._steps * self.like.batch_size

    def read(self, index: int) -> Any:
        raise NotImplementedError  # batches come whole

    @functools.cached_property
    def begins_anew(self) -> bool:
        """True if no batch of the next epoch may be made before this one has ended."""
        kind = type(self.dataset)
        usual = getattr(getattr(sys.modules.get("keras"), "utils", None), "PyDataset", object)
        own = (name for name in self._hooks if getattr(kind, name, None) not in (None, getattr(usual, name, None)))
        return self.by_keras or any(own)

    def index(self, epoch: int, position: int) -> int:
        """Return the index of the batch that comes at a position of an epoch."""
        if not self.shuffle:
            return position + epoch * self._steps * self.counts_on
        known = self._indices
        if known is None or known[0] != epoch:
            drawn = np.arange(self._steps) if self._as_keras else order.epoch_order(self.seed, epoch, self._steps)
            if self._as_keras:
                random.Random(epoch).shuffle(drawn)  # type: ignore[arg-type]  # an array can be shuffled, too
            known = self._indices = (epoch, drawn)
        return int(known[1][position])

    def shown(self, epoch: int, samples: NDArray[np.int64]) -> str:
        position = int(samples[0]) // self.like.batch_size
        return self.name if self.by_keras else f"`{self.name}[{self.index(epoch, position)}]`"

    def batch(self, epoch: int, index: int) -> Batch:
        """Return a batch; raise WorkloadError, with the index, if that raises, or the batch is unlike the others."""
        if self._generators is not None:
            self._seed_all(self._generators, epoch, index)
        return self.like.checked(batch_at(self.dataset, index, self._steps), f"{self.name}[{index}]")

    # ------------------------------------------------------------ epochs

    @contextlib.contextmanager
    def epoch(self, number: int) -> Iterator[bool]:
        """Begin an epoch of the dataset, and end it after the block. True: workers have had an older dataset so far."""
        if self._hooks and isinstance(self.dataset, torch_batches.TorchBatches):
            torch_batches.set_epoch(self.dataset, number)
        hooks = [getattr(self.dataset, name, lambda: None) for name in self._hooks]
        for begin in hooks[:1]:
            begin()
        try:
            if has_index(self.dataset) and (length := length_of(self.dataset)) < self._steps:
                raise WorkloadError(
                    f"`{self.name}` has to have as many batches in each epoch as in the first, but `__len__` returned "
                    f"{length}, and {self._steps} are needed.",
                    hint="Let `on_epoch_end` choose other samples, and no other number of them.",
                )
            yield self.packed is not None and self.pack()
        finally:
            for end in hooks[1:]:
                end()

    # ------------------------------------------------------------ to worker processes

    def pack(self) -> bool:
        """Pickle the dataset for workers; False if it is as it was. Raise LoaderError if it cannot be."""
        body, buffers = pickling.apart(self.dataset)
        parts = [np.frombuffer(part, np.uint8) if len(part) else _NOTHING for part in (memoryview(body), *buffers)]
        lengths = [len(part) for part in parts]
        known = [] if self.packed is None or lengths != self.packed[1] else _parts(*self.packed)
        if known and all(map(np.array_equal, parts, known)):
            return False
        size, free = places(lengths)[-1], machine.detect_memory().available_bytes
        if size > free:
            raise LoaderError(
                f"Worker processes need {size_text(size)} of memory for `{self.name}`, but {size_text(free)} are free.",
                hint="Read from files in `__getitem__`, or use `Threads`, which share the dataset.",
            )
        block = SharedBlock(size)
        for part, room in zip(parts, _parts(block, lengths), strict=True):
            room[:] = part
        self.packed = block, lengths
        return True

    def preloads(self) -> set[str]:
        """Return the modules that are better imported once than by each worker."""
        assert self.packed is not None
        found = {name.decode() for name in _LARGE.findall(_parts(*self.packed)[0].tobytes())}
        return {*found, "keras"} if self.by_keras else found

    def unpack(self, lengths: Sequence[int], descriptor: int) -> None:
        """Take the dataset from a block, whose arrays are copies; if it fails, the next batch raises the error."""
        *begin, size = places(lengths)
        memory = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY))
        os.close(descriptor)
        body, *buffers = (memory[at : at + length] for at, length in zip(begin, lengths, strict=True))
        unpickler = pickling.DatasetUnpickler(bytes(body), buffers)
        try:
            self.dataset, self.unfit = unpickler.load(), None
        except Exception as error:  # noqa: BLE001  # the user's code may raise anything
            self.unfit = LoaderError(
                f"`{self.name}` cannot be unpickled in a worker process: {told(error)}.",
                hint="Its class, and what it imports, must work in a process of its own. `Threads` need no pickle.",
            )
        hashed = ((each, hashlib.blake2b(packed, digest_size=8)) for each, packed in unpickler.generators)
        self._generators = [(each, int.from_bytes(number.digest(), "little")) for each, number in hashed]

    def _seed_all(self, generators: Sequence[tuple[Any, int]], epoch: int, index: int) -> None:
        words = np.random.SeedSequence((self.seed % 2**64, epoch, index)).generate_state(8)
        random.seed(words[:4].tobytes())
        np.random.seed(words[4:])
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(int(words[0]))
        for generator, number in generators:
            seeds = np.random.SeedSequence((number, self.seed % 2**64, epoch, index))
            if isinstance(generator, np.random.Generator):
                generator.bit_generator.state = type(generator.bit_generator)(seeds).state
            elif isinstance(generator, random.Random):
                generator.seed(seeds.generate_state(4).tobytes())
            else:
                generator.seed(seeds.generate_state(4))


def _parts(block: SharedBlock, lengths: Sequence[int]) -> list[NDArray[np.uint8]]:
    begin = zip(lengths, places(lengths), strict=False)
    return [block.array((length,), np.dtype(np.uint8), at) for length, at in begin]


# -------------------- kernels


def kernel_of(recipe: Recipe, cache: MemoryCache | None = None, readers: int = 0) -> Kernel:
    """Return the kernel that makes the batches of a recipe: of samples, or of a user's dataset."""
    if not isinstance(recipe.source, Indexed):
        return Kernel(recipe, cache, readers)
    return _OfKeras(recipe, recipe.source) if recipe.source.by_keras else _ByIndex(recipe, recipe.source)


class _ByIndex(Kernel):
    makes_several = False

    def __init__(self, recipe: Recipe, source: Indexed) -> None:
        self.spec, self.source, self._batches = recipe.spec, source, source
        self._ahead, self.undo = None, contextlib.ExitStack()

    def fill(self, epoch: int, indices: NDArray[np.int64], batch: Batch) -> Any:
        """Write a batch, and return no bad samples; or return the batch if its shapes are others."""
        if self._batches.unfit is not None:
            raise self._batches.unfit
        made = self._made(epoch, int(indices[0]) // self._batches.like.batch_size)
        return [] if write_rows(batch, slice(None), made) else made

    def _made(self, epoch: int, position: int) -> Batch:
        return self._batches.batch(epoch, self._batches.index(epoch, position))


class _OfKeras(_ByIndex):
    """Fills batches from Keras's adapter, whose processes are forked from this one: no framework may have run here."""

    def __init__(self, recipe: Recipe, source: Indexed) -> None:
        super().__init__(recipe, source)
        self._reader = concurrent.futures.ThreadPoolExecutor(1)  # which may hang
        self._adapter: Any = None
        self._elements: Iterator[Any] = iter(())
        self._next = (-1, 0)

    def _made(self, epoch: int, position: int) -> Batch:
        try:
            return self._reader.submit(self._read, epoch, position).result(self._batches.keras_seconds)
        except TimeoutError:
            raise LoaderError(
                f"Keras's own processes (use_multiprocessing=True) gave no batch of `{self._batches.name}` for "
                f"{self._batches.keras_seconds:.0f} s.",
                hint="One of them hangs or has died, which Keras does not see. Use `Processes`, or "
                "use_multiprocessing=False.",
            ) from None
        except AutopipeError:
            raise
        except Exception as error:
            raise WorkloadError(
                f"`{self._batches.name}` raised {type(error).__name__} in a process of Keras: {error}.",
                hint="Call its `__getitem__` by hand to see the whole traceback.",
            ) from error

    def _read(self, epoch: int, position: int) -> Batch:
        if self._batches.counts_on:
            epoch, position = 0, self._batches.index(epoch, position)
        skipped = 0 if (epoch, position) == self._next else position
        if (epoch, position) != self._next:
            self._begin(epoch)
        element = next(itertools.islice(self._elements, skipped, None), None)
        if element is None:
            raise WorkloadError(f"`{self._batches.name}` gave fewer batches than its `__len__` says.")
        self._next = (epoch, position + 1)
        return self._batches.like.checked(element, f"the next batch of {self._batches.name}")

    def _begin(self, epoch: int) -> None:
        dataset = self._batches.dataset
        for name in _HOOKS:  # are called where the dataset lives
            setattr(dataset, name, lambda: None)
        if self._adapter is not None:
            self._adapter.on_epoch_end()
        multiprocessing.set_start_method("fork", force=True)
        stream.require_safe_fork()
        random.seed(f"{self._batches.seed} {epoch}")
        self._adapter = frameworks.py_dataset_adapter(dataset, shuffle=self._batches.shuffle, epoch=epoch)
        self._adapter.on_epoch_begin()
        self._elements = iter(self._adapter.get_numpy_iterator())


# -------------------- the process of a worker


def settle() -> None:
    """Prepare this process for a user's code: what it prints is seen, and what it forks ends with it."""
    with contextlib.suppress(AttributeError, ValueError):  # another object in its place
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    owner = os.getpid()
    os.register_at_fork(after_in_child=lambda: threading.Thread(target=end_with, args=(owner,), daemon=True).start())


def end_with(owner: int) -> None:
    """End this process once its owner, which has started it, is gone."""
    while os.getppid() == owner:
        time.sleep(1.0)
    os._exit(1)
