"""Who asked for a trial: a closed set of kinds, each with what it says more. A study holds it as a word.

How it looks on a screen is the reporter's business.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Self


class Asker(enum.StrEnum):
    """Who may ask for a trial."""

    BASELINE = "baseline"
    """What people have today; `detail` is its name."""
    KNOWN = "known"
    """It did well elsewhere or before."""
    SEED = "seed"
    """Reasoning before the sampler; `detail` says which."""
    ADVICE = "advice"
    """A converted form, measured to be told of."""
    SAMPLER = "sampler"
    """`detail` is its name."""
    AGAIN = "again"
    """A second look at what would end the search; `detail` says why."""
    PROOF = "proof"
    """`detail` is the number of its block."""


@dataclass(frozen=True, slots=True)
class AskedBy:
    """Who asked for a trial."""

    asker: Asker
    detail: str = ""  # see `Asker`

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return what a study's word stands for; one that is no kind's is a sampler's name."""
        kind, _, detail = word.partition(":")
        if kind in (each.value for each in Asker if each is not Asker.SAMPLER):
            return cls(Asker(kind), detail)
        return cls(Asker.SAMPLER, word)

    def __str__(self) -> str:
        """Return the word that a study holds, which `parse` reads."""
        if self.asker is Asker.SAMPLER:
            return self.detail
        return f"{self.asker}:{self.detail}" if self.detail else str(self.asker)

    @property
    def block(self) -> int | None:
        """The confirmation run's block, from 0; None of any other trial."""
        return int(self.detail) if self.asker is Asker.PROOF else None
