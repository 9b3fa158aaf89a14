"""Diagnoses a training that does not use autopipe: a script, or a running `fit` through a callback."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from autopipe.errors import NothingMeasuredError, TrialError
from autopipe.extensions.diagnose.watched import Watched

if TYPE_CHECKING:
    from autopipe.extensions.diagnose.onlooker import Onlooker


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a diagnosis."""

    script: Path  # the user's own
    arguments: Sequence[str] = ()  # of the script
    seconds: float = 10.0  # of training to look at
    steps: int | None = None  # how many steps instead
    callbacks: bool = False  # run the script's callbacks that may write files, too
    keep_running: bool = False  # let the script go on to its end, and look at every `fit`
    quiet: bool = False  # send the script's stdout to stderr


def diagnose(request: Request) -> tuple[tuple[Watched, ...], int]:
    """Run a script, and return the findings for each `fit` and the script's exit status. Raise TrialError if there is
    no such script, and NothingMeasuredError if the script ended before a training could be watched.
    """
    if not request.script.is_file():
        raise TrialError(
            f"`diagnose` runs a Python script, but there is no file `{request.script}`.",
            hint="For example: autopipe diagnose train.py --epochs 3",
        )
    with tempfile.TemporaryFile() as told:
        status = _run(request, told)
        told.seek(0)
        lines = [json.loads(line) for line in told]
    if lines and lines[-1]["status"] == "failed":
        raise NothingMeasuredError(lines[-1]["message"], hint=lines[-1]["hint"])
    watched = tuple(Watched.model_validate_json(json.dumps(line)) for line in lines if line["status"] != "failed")
    if not watched:
        raise _nothing(request.script, status)
    return watched, status


def _run(request: Request, told: IO[bytes]) -> int:
    from autopipe.measure.trial.child import import_path  # not at import: `Diagnose` needs none of it

    options = [f"--fd={told.fileno()}", f"--seconds={request.seconds}"]
    options += [] if request.steps is None else [f"--steps={request.steps}"]
    options += ["--callbacks"] if request.callbacks or request.keep_running else []
    options += ["--keep-running"] if request.keep_running else []
    command = [
        sys.executable,
        "-m",
        "autopipe.extensions.diagnose.child",
        *options,
        str(request.script),
        *request.arguments,
    ]
    stdout = sys.stderr.fileno() if request.quiet else None
    sys.stdout.flush()
    with _ending_too() as end:
        process = subprocess.Popen(
            command, pass_fds=[told.fileno()], stdout=stdout, env={**os.environ, **import_path()}
        )
        end(process)
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the script gets it, too; the findings so far are shown
                continue


@contextlib.contextmanager
def _ending_too() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Pass SIGTERM on to the script. Yields a function to call with the script's process.

    A signal that arrives while the script starts is passed on as well.
    """
    processes: list[subprocess.Popen[bytes]] = []
    ended = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True
        for process in processes:
            process.terminate()

    def told(process: subprocess.Popen[bytes]) -> None:
        processes.append(process)
        if ended:
            process.terminate()

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before)


def _nothing(script: Path, status: int) -> NothingMeasuredError:
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        return NothingMeasuredError(
            f"`{script}` {how} before a training could be watched.", hint="What it printed itself stands above."
        )
    return NothingMeasuredError(
        f"`{script}` came to its end, but no `fit` of a keras.Model with three steps or more was seen in its process.",
        hint="A training loop of one's own, tf_keras and child processes are not watched. In your own code, pass "
        "callbacks=[ap.Diagnose()] to `fit`.",
    )


def Diagnose(*, seconds: float = 10.0, steps: int | None = None) -> Onlooker:
    """Return a Keras callback that watches a running `fit`, and prints its bottleneck once.

    After some seconds of training, the model runs for about as long on one batch that is already in memory, with copies
    of everything that a step changes. Then the training goes on unchanged. Each epoch's `images_per_second` and
    `data_wait_share` go to the logs, and so to callbacks that come later in the list.

    Args:
        seconds: of training to watch, after the first step, which compiles.
        steps: to watch instead, after the first two.

    Example:
        >>> model.fit(dataset, epochs=3, callbacks=[ap.Diagnose()])  # doctest: +SKIP
    """
    from autopipe.extensions.diagnose.onlooker import Look, Onlooker  # imports Keras

    return Onlooker(_print, Look(seconds=seconds, steps=steps))


def _print(watched: Watched) -> None:
    from autopipe.extensions.diagnose import report
    from autopipe.reports.terminal import Console

    console: Any = Console()
    console.print()
    console.print(report.render(watched), soft_wrap=True, highlight=False)
    if (code := report.to_paste(watched)) is not None:
        console.print(f"\n{code}", soft_wrap=True, highlight=False, markup=False)
