"""Drift while training: is the tuned pipeline still as fast as it was when it was measured?

`shortfall` decides; the watching itself is `autopipe.devices.monitor`'s, and a check without a training
`autopipe.tuned.check`'s.
"""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autopipe.core.value import Estimate

if TYPE_CHECKING:
    from autopipe.devices.monitor import EpochFigures, EpochMonitor

WAIT_TOLERANCE: Final = 0.02
"""A data-wait share differs by so much from one run to the next."""


class DriftWarning(UserWarning):
    """A training is slower than its pipeline was when it was tuned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the artefact says of a pipeline.

    Attributes:
        images_per_second: measured when it was tuned.
        data_wait_share: measured when it was tuned.
        warm_up_epochs: epochs that do not count, because a cache fills in them.
        artifact: where it is.
    """

    images_per_second: Estimate
    data_wait_share: float
    warm_up_epochs: int = 0
    artifact: Path = Path("autopipe.json")


def shortfall(promise: Promise, images_per_second: float, data_wait_share: float) -> str | None:
    """Say by how much a training is slower than promised, or return None if it is not, by more than the interval."""
    then = promise.images_per_second
    if then.value - images_per_second <= then.high - then.low:
        return None
    where = shlex.quote(str(promise.artifact))
    said = (
        f"The training takes {images_per_second:.0f} images/s, {1 - images_per_second / then.value:.0%} less than the "
        f"{then.value:.0f} when its pipeline was tuned"
    )
    if data_wait_share > promise.data_wait_share + WAIT_TOLERANCE:
        return (
            f"{said}, and waits for data {data_wait_share:.0%} of the time ({promise.data_wait_share:.0%} then). "
            f"Run: autopipe retune {where}"
        )
    return (
        f"{said}, but waits no longer for data ({data_wait_share:.0%} of the time): the model, its callbacks or the "
        f"device are slower. Run: autopipe check {where}"
    )


def DriftMonitor() -> EpochMonitor:
    """Return a Keras callback that compares a training with what its artefact promises.

    Each epoch's `images_per_second` and `data_wait_share` go to the logs, and so to `TensorBoard`, if that comes later
    in the list. A `DriftWarning` is given once, with the command to run, when the training falls short by more than
    the interval of the recorded rate.

    Example:
        >>> tuned.make_trainer().fit(epochs=3, callbacks=[ap.DriftMonitor()])  # doctest: +SKIP
    """
    from autopipe.devices.monitor import EpochMonitor  # imports Keras

    return EpochMonitor(_Judge())


class _Judge:
    """Compares every epoch, and warns once."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, trainer: Any, epoch: int, figures: EpochFigures) -> None:
        promise = getattr(trainer, "promise", None)
        if self._warned or not isinstance(promise, Promise) or epoch < promise.warm_up_epochs:
            return
        said = shortfall(promise, figures.images_per_second, figures.data_wait_share)
        if said is not None:
            self._warned = True
            warnings.warn(said, DriftWarning, stacklevel=2)
