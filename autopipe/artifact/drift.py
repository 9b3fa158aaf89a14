"""Drift while training: is the tuned pipeline still as fast as it was when it was measured?

`shortfall` decides; the watching itself is `autopipe.pipeline.devices.monitor`'s, and a check without a training
`autopipe.artifact.check`'s.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autopipe import again
from autopipe.artifact import exports
from autopipe.hardware import cpu
from autopipe.values import Estimate

if TYPE_CHECKING:
    from autopipe.pipeline.devices.monitor import EpochFigures, EpochMonitor

LEAST_SHARE: Final = 0.5
"""A training below this share of its promise is too slow, however wide the interval of the promise is."""

WAIT_TOLERANCE: Final = 0.02
"""A data-wait share differs by so much from one run to the next."""


_OTHERS_CORES: Final = 0.3
_OTHERS_SHARE: Final = 0.15
"""Others that keep more of the cores busy than this are in the way; a machine's own services are not."""


class DriftWarning(UserWarning):
    """A training is slower than its pipeline was when it was tuned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the artefact says of a pipeline."""

    images_per_second: Estimate  # measured when it was tuned
    data_wait_share: float  # measured when it was tuned
    cores: int | None = None  # that it could use then; None where that is not known
    warm_up_epochs: int = 0  # epochs that do not count, because a cache fills in them
    artifact: Path = Path("autopipe.json")  # where it is


class Cause(enum.StrEnum):
    """Why a training is slower than its pipeline was when it was tuned."""

    FEWER_CORES = "fewer cores"
    """This process may use fewer of them than then."""
    NEIGHBOURS = "cores taken by others"
    """It waits for data, and others on the machine keep cores busy."""
    DATA = "storage or loader"
    """It waits for data, and nobody else is in the way: reads, files or versions of libraries have changed."""
    MODEL = "model"
    """It waits no longer for data: the model, its callbacks or the device are slower (heat, other versions)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How a training falls short, and why."""

    cause: Cause
    sentence: str  # the same with figures and the command to run


def shortfall(promise: Promise, figures: EpochFigures, cores: int) -> Drift | None:
    """Say how a training on so many `cores` is slower than promised; None unless by more than the interval, or half."""
    then = promise.images_per_second
    rate, waits = figures.images_per_second, figures.data_wait_share
    if then.value - rate <= min(then.high - then.low, LEAST_SHARE * then.value):
        return None
    said = (
        f"The training takes {rate:.0f} images/s, {1 - rate / then.value:.0%} less than the {then.value:.0f} when its "
        "pipeline was tuned"
    )
    waited = f"{said}, and waits for data {waits:.0%} of the time ({promise.data_wait_share:.0%} then)"
    retune, check = (f"Run: {again.autopipe(each, str(promise.artifact))}" for each in ("retune", "check"))
    if promise.cores is not None and cores < promise.cores:
        return Drift(
            cause=Cause.FEWER_CORES,
            sentence=f"{said}: it may use {cores} of the {promise.cores} cores that it had then. {retune}",
        )
    if waits <= promise.data_wait_share + WAIT_TOLERANCE:
        model = f"{said}, but waits no longer for data ({waits:.0%} of the time)"
        return Drift(cause=Cause.MODEL, sentence=f"{model}: the model, its callbacks or the device are slower. {check}")
    if figures.cores_of_others > max(_OTHERS_CORES, _OTHERS_SHARE * cores):
        others = f"others on this machine keep {figures.cores_of_others:.1f} of its cores busy"
        return Drift(cause=Cause.NEIGHBOURS, sentence=f"{waited}: {others}. {check}")
    return Drift(cause=Cause.DATA, sentence=f"{waited}. {retune}")


def DriftMonitor(
    *,
    jsonl: str | os.PathLike[str] | None = None,
    prometheus: str | os.PathLike[str] | None = None,
    **exporters: Any,
) -> EpochMonitor:
    """Return a Keras callback that compares a training with what its artefact promises.

    Each epoch's `images_per_second`, `data_wait_share`, `cores_of_others` and `lost_workers` go to the logs, and so to
    `TensorBoard`, and to the callbacks of MLflow and Weights & Biases, where these come later in the list. A
    `DriftWarning` is given once, with the cause and the command to run, when the training falls short by more than the
    interval of the recorded rate.

    Args:
        jsonl: a file to which each epoch adds a line of JSON, for collectors of logs.
        prometheus: a file that holds the figures of the last epoch in Prometheus's text format, as node_exporter's
            textfile collector reads it.
        exporters: other places for the figures of each epoch, by the names of exporters of extensions. With
            `otel=True`, each epoch sets OpenTelemetry gauges, `autopipe.images_per_second` and so on, of the global
            meter provider; another provider may stand in place of True (extra `otel`).

    Raises:
        ConfigError: an exporter is unknown.
        MissingExtraError: an exporter needs a package that is not installed.

    Example:
        >>> tuned.make_trainer().fit(epochs=3, callbacks=[ap.DriftMonitor()])  # doctest: +SKIP
    """
    asked = {name: value for name, value in exporters.items() if value is not False}
    made = [exports.exporter(name, value, tuple(Cause)) for name, value in asked.items()]
    from autopipe.pipeline.devices.monitor import EpochMonitor  # imports Keras

    return EpochMonitor(_Judge(jsonl, prometheus, made))


class _Judge:
    """Compares every epoch, hands the figures on, and warns once."""

    def __init__(
        self,
        jsonl: str | os.PathLike[str] | None,
        prometheus: str | os.PathLike[str] | None,
        exporters: Sequence[exports.Exporter] = (),
    ) -> None:
        self._jsonl = jsonl
        self._prometheus = prometheus
        self._exporters = exporters
        self._warned = False
        self._unwritten = False

    def __call__(self, trainer: Any, epoch: int, figures: EpochFigures) -> None:
        promise = getattr(trainer, "promise", None)
        drift = promised = None
        if isinstance(promise, Promise):
            promised = promise.images_per_second.value
            if epoch >= promise.warm_up_epochs:
                drift = shortfall(promise, figures, cpu.usable_cores())
        values = {**dataclasses.asdict(figures), "cause": None if drift is None else drift.cause.value}
        values |= {"epoch": epoch, "promised_images_per_second": promised}
        self._export(values)
        if drift is not None and not self._warned:
            self._warned = True
            warnings.warn(drift.sentence, DriftWarning, stacklevel=2)

    def _export(self, values: dict[str, Any]) -> None:
        """Hand the figures on; no training ends because a file cannot be written."""
        for exporter in self._exporters:
            exporter.set(values)
        try:
            if self._jsonl is not None:
                exports.append_line(self._jsonl, values)
            if self._prometheus is not None:
                exports.write_prometheus(self._prometheus, values)
        except OSError as error:
            if not self._unwritten:
                self._unwritten = True
                warnings.warn(f"The figures of this training cannot be written: {error}.", DriftWarning, stacklevel=3)
