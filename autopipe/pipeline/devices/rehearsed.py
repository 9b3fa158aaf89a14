"""The accelerators of a rehearsed machine: each step takes its time, and batches stay where they are."""

from __future__ import annotations

from typing import Any

from autopipe.pipeline.devices.strategy import SingleDevice


class Rehearsed(SingleDevice):
    """Shares each batch among accelerators that are not here. Sending a batch to them takes no time."""

    def __init__(self, devices: int) -> None:
        super().__init__()
        self.devices = devices

    def check_model(self, model: Any) -> None:
        """Tell the simulated model on how many devices it trains."""
        model.devices = self.devices
