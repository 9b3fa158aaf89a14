"""Trains with a configuration that is given, or with none: `ap.build_loader` and `ap.build_trainer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from autopipe.errors import ConfigError, shortened
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.switching import check_tune
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    from autopipe.pipeline.devices.trainer import Trainer

Tune = Literal["live"] | None


def build_loader(
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
        >>> with build_loader(workload, config) as loader:
        ...     for x, y in loader.epoch(0):
        ...         ...
    """
    check_tune(tune, rank)
    config = _checked(workload, config, tune)
    if tune is None:
        return wrap.for_loop(assembly.build_loader(workload, config, shard=shard, rank=rank), workload)
    from autopipe.search import live

    return wrap.for_loop(live.open_loader(workload, config, shard), workload)


def build_trainer(
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
        AutopipeError: any error of `build_loader`.

    Examples:
        >>> ap.build_trainer(workload, tune="live").fit(epochs=3)       # doctest: +SKIP
    """
    check_tune(tune)
    is_known, config = config is not None, _checked(workload, config, tune)
    if not is_known:
        workload, config = assembly.for_short_steps(workload, config)
    trainer = assembly.build_trainer(workload, config, shard=shard)
    from autopipe.search import live

    live.able(trainer, workload, config)
    trainer.tune = tune
    return trainer


def _checked(workload: Workload, config: PipelineConfig | None, tune: Tune) -> PipelineConfig:
    for name, given, kind in (("workload", workload, Workload), ("config", config, PipelineConfig)):
        if not isinstance(given, kind) and (given is not None or name == "workload"):
            hint = "Such as ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=4)))."
            raise ConfigError(f"`{name}` must be an ap.{kind.__name__}, but got {shortened(given)}.", hint=hint)
    if config is not None:
        return config
    if tune is None:
        hint = 'Pass ap.PipelineConfig(loader=ap.Threads(workers=4)), or tune="live", which finds one.'
        raise ConfigError("`config` is missing: it says how the workload is fed.", hint=hint)
    from autopipe.search import quick_look

    return quick_look.first_config(workload)
