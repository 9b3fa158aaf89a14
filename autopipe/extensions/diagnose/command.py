"""`autopipe diagnose`: the bottleneck of any training script, which runs unchanged in a process of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli import options
from autopipe.errors import NothingMeasuredError, TrialError

if TYPE_CHECKING:  # imported before `--help` answers
    from autopipe.extensions.diagnose.watched import Watched

GROUP = "Look closer"
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""All arguments after the script belong to the script."""


def diagnose(
    script: Annotated[Path, typer.Argument(metavar="train.py", help="Your training script, as it is.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the script takes.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, callback=options.finite, help="How much training to look at.")
    ] = 10.0,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps to look at, instead of --seconds.")] = None,
    callbacks: Annotated[
        bool, typer.Option("--callbacks", help="Run the script's callbacks that may write files, too.")
    ] = False,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Let the script go on to its end, and look at every fit.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON, one object a fit; what the script prints goes to stderr."),
    ] = False,
) -> None:
    """Run a training script and tell whether it waits for data.

    How much there is to gain is told, too.

    Options come before the script; what comes after it is the script's own. Once enough was seen the script is ended,
    before it could save anything.
    """
    wanted = [f"--seconds={seconds}", *([] if steps is None else [f"--steps={steps}"])]
    wanted += ["--callbacks"] if callbacks or keep_running else []
    wanted += ["--keep-running"] if keep_running else []
    seen, status = watch(script, arguments or (), wanted, quiet=as_json)

    from autopipe.extensions.diagnose import watched

    for found in seen:
        if as_json:
            print(found.model_dump_json())
        else:
            watched.show(found)
    if keep_running and status:
        raise typer.Exit(status if status > 0 else 128 - status)


def watch(
    script: Path, arguments: Sequence[str] = (), wanted: Sequence[str] = ("--seconds=10",), *, quiet: bool = False
) -> tuple[list[Watched], int]:
    """Run a script, and return the findings for each `fit` and the script's exit status.

    `wanted` are options of `autopipe.extensions.diagnose.child`; if `quiet`, the script's stdout goes to stderr. Raises
    TrialError if there is no such script, and NothingMeasuredError if it ended before a training could be watched.
    """
    from autopipe.extensions.diagnose.watched import Watched
    from autopipe.hardware import processes

    if not script.is_file():
        raise TrialError(
            f"`diagnose` runs a Python script, but there is no file `{script}`.",
            hint="For example: autopipe diagnose train.py --epochs 3",
        )
    child, stdout = "autopipe.extensions.diagnose.child", sys.stderr.fileno() if quiet else None
    with tempfile.TemporaryFile() as told:
        command = [*processes.started(child), f"--fd={told.fileno()}", *wanted, str(script), *arguments]
        sys.stdout.flush()
        status = _run(lambda: subprocess.Popen(command, pass_fds=[told.fileno()], stdout=stdout))
        told.seek(0)
        lines = [(json.loads(line), line) for line in told]
    if lines and lines[-1][0]["status"] == "failed":
        raise NothingMeasuredError(lines[-1][0]["message"], hint=lines[-1][0]["hint"])
    found = [Watched.model_validate_json(line) for read, line in lines if read["status"] == "watched"]
    notes = tuple(dict.fromkeys(read["message"] for read, _ in lines if read["status"] == "note"))
    found = [each.model_copy(update={"warnings": (*each.warnings, *notes)}) for each in found]
    if not found:
        raise _nothing(script, status)
    return found, status


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


def _nothing(script: Path, status: int) -> NothingMeasuredError:
    if status:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        return NothingMeasuredError(
            f"`{script}` {how} before a training could be watched.", hint="What it printed itself stands above."
        )
    return NothingMeasuredError(
        f"`{script}` came to its end, but no `fit` of a keras.Model with three steps or more was seen in its process, "
        "nor a loop over a PyDataset, tf.data, Grain or a DataLoader.",
        hint="Loops over other data, tf_keras and child processes are not watched. In your own code: "
        "for batch in ap.watch(dataset), or callbacks=[ap.Diagnose()] in `fit`.",
    )
