"""Runs a training script, which is watched in a process of its own: `ap.diagnose`, and the command of that name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Group

from autopipe.errors import ConfigError, NothingMeasuredError, TrialError, shortened
from autopipe.extensions.diagnose import watched
from autopipe.extensions.diagnose.watched import Watched
from autopipe.hardware import processes
from autopipe.reports.answer import Answer
from autopipe.values import seconds


def diagnose(
    script: str | Path,
    *arguments: str,
    time: float | str = 10.0,
    steps: int | None = None,
    callbacks: bool = False,
    keep_running: bool = False,
) -> Answer[tuple[Watched, ...]]:
    """Run a training script, and tell for each `fit` whether it waits for data, and how much there is to gain.

    Once enough was seen the script is ended, before it could save anything.

    Args:
        script: the training script, as it is; or a module's name, as after `python -m`.
        arguments: what the script takes.
        time: how much training to look at: seconds, or a text such as "10s".
        steps: how many steps to look at instead.
        callbacks: run the script's callbacks that may write files, too.
        keep_running: let the script go on to its end, and look at every fit.

    Raises:
        TrialError: there is no such script.
        NothingMeasuredError: it ended before enough of a training was seen.

    Examples:
        >>> ap.diagnose("train.py", "--epochs", "3")    # doctest: +SKIP
    """
    if not isinstance(script, str | os.PathLike):
        raise ConfigError(
            f"`script` must be the path of a training script, but got {shortened(script)}.",
            hint="In a notebook, or in a loop of your own, `for x, y in ap.watch(dataset):` tells whether it waits.",
        )
    found, _ = run(Path(script), arguments, time=time, steps=steps, callbacks=callbacks, keep_running=keep_running)
    return Answer(tuple(found), Group(*(part for each in found for part in watched.parts(each))))


def run(  # noqa: PLR0913  as `diagnose`
    script: Path,
    arguments: Sequence[str] = (),
    *,
    time: float | str = 10.0,
    steps: int | None = None,
    callbacks: bool = False,
    keep_running: bool = False,
    quiet: bool = False,
) -> tuple[list[Watched], int]:
    """Run a script as `diagnose` does, its stdout to stderr if `quiet`; return the findings and its exit status."""
    if steps is not None and steps < 1:
        raise ConfigError(f"`steps` must be a whole number of 1 or more, but got {steps!r}.")
    if (long := seconds(time, "time")) < _LEAST_SECONDS:
        raise ConfigError(f"`time` must be at least {_LEAST_SECONDS:g} s, but got {time!r}.")
    if script.suffix == ".ipynb":
        raise TrialError(
            f"`diagnose` runs a Python script, but `{script}` is a notebook.",
            hint="In the notebook: import autopipe as ap, then model.fit(..., callbacks=[ap.Diagnose()]), or, in a "
            "loop of your own, for batch in ap.watch(batches).",
        )
    module = None if script.is_file() else str(script)
    forms = [] if module is None else [f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__main__.py"]
    script = next((path for each in forms if (path := Path(each)).is_file()), script)
    if not script.is_file():
        raise TrialError(
            f"`diagnose` runs a Python script, but `{script}` is {'a folder' if script.is_dir() else 'not there'}.",
            hint="For example: autopipe diagnose train.py --epochs 3",
        )
    child, stdout = "autopipe.extensions.diagnose.child", sys.stderr.fileno() if quiet else None
    with tempfile.TemporaryFile() as told:
        asked = {"seconds": long, "steps": steps, "callbacks": callbacks or keep_running, "keep_running": keep_running}
        asked_of_child = json.dumps({**asked, "module": module, "fd": told.fileno()})
        command = [*processes.started(child), asked_of_child, str(script), *arguments]
        sys.stdout.flush()
        status = _run(lambda: subprocess.Popen(command, pass_fds=[told.fileno()], stdout=stdout))
        told.seek(0)
        lines = [(json.loads(line), line) for line in told]
    notes = {read["about"]: read["message"] for read, _ in lines if read["status"] == "note"}  # of several processes
    last = next((read for read, _ in reversed(lines) if read["status"] in {"failed", "watched"}), None)
    if last is not None and last["status"] == "failed":
        raise NothingMeasuredError(" ".join([last["message"], *notes.values()]), hint=last["hint"])
    found = [Watched.model_validate_json(line) for read, line in lines if read["status"] == "watched"]
    hints = [read["message"] for read, _ in lines if read["status"] == "hint"]  # on what the script raised
    if status < 0:
        hints += dict.fromkeys(read["message"] for read, _ in lines if read["status"] == "doubt")
    raised = [read["message"] for read, _ in lines if read["status"] == "raised"]  # in each of several processes
    hints += [*raised[:1], *[f"{len(raised) - 1} more did, in other processes."] * (len(raised) > 1)]
    found = [each.model_copy(update={"warnings": (*each.warnings, *notes.values(), *hints)}) for each in found]
    if found:
        return found, status
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        raise NothingMeasuredError(
            f"`{script}` {how} before enough of a training was seen.",
            hint=" ".join(hints) or "What it printed itself stands above.",
        )
    raise NothingMeasuredError(
        f"`{script}` came to its end, but no `fit` of a keras.Model, and no loop over a PyDataset, tf.data, Grain or a "
        "DataLoader, of three steps or more was seen in its process.",
        hint=" ".join(hints)
        or "`predict`, loops over other data, tf_keras and child processes are not watched. In your own code: "
        "for batch in ap.watch(dataset), or callbacks=[ap.Diagnose()] in `fit`.",
    )


_LEAST_SECONDS = 0.1
_GRACE_SECONDS = 5.0  # after Ctrl-C


def _run(start: Callable[[], subprocess.Popen[bytes]]) -> int:
    """Start the script, pass SIGTERM on to it, also one that arrives while it starts, and return its exit status."""
    process: subprocess.Popen[bytes] | None = None
    ended = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True
        if process is not None:
            process.terminate()

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        process = start()
        if ended:
            process.terminate()
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # the script gets it, too; the findings so far are shown
                return process.wait()
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                return process.wait(_GRACE_SECONDS)
            process.kill()
    finally:
        signal.signal(signal.SIGTERM, before)
