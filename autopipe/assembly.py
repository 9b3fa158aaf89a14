"""Puts a workload and a configuration together: the one place that a trial and the user's training both go through."""

from __future__ import annotations

from autopipe.core import fingerprint
from autopipe.core.arrays import ArrayNamespace
from autopipe.core.config import PipelineConfig
from autopipe.core.finish import Finish
from autopipe.core.job import LoadJob, Recipe
from autopipe.core.loader import Loader
from autopipe.core.order import BatchOrder
from autopipe.core.plan import Plan
from autopipe.core.workload import Workload
from autopipe.data import source as data_source
from autopipe.ops.plan import make_plan


def build_loader(
    workload: Workload, config: PipelineConfig, *, shard: tuple[int, int] = (0, 1), plan: Plan | None = None
) -> Loader:
    """Return an open loader: the batches of `workload`, fed as `config` says.

    Args:
        workload: what is trained.
        config: how it is fed.
        shard: `(i, n)` takes the i-th of n disjoint parts of every epoch.
        plan: the workload's plan, if it is known already.

    Raises:
        DataError: samples cannot be read.
        WorkloadError: the ops do not fit the samples.
        LoaderError: the loader cannot start, for want of memory say.
        ConfigError: the configuration cannot be used with this workload.

    Example:
        >>> with build_loader(workload, config) as loader:
        ...     for x, y in loader.epoch(0):
        ...         ...
    """
    config = config.normalised()
    plan = make_plan(workload) if plan is None else plan
    return config.loader.open(_job(workload, config, plan, shard))


def _job(workload: Workload, config: PipelineConfig, plan: Plan, shard: tuple[int, int]) -> LoadJob:
    order = BatchOrder(
        count=len(workload.data),
        batch_size=workload.batch_size,
        seed=workload.seed,
        shuffle=workload.shuffle,
        drop_remainder=workload.drop_remainder,
        shard=shard,
    )
    on_host = config.finish == "host"
    steps = plan.prefix + plan.body + (plan.suffix if on_host else ())
    fixed = len(plan.prefix)
    finish = Finish(
        ops=() if on_host else tuple(step.op for step in plan.suffix),
        specs=() if on_host else tuple(step.before for step in plan.suffix),
        channels_first=config.channels == "first",
    )
    recipe = Recipe(
        source=workload.data,
        steps=steps,
        fixed_steps=fixed,
        fixed_spec=plan.cut(fixed),
        spec=plan.finished if on_host else plan.compact,
        seed=workload.seed,
        on_bad_sample=workload.on_bad_sample,
    )
    return LoadJob(
        recipe=recipe,
        order=order,
        finish=finish,
        cache=config.cache == "memory",
        bad_sample_log=workload.bad_sample_log,
        identity=batches_digest(workload, shard),
        device_arrays=_device_arrays,
    )


def batches_digest(workload: Workload, shard: tuple[int, int] = (0, 1)) -> str:
    """Return the digest of what fixes the sequence of batches."""
    return fingerprint.digest(
        data_source.digest(workload.data),
        fingerprint.ops_digest(tuple(workload.ops)),
        workload.batch_size,
        workload.seed,
        workload.shuffle,
        workload.drop_remainder,
        shard,
    )


def _device_arrays() -> ArrayNamespace:
    from autopipe.devices.arrays import KERAS_OPS

    return KERAS_OPS
