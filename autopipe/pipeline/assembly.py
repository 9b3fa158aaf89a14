"""Puts a workload and a configuration together: the one place that a trial and the user's training both use.

Frameworks are imported inside functions only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import shlex
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autopipe.errors import BadSampleError, ConfigError, DataError, ModelError, StorageError, WorkloadError, shortened
from autopipe.hardware import machine, processes
from autopipe.hardware.machine import size_text
from autopipe.pipeline import wrap
from autopipe.pipeline.batching.cache import MemoryCache, PiecesInMemory
from autopipe.pipeline.config import CACHE_SHARE, DEEPEST, STORAGES, Channels, Cut, PipelineConfig
from autopipe.pipeline.loader import Device, Finish, Loader, LoadJob, Recipe, Shared
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.form import Conversion, Folder, Storage
from autopipe.pipeline.switching import beside
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload import digests
from autopipe.workload.data import remote
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import spread
from autopipe.workload.mode import Mode
from autopipe.workload.op import Plan
from autopipe.workload.ops import planner
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.order import BatchOrder, check_part
from autopipe.workload.sample import Source
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    import keras

    from autopipe.pipeline.devices.strategy import DeviceStrategy
    from autopipe.pipeline.devices.trainer import Trainer


# -------------------- the backend: what a loader that keeps samples on the device asks of it


@functools.cache  # so that all loaders have one compiled function
def _device() -> Device:
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return Device(jax.device_put, jax.jit)
    import tensorflow as tf

    from autopipe.pipeline.devices.strategy import SingleDevice

    # By XLA: TensorFlow's own kernels on a GPU do not take all dtypes, and would have bytes copied to the host.
    return Device(SingleDevice().place, functools.partial(tf.function, autograph=False, jit_compile=True))


# -------------------- assembly


def make_loader(
    workload: Workload,
    config: PipelineConfig,
    *,
    shard: tuple[int, int] = (0, 1),
    rank: tuple[int, int] = (0, 1),
    plan: Plan | None = None,
    trace: str | None = None,
) -> Loader:
    """Return an open loader, as `ap.make_loader`. `plan`: of the workload, if known; `trace`: the file of a trace."""
    check_part("rank", rank)
    return opener(workload, shard=shard, rank=rank, plan=plan, trace=trace)(config)


def opener(
    workload: Workload,
    *,
    shard: tuple[int, int] = (0, 1),
    rank: tuple[int, int] = (0, 1),
    plan: Plan | None = None,
    trace: str | None = None,
    shared: Shared | None = None,
) -> Callable[[PipelineConfig], Loader]:
    """Return a function that opens a loader of a configuration, see `make_loader`. The loaders that it opens share
    memory caches and converted sets, so that one can go on with the work of another; also with others of `shared`.
    """
    made_of = make_plan(workload) if plan is None else plan
    order, shared = batch_order(workload, shard, rank), shared or Shared()
    # It looks at many files, so it runs beside the first batches.
    identity = functools.cache(lambda: beside(functools.partial(batches_digest, workload, shard)).result)

    def open_loader(config: PipelineConfig) -> Loader:
        wrap.require_feedable(workload, config, rank)
        if config.loader.keeps_freed_memory:
            processes.keep_freed_memory()
        job = LoadJob(
            recipe=dataclasses.replace(recipe_of(workload, config, made_of, shared), trace=trace),
            order=order,
            finish=Finish.left(made_of, config.model_setup),
            bad_sample_log=workload.bad_sample_log,
            identity=identity(),
            device=_device,
            setup=config.model_setup,
            shared=shared,
        )
        began, pieces, cache, seconds = time.monotonic(), job.recipe.pieces, None, 0.0
        free = machine.detect_memory().available_bytes
        if pieces is not None and not config.loader.works_elsewhere and MemoryCache.bytes_to_come(job) < free:
            # Samples are cut at random: they would come upon all the pieces only after many epochs.
            cache = MemoryCache.shared(job)  # held until the loader holds it
            with processes.library_threads():
                pieces.fill(cache, machine.usable_cores())
            seconds = time.monotonic() - began
        loader = config.loader.open(job)
        loader.fill_seconds += seconds
        del cache
        return loader

    return open_loader


# Of pieces by their source: a plan reads some of them, each of which may be a whole scene.
_PLANS: weakref.WeakKeyDictionary[Source, Plan] = weakref.WeakKeyDictionary()


def in_pieces(workload: Workload, plan: Plan) -> tuple[Workload, Plan]:
    """Return workload and plan of what is kept in place of samples: itself, unless epochs cut them out of pieces."""
    if (pieces := data_source.pieces(workload.data)) is None:
        return workload, plan
    found = dataclasses.replace(workload, data=pieces, ops=(), batch_size=1, validation=None)
    if (known := _PLANS.get(pieces)) is None:
        known = _PLANS[pieces] = make_plan(found)
    return found, known


def make_trainer(
    workload: Workload,
    config: PipelineConfig,
    *,
    shard: tuple[int, int] = (0, 1),
    serving: Mapping[Mode, PipelineConfig] | None = None,
) -> Trainer:
    """Return a trainer, as `ap.make_trainer`; `serving` are its configurations in other modes, if they differ."""
    from autopipe.pipeline.devices.trainer import Trainer

    plan = make_plan(workload)
    strategy, model = build_model(workload, devices=config.devices, channels=config.channels)
    order = batch_order(workload, shard, strategy.rank)
    strategy.check_rows(order.batch_samples(order.batches - 1))  # now, not at the end of the first epoch
    opened = opener(workload, shard=shard, rank=strategy.rank, plan=plan)
    same = {"devices": config.devices, "channels": config.channels}  # as the model was built

    def over(config: PipelineConfig) -> Callable[[Source, int], Loader]:
        return functools.partial(evaluation_loader, workload, config, rank=strategy.rank, model=model)

    with contextlib.ExitStack() as stack:
        loader, ahead = stack.enter_context(opened(config)), config.device_prefetch
        trainer = Trainer(model, loader, strategy=strategy, device_prefetch=ahead, evaluation_loader=over(config))
        stack.pop_all()  # it is the trainer's from here on
    trainer.setup, trainer.opened = config.model_setup, opened
    trainer.workload, trainer.config = workload, config
    trainer.validation = workload.validation
    trainer.serving = {mode: over(each.model_copy(update=same)) for mode, each in (serving or {}).items()}
    return trainer


_SHORT_SECONDS = 0.003  # a model has short steps if its forward pass takes no longer
_STEPS_OF_A_CALL = 32  # that such a model trains by one call of its function


def for_short_steps(workload: Workload, config: PipelineConfig) -> tuple[Workload, PipelineConfig]:
    """Have a model of short steps train several by one call, which cannot change while it trains. Only TensorFlow's
    calls are known to cost so much. The workload that is returned has its model built.
    """
    import keras

    from autopipe.pipeline.devices import model as models

    if keras.backend.backend() != "tensorflow":
        return workload, config
    _, model = build_model(workload, devices=config.devices, channels=config.channels)
    together = _STEPS_OF_A_CALL if models.forward_seconds(model, workload.batch_size) <= _SHORT_SECONDS else 1
    return dataclasses.replace(workload, model=model), config.model_copy(update={"steps_per_execution": together})


def build_model(workload: Workload, *, devices: int, channels: Channels) -> tuple[DeviceStrategy, keras.Model]:
    """Return device strategy and model, built in its scope. Raise ModelError if there is none, or too few devices."""
    from autopipe.pipeline.devices import model as models
    from autopipe.pipeline.devices import strategy as strategies

    if workload.model is None:
        raise ModelError(
            "The workload has no `model`, so nothing can be trained.", hint="Pass model=build_model to ap.Workload."
        )
    strategy = strategies.chosen(devices)
    return strategy, models.build(workload.model, channels=channels, strategy=strategy)


def evaluation_loader(
    workload: Workload,
    config: PipelineConfig,
    data: Source,
    passes: int | None = None,
    *,
    rank: tuple[int, int] = (0, 1),
    model: keras.Model | None = None,
) -> Loader:
    """Return a loader over other data, in order and without chance, for validation and prediction. Data that do not
    fill a batch are one smaller batch. `passes`: how often they are read. `rank`: see `make_loader`, also for errors.
    Raise WorkloadError if there are no samples, or they differ in size, and ModelError if `model` does not take them.
    """
    try:
        over = for_evaluation(workload, data)
        config, plan = _config_of_evaluation(config, over, passes)
        with contextlib.ExitStack() as stack:
            loader = stack.enter_context(make_loader(over, config, rank=rank, plan=plan))
            if model is not None:
                from autopipe.pipeline.devices import model as models  # imports Keras

                models.check_inputs(model, loader)
            stack.pop_all()
    except WorkloadError as error:  # about the samples' size, which one of the ops that are left out may set
        names = ", ".join(f"`{op.name}`" for op in workload.ops if op.without_chance() is None)
        if not names or isinstance(error, DataError):
            raise
        raise type(error)(
            f"{error.message} Validation and prediction leave out what is random: {names}.",
            hint="If one of them sets the size, let its `without_chance` return an op that sets it, too; "
            "or pass a loader of these samples, made by ap.make_loader, in their place.",
        ) from error
    return loader


def for_evaluation(workload: Workload, data: Source) -> Workload:
    """Return the workload over data to validate or predict, in order: random ops are left out, or replaced."""
    if getattr(data, "first_op", None) is not None:
        raise WorkloadError(
            f"Validation and prediction take the same samples each time, but {shortened(data)} chooses them at random.",
            hint="Pass a grid, or another source whose samples do not change from epoch to epoch.",
        )
    ops = tuple(op for op in (each.without_chance() for each in workload.ops) if op is not None)
    size = min(workload.batch_size, max(1, len(data)))
    return dataclasses.replace(
        workload, data=data, ops=ops, batch_size=size, shuffle=False, drop_remainder=False, validation=None
    )


class CacheWarning(UserWarning):
    """Samples are read each time, because there is no room to keep them in memory."""


def _config_of_evaluation(
    config: PipelineConfig, over: Workload, passes: int | None
) -> tuple[PipelineConfig, Plan | None]:
    """Return a configuration for the samples of `over`, and their plan if that was made: from their files, and without
    a cache if they are read once or memory has no room. What caches of this process have yet to take counts as taken.
    """
    config = config.in_evaluation(math.ceil(len(over.data) / over.batch_size))
    if passes == 1:
        config = config.model_copy(update={"keep": "none"})
    if not config.kept.in_memory or config.loader.works_elsewhere:  # there, the loader looks for room itself
        return config, None
    plan = make_plan(over)
    needed = MemoryCache.bytes_needed(recipe_of(over, config, plan))
    free = max(0, machine.detect_memory().available_bytes - MemoryCache.unfilled_bytes())
    if needed > CACHE_SHARE * free:
        config = config.model_copy(update={"keep": "none"})
        warnings.warn(
            f"The {len(over.data)} samples for validation or prediction are read anew each time: a cache of them takes "
            f"{size_text(needed)}, but {size_text(free)} are free besides what other caches will take, and it may use "
            f"{CACHE_SHARE:.0%} of that. Use smaller images, or keep a part with `memory:50%`, to leave more room.",
            CacheWarning,
            stacklevel=4,
        )
    return config, plan


def batch_order(workload: Workload, shard: tuple[int, int] = (0, 1), rank: tuple[int, int] = (0, 1)) -> BatchOrder:
    """Return which samples make this rank's batches. Raise ConfigError if processes cannot share a batch equally."""
    if workload.batch_size % rank[1]:
        raise ConfigError(
            f"Each batch must divide equally between {rank[1]} processes, but `batch_size` is {workload.batch_size}.",
            hint=f"Use a batch size that is a multiple of {rank[1]}.",
        )
    return BatchOrder(
        count=len(workload.data),
        batch_size=workload.batch_size // rank[1],
        rank=rank,
        seed=workload.seed,
        shuffle=bool(workload.shuffle),
        blocks=workload.blocks,
        drop_remainder=workload.drop_remainder,
        shard=shard,
    )


