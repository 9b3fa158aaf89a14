"""What a step of a model does. Imports next to nothing: the command line names it in its help."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """What a step does."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"
