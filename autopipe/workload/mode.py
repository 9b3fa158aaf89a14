"""The kinds of a model's step. Imports next to nothing: the command line names it in its help."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """The kind of a step."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"