def recipe_of(workload: Workload, config: PipelineConfig, plan: Plan, shared: Shared | None = None) -> Recipe:
    """Return the recipe of a workload's samples in a configuration."""
    if config.keep != "none" and data_source.pieces(workload.data) is not None:
        return _recipe_of_cuts(workload, config, plan, shared or Shared())
    source, done = _stored(workload, config, plan, shared or Shared())
    if isinstance(source, WrappedData) and config.loader.kind != "wrapped":
        dataset = source.make(source.defaults | config.arguments).dataset
        source = source.indexed(dataset, whole=workload.drop_remainder)
    recipe, kept = Recipe.of(workload, plan, source=source, done=done, finish=config.finish), config.kept
    if not (kept.in_memory or config.loader.keeps_on_device):
        return recipe
    if kept.encoded:
        recipe = dataclasses.replace(recipe, fixed_steps=0, fixed_spec=plan.cut(done))
    return dataclasses.replace(recipe, cached=kept.part, kept_bytes=kept_bytes(recipe))


def _recipe_of_cuts(workload: Workload, config: PipelineConfig, plan: Plan, shared: Shared) -> Recipe:
    whole, of_pieces = in_pieces(workload, plan)
    source, _ = _stored(whole, config, of_pieces, shared)
    kept: Any = PiecesInMemory(source, of_pieces.source) if config.kept.in_memory else source
    workload = dataclasses.replace(workload, data=data_source.over(workload.data, kept))
    recipe = Recipe.of(workload, make_plan(workload), finish=config.finish)
    if not config.kept.in_memory:
        return recipe
    return dataclasses.replace(recipe, cached=config.kept.part, fixed_spec=of_pieces.source, pieces=kept)


