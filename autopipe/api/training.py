"""Trains with a configuration that is given, or with none: `ap.make_loader` and `ap.make_trainer`.

`ap.live` feeds a loop from a dataset of the user's, by the loaders of `ap.wrap` and the tuner of `tune="live"`.
"""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from autopipe import frameworks
from autopipe.errors import ConfigError, WorkloadError, shortened
from autopipe.hardware import machine
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.batching import torch_batches
from autopipe.pipeline.batching.datasets import Packed, comes_back, has_batches, has_index, rebuilt
from autopipe.pipeline.config import LOADERS, PipelineConfig
from autopipe.pipeline.loader import Loader, end
from autopipe.pipeline.switching import check_tune
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    from autopipe.pipeline.devices.trainer import Trainer
    from autopipe.search.result import Change

Tune = Literal["live"] | None


def make_loader(
    workload: Workload,
    config: PipelineConfig | None = None,
    *,
    shard: tuple[int, int] = (0, 1),
    rank: tuple[int, int] = (0, 1),
    tune: Tune = None,
) -> Loader:
    """Return an open loader: the batches of `workload`, fed by `config`.

    Args:
        workload: what is trained.
        config: how it is fed; `finish="host"` suits a loop. None, with `tune`: the fastest in a
            race of less than a second.
        shard: `(i, n)` takes the i-th of n disjoint parts of every epoch.
        rank: `(i, n)` takes the i-th of n equal parts of every batch, for n processes that train together.
        tune: "live" tries other configurations while the loader is read, if its reader waits, and keeps what is faster;
            the batches stay the same.

    Raises:
        DataError: samples cannot be read.
        WorkloadError: the ops do not fit the samples.
        LoaderError: the loader cannot start, for want of memory say.
        ConfigError: the configuration cannot be used with this workload; or it is missing, or `tune` is unknown.

    Examples:
        >>> with make_loader(workload, config) as loader:
        ...     for x, y in loader.epoch(0):
        ...         ...
    """
    check_tune(tune, rank)
    config = _checked(workload, config, tune)
    if tune is None:
        return wrap.for_loop(assembly.make_loader(workload, config, shard=shard, rank=rank), workload)
    from autopipe.search import live as tuner

    return wrap.for_loop(tuner.open_loader(workload, config, shard), workload)


def make_trainer(
    workload: Workload, config: PipelineConfig | None = None, *, shard: tuple[int, int] = (0, 1), tune: Tune = None
) -> Trainer:
    """Return a trainer: the workload's model, fed by `config`.

    In a process of a JAX cluster it trains together with the others: each reads its part of every batch.

    Args:
        workload: what is trained.
        config: how it is fed; None, with `tune`: the fastest in a race of less than a second.
        shard: `(i, n)` trains on the i-th of n disjoint parts of every epoch.
        tune: "live" has each `fit` try other configurations while it trains, if the model waits for data, and keep what
            is faster; the batches stay the same. None: only those that are told to.

    Raises:
        ModelError: the model cannot be built, is not compiled, or does not fit the batches.
        ConfigError: there is no configuration and no `tune`, or `tune` is unknown.
        AutopipeError: any error of `make_loader`.

    Examples:
        >>> ap.make_trainer(workload, tune="live").fit(epochs=3)       # doctest: +SKIP
    """
    check_tune(tune)
    is_known, config = config is not None, _checked(workload, config, tune)
    if not is_known:
        workload, config = assembly.for_short_steps(workload, config)
    trainer = assembly.make_trainer(workload, config, shard=shard)
    from autopipe.search import live as tuner

    tuner.able(trainer, workload, config)
    trainer.tune = tune
    return trainer


def _checked(workload: Workload, config: PipelineConfig | None, tune: Tune) -> PipelineConfig:
    for name, given, kind in (("workload", workload, Workload), ("config", config, PipelineConfig)):
        if not isinstance(given, kind) and (given is not None or name == "workload"):
            hint = "Such as ap.make_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=4)))."
            raise ConfigError(f"`{name}` must be an ap.{kind.__name__}, but got {shortened(given)}.", hint=hint)
    if config is not None:
        return config
    if tune is None:
        hint = 'Pass ap.PipelineConfig(loader=ap.Threads(workers=4)), or tune="live", which finds one.'
        raise ConfigError("`config` is missing: it says how the workload is fed.", hint=hint)
    from autopipe.search import race

    return race.first_config(workload)


# -------------------- a loop of its own: it owns the dataset, so nothing of an epoch is made before it begins, none of
# Keras's hooks is called, and batches have the dataset's own containers and tensors

_log = logging.getLogger(__name__)
_QUEUE = 4  # batches that wait for the loop


