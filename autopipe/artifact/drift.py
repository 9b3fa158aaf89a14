"""Drift while training: compares the tuned pipeline's speed with the measured one, and exports the figures.

`shortfall` decides; `autopipe.pipeline.devices.monitor` watches the training, and `autopipe.artifact.check` checks
without one. The exports write lines of JSON, Prometheus's text format, or call exporters of extensions.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from autopipe import again, registry
from autopipe.errors import ConfigError, near
from autopipe.hardware import disk, machine
from autopipe.values import Estimate

if TYPE_CHECKING:
    from autopipe.pipeline.devices.monitor import EpochFigures, EpochMonitor


# -------------------- exports

GROUP: Final = "autopipe.exporters"
HELP: Final = {
    "images_per_second": "Samples trained a second in the last epoch.",
    "promised_images_per_second": "The same when the pipeline was tuned.",
    "data_wait_share": "Part of the time that the training waited for data, 0 to 1.",
    "cores_of_others": "Cores that others kept busy, of those that this process may use.",
    "lost_workers": "Workers of the loader that died in the last epoch, and were replaced.",
}
DRIFTED: Final = "Whether training is slower than promised."


def append_line(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Append a line of JSON with the time, in seconds since 1970, to a file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": round(time.time(), 3), **values}) + "\n")


def write_prometheus(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write the figures as gauges atomically, in place of those of the epoch before.

    The format is Prometheus's text exposition format, version 0.0.4.
    """
    lines = []
    for name, help_text in HELP.items():
        if values.get(name) is not None:
            metric = f"autopipe_{name}"
            lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge", f"{metric} {values[name]:.6g}"]
    cause = values.get("cause")
    labels = "" if cause is None else f'{{cause="{cause}"}}'
    lines += [f"# HELP autopipe_drifted {DRIFTED}", "# TYPE autopipe_drifted gauge"]
    lines.append(f"autopipe_drifted{labels} {int(cause is not None)}")
    with disk.replacing(Path(path)) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


class Exporter(Protocol):
    """Takes the figures of each epoch."""

    def set(self, values: Mapping[str, Any], /) -> None:
        """Take the figures of an epoch: those of `HELP`, some of them None, and `cause`, None without a drift."""
        ...


def exporter(name: str, value: Any, causes: Collection[str]) -> Exporter:
    """Make the exporter that an installed package has under a name, in the entry point group `autopipe.exporters`.

    `value` is its argument, such as True, which the exporter checks; `causes` are all possible values of `cause`.
    Raises ConfigError if the exporter does not exist, and MissingExtraError if a package that it needs is not
    installed.
    """
    made = registry.named(name, GROUP)
    if made is None:
        known = ["jsonl", "prometheus", *(entry.name for entry in registry.declared(GROUP))]
        raise ConfigError(f"`DriftMonitor` takes {', '.join(known)}, but got `{name}`.{near(name, known)}")
    found: Exporter = made(value, causes)
    return found


# -------------------- drift

LEAST_SHARE: Final = 0.5
"""A training below this share of its promise is too slow, however wide the interval of the promise is."""

WAIT_TOLERANCE: Final = 0.02
"""The usual variation of a data-wait share between runs."""


_OTHERS_CORES: Final = 0.3
_OTHERS_SHARE: Final = 0.15
"""Other programs slow a training down if they use more of the cores; a machine's own services use less."""


class DriftWarning(UserWarning):
    """A training is slower than its pipeline was when it was tuned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The artefact's figures of a pipeline."""

    images_per_second: Estimate  # measured when it was tuned
    data_wait_share: float  # measured when it was tuned
    cores: int | None = None  # that it could use then; None if not known
    warm_up_epochs: int = 0  # epochs that do not count, because a cache fills in them
    artifact: Path = Path("autopipe.json")  # its file


class Cause(enum.StrEnum):
    """Why a training is slower than its pipeline was when it was tuned."""

    FEWER_CORES = "fewer cores"
    """This process may use fewer of them than then."""
    NEIGHBOURS = "cores taken by others"
    """It waits for data, and other programs keep cores busy."""
    DATA = "storage or loader"
    """It waits for data without other programs' load: reads, files or versions of libraries have changed."""
    MODEL = "model"
    """It waits no longer for data: the model, its callbacks or the device are slower (heat, other versions)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The shortfall of a training, and its cause."""

    cause: Cause
    sentence: str  # the same with figures and the command to run


def shortfall(promise: Promise, figures: EpochFigures, cores: int) -> Drift | None:
    """Return the drift of a training on this many `cores`; None unless it exceeds the interval, or half the rate."""
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
    """Return a Keras callback that compares a training with the promise of its artefact.

    Each epoch's `images_per_second`, `data_wait_share`, `cores_of_others` and `lost_workers` go to the logs, and so to
    `TensorBoard`, and to the callbacks of MLflow and Weights & Biases, if these come later in the list. A
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
    made = [exporter(name, value, tuple(Cause)) for name, value in asked.items()]
    from autopipe.pipeline.devices.monitor import EpochMonitor  # imports Keras

    return EpochMonitor(_Judge(jsonl, prometheus, made))


class _Judge:
    """Compares every epoch, exports the figures, and warns once."""

    def __init__(
        self,
        jsonl: str | os.PathLike[str] | None,
        prometheus: str | os.PathLike[str] | None,
        exporters: Sequence[Exporter] = (),
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
                drift = shortfall(promise, figures, machine.usable_cores())
        values = {**dataclasses.asdict(figures), "cause": None if drift is None else drift.cause.value}
        values |= {"epoch": epoch, "promised_images_per_second": promised}
        self._export(values)
        if drift is not None and not self._warned:
            self._warned = True
            warnings.warn(drift.sentence, DriftWarning, stacklevel=2)

    def _export(self, values: dict[str, Any]) -> None:
        """Export the figures; a file that cannot be written does not end a training."""
        for exporter in self._exporters:
            exporter.set(values)
        try:
            if self._jsonl is not None:
                append_line(self._jsonl, values)
            if self._prometheus is not None:
                write_prometheus(self._prometheus, values)
        except OSError as error:
            if not self._unwritten:
                self._unwritten = True
                warnings.warn(f"The figures of this training cannot be written: {error}.", DriftWarning, stacklevel=3)