_PROBES = 64


def kept_bytes(recipe: Recipe) -> float:
    """Estimate the mean bytes of a kept sample from some, plus two standard errors; 0 if all have one size."""
    if recipe.fixed_spec.is_fixed:
        return 0.0

    def size(index: int) -> int | None:
        with contextlib.suppress(BadSampleError):
            steps = recipe.steps[: recipe.fixed_steps]
            return data_source.sample_bytes(planner.prepared(steps, recipe.source, index, recipe.spec.structure))
        return None

    positions = spread(len(recipe.source), _PROBES)
    sizes = [found for found in remote.at_once(size, positions) if found is not None]  # reads may wait
    return float(np.mean(sizes) + 2 * np.std(sizes) / math.sqrt(len(sizes))) if sizes else 0.0


def _stored(workload: Workload, config: PipelineConfig, plan: Plan, shared: Shared) -> tuple[Source, int]:
    if not config.kept.converts:
        return workload.data, 0
    storage: Storage = STORAGES[config.kept.form]
    cut = config.kept.cut
    conversion = conversion_of(workload, plan, storage, cut)
    root = Folder.of(workload.converted)
    try:
        found: Source = shared.get(("set", storage.name, cut), lambda: layout.find(root, conversion, storage))
        return found, conversion.cut
    except StorageError as error:
        folder = root / set_name(storage.name, cut)
        first = f"Remove `{folder}`, then run" if layout.is_of_another(folder, conversion, storage) else "Run"
        to = f"{storage.name}{'' if cut == DEEPEST else f' --cut {cut}'} --out {shlex.quote(str(folder))}"
        hint = f"{first} `autopipe convert` for this workload, with --to {to}"
        raise StorageError(error.message, hint=hint) from error