def live(dataset: Any, *, steps: int | None = None, threads: bool = True, seed: int = 0) -> Live:
    """Return the batches of a dataset: the same, in the same order, made by workers that tune themselves meanwhile.

    Each `for` reads an epoch. While the loop waits for its batches, other numbers of threads and processes take their
    turn between two of them, and stay if they are faster.

    Args:
        dataset: an object of which `dataset[i]` is a batch: a `keras.utils.PyDataset`, a `MapDataset` of Grain that is
            batched, a class with `__len__` and `__getitem__`. Or a `DataLoader` of torch, whose `sampler`, `collate_fn`
            and own random numbers say which samples make a batch; its `num_workers` do not count. Batches that are x,
            (x, y) or (x, y, sample_weight), each an array, or a tuple or a dictionary of arrays, share memory with the
            workers; others, such as lists with texts, are pickled. Tensors of torch that are not are page-locked if
            there is a GPU. What the loop changes in the dataset between two epochs counts from the next one on; it
            calls `on_epoch_end`, if that is to be called.
        steps: batches of an epoch, if the dataset has no length. An epoch then goes on after the one before.
        threads: False, if `dataset[i]` must not run in several threads at once: then there are processes only, for
            which the dataset must pickle. If `dataset[i]` moves the position in an open file, sets an attribute or
            fills the same array again, threads are left out by themselves.
        seed: of the random numbers of Python, NumPy and torch that worker processes draw: they begin anew with each
            batch.

    Raises:
        WorkloadError: the dataset has no index, or raises.
        LoaderError: it cannot be sent to processes, and `threads` is False.

    Examples:
        >>> for epoch in range(3):                                          # doctest: +SKIP
        ...     for x, y in batches:                                        # batches = ap.live(Photos("train"))
        ...         train_step(x, y)
    """
    return Live(dataset, steps, threads=threads, seed=seed)


class Live:
    """Epochs of a dataset for a loop; `ap.live` makes it. Workers end with it, or at `close`."""

    def __init__(self, dataset: Any, steps: int | None, *, threads: bool, seed: int) -> None:
        torch = sys.modules.get("torch")  # imported already, if the dataset is one of its own
        self._of_torch = torch_batches.is_loader(dataset)
        if self._of_torch:
            dataset = torch_batches.TorchBatches(dataset)
        elif torch is not None and isinstance(dataset, torch.utils.data.Dataset):
            raise WorkloadError(
                f"`ap.live` takes batches, but `dataset[i]` of a torch Dataset is a sample: {shortened(dataset)}.",
                hint="Pass its DataLoader: ap.live(DataLoader(dataset, batch_size=32, shuffle=True)).",
            )
        if not has_batches(dataset):
            raise WorkloadError(
                f"`ap.live` asks for batches by their index, dataset[i], but got {shortened(dataset)}.",
                hint="Write a class with `__len__` and `__getitem__`; `ap.watch` tells if the loop waits at all.",
            )
        self._dataset, self._steps, self._seed = dataset, steps, seed
        two = {kind: LOADERS[kind].model_validate({"workers": 2}) for kind in wrap.kinds_of_workers()}
        self._apart = [kind for kind, loader in two.items() if not loader.shares_lock()]
        self._kinds = list(two) if threads else self._apart
        self._epoch = 0
        self._loader: Loader | None = None

    def _open(self) -> Loader:
        """Return the loader of an epoch: another one if the loop has given the dataset another length."""
        length = len(self._dataset) if self._steps is None else self._steps
        if self._loader is None or len(self._loader) != length:
            self.close()
            data = self._data()
            workload = Workload(data=data, ops=(), batch_size=data.batch_size, seed=self._seed, shuffle=False)
            self._outline = data.outline
            kinds, why = self._kinds, data.like.against_threads
            unfit = data.why_unpicklable() if why is not None and kinds != self._apart else None
            if unfit is not None:
                _log.warning("`ap.live` has one thread only: %s; and %s", why, unfit)
            settings = {"workers": 1 if unfit else machine.usable_cores(), "queue_size": _QUEUE}
            kinds = kinds if why is None or unfit else self._apart
            loader = LOADERS[kinds[0]].model_validate(settings)
            config = PipelineConfig(loader=loader, finish="host", device_prefetch=0)
            from autopipe.search import live as tuner

            plain = assembly.make_loader
            self._loader = plain(workload, config) if unfit else tuner.open_loader(workload, config, kinds=kinds)
            self._end = weakref.finalize(self, self._loader.close)
        return self._loader

    def _data(self) -> wrap.WrappedData:
        """Return the dataset for workers: its arrays, or batches that are packed if they are no tuples of arrays."""
        make = functools.partial(wrap.WrappedData, choices={}, steps=self._steps, seed=self._seed, in_loop=True)
        self._packed = False
        try:
            data = make(wrap.Itself(self._dataset))
            if comes_back(data.outline) or not has_index(self._dataset):
                return data
        except (WorkloadError, TypeError, RuntimeError) as error:  # tensors that are sparse, say, or have a gradient
            if error.__cause__ is not None or not has_index(self._dataset):  # it raised itself
                raise
        self._packed = True
        packed = wrap.Itself(Packed(self._dataset))
        packed.__name__ = type(self._dataset).__name__
        return make(packed)

    def __len__(self) -> int:
        return len(self._dataset) if self._steps is None else self._steps

    def __iter__(self) -> Iterator[Any]:
        frameworks.require_running("ap.live")
        if self._of_torch:
            self._dataset.on_epoch_begin()
        batches = self._open().batches(self._epoch, last=True)
        self._epoch += 1
        try:
            for batch in batches:
                if self._packed:
                    yield Packed.unpacked(batch[0])
                else:
                    yield rebuilt(self._outline, (part for part in batch if part is not None))
                del batch  # the loop may be done with it: do not hold it while waiting for the next
        finally:
            end(batches)

    @property
    def changes(self) -> Sequence[Change]:
        """All that was tried so far."""
        watch = getattr(self._loader, "watch", None)
        return () if watch is None else tuple(watch.changes)

    def close(self) -> None:
        """End the workers. May be called more than once."""
        if self._loader is not None:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
