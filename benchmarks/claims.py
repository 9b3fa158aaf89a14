"""What a benchmark claims: a figure beside its target."""

from __future__ import annotations

import argparse
import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """One line of a benchmark's result.

    Attributes:
        what: is claimed.
        figure: that was found.
        target: what it has to be.
        met: whether it is; None where there is nothing to reach.
    """

    what: str
    figure: str
    target: str = "reported"
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {True: "met", False: "MISSED", None: ""}[self.met]
        return f"{self.what:78} {self.figure:>34}  {self.target:26} {verdict}".rstrip()


def at_least(what: str, target: float, found: float) -> Claim:
    """Return the claim that `found` is `target` or more."""
    return Claim(what, f"{found:.3f}", f">= {target:g}", found >= target)


def at_most(what: str, target: float, found: float) -> Claim:
    """Return the claim that `found` is `target` or less."""
    return Claim(what, f"{found:.3f}", f"<= {target:g}", found <= target)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of what every benchmark of whole data sets takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", help="folder of photographs, one folder a class")
    parser.add_argument("--camvid", help="folder with images/, masks/ and palette.csv")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each row")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a block")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser
