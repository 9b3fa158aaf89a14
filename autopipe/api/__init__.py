"""The Python entry points: build, tune and load. Everything else is imported by them when it is needed."""

from __future__ import annotations

from autopipe.api.loading import load
from autopipe.api.retuning import retune
from autopipe.api.tuning import tune
from autopipe.assembly import build_loader, build_trainer

__all__ = ["build_loader", "build_trainer", "load", "retune", "tune"]
