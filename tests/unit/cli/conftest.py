"""The command line, in this process."""

import dataclasses
import functools
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import typer

from autopipe import registry
from autopipe.cli import main


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    def refused(self) -> str:
        """Return the error of a command that was used wrongly; require that nothing else was printed."""
        assert (self.status, self.out) == (2, "")
        return self.err

    def done(self) -> str:
        """Return what was said of a command that succeeded and has no result to print."""
        assert (self.status, self.out) == (0, ""), self.err
        return self.err


Autopipe = Callable[..., Ended]
Patch = pytest.MonkeyPatch


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The working directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def photos(folder: Path, each: int = 4) -> Path:
    """Write two classes of small images; the odd ones are JPEG files."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = cv2.resize(rng.integers(0, 256, (6, 8, 3), np.uint8), (60, 40))
            cv2.imwrite(str(folder / name / f"{number}.{'jpg' if number % 2 else 'png'}"), pixels)
    return folder


APPLICATION = main.application


@functools.cache
def built(_: object) -> Callable[..., None]:
    """Build the command for the commands that are installed, which takes as long as what many tests do with it."""
    return typer.main.get_command(APPLICATION())


@pytest.fixture
def autopipe(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]) -> Iterator[Autopipe]:
    """Run `autopipe ARGUMENTS` here, and return how it ended."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(main, "application", lambda: built(registry.loaded))

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["autopipe", *map(str, arguments)])
        status: object = 0
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # the command shows them; here they would be errors
            try:
                main.main()
            except SystemExit as end:
                status = end.code
        said = capsys.readouterr()
        return Ended(status if isinstance(status, int) else 0, said.out, said.err)

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)