def set_name(storage: str, cut: Cut = DEEPEST) -> str:
    """Return the default name of the folder of a set."""
    return storage if cut == DEEPEST else f"{storage}-{cut}"


def conversion_of(workload: Workload, plan: Plan, storage: Storage, cut: Cut = DEEPEST) -> Conversion:
    """Return the conversion of a workload to a storage form, which holds samples after `cut` of the deterministic first
    ops, "deepest": after as many as the form can hold. Raise ConfigError if the form cannot hold these samples, or not
    after so many ops; or if the data are a wrapped dataset.
    """
    if isinstance(workload.data, WrappedData):
        raise ConfigError(
            "A wrapped dataset makes its own batches, so its samples cannot be kept in another form.",
            hint="Convert what its function reads instead: make a workload of the files, with ap.ImageFolder say.",
        )
    workload, plan = in_pieces(workload, plan)
    if not (cuts := storage.cuts(plan)):
        hint = "tfrecord keeps images as they are encoded, with a label or a mask, and array keeps arrays of one shape."
        raise ConfigError(f"The form {storage.name} cannot keep these samples after any of the first ops.", hint=hint)
    cut = cuts[-1] if cut == DEEPEST else cut
    if cut not in cuts:
        raise ConfigError(
            f"The form {storage.name} keeps these samples after {' or '.join(map(str, cuts))} of the first ops, "
            f"but got {cut}.",
            hint=f"Use one of these, or `{storage.name}` alone for as many as it can.",
        )
    return Conversion.of(workload, plan, cut)


def batches_digest(workload: Workload, shard: tuple[int, int] = (0, 1)) -> str:
    """Return the digest of everything that fixes the sequence of batches."""
    return digests.digest(
        data_source.undated(data_source.first_digest(workload.data)),
        digests.ops_digest(tuple(workload.ops)),
        workload.batch_size,
        workload.seed,
        workload.shuffle,
        workload.drop_remainder,
        shard,
    )
