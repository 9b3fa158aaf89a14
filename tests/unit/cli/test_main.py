"""What holds for every command: statuses, messages, and how little is imported."""

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autopipe import __version__, registry
from autopipe.cli.options import Exit
from autopipe.errors import NothingMeasuredError, OpError, SearchInterruptedError, WorkloadError
from tests.fakes.commands import environment, python, succeeded
from tests.unit.cli.conftest import Autopipe, Patch

ASSET = str(Path(__file__).parents[2] / "assets" / "artifacts" / "v1.json")
OF_CORE = "check convert doctor eject measure retune show tune verify".split()  # noqa: SIM905
COMMANDS = sorted([*OF_CORE, *(entry.name for entry in registry.declared("autopipe.commands"))])


def _imported(*commands: tuple[str, ...]) -> set[str]:
    """Return the top-level modules that a process has imported after some commands."""
    code = f"""
import sys
from autopipe.cli.main import main
for arguments in {commands!r}:
    sys.argv = ["autopipe", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
print("|", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    return set(succeeded(python("-c", code)).stdout.rpartition("|")[2].split())


def test_little_is_imported_for_help_and_no_framework_where_nothing_is_measured(autopipe: Autopipe) -> None:
    slow = {"tensorflow", "keras", "jax", "torch", "optuna"}
    assert not {*slow, "numpy", "cv2", "pydantic"} & _imported(("--help",), ("--version",))
    assert not slow & _imported(("tune", "--help"), ("doctor",), ("show", ASSET))
    assert autopipe("--version").out == f"{__version__}\n"


def test_every_command_has_help(autopipe: Autopipe) -> None:
    for command in (*COMMANDS, "compare", "merge", "repoint", "report"):
        ended = autopipe(command, "--help")
        assert (ended.status, ended.out.partition(" [")[0]) == (0, f"Usage: autopipe {command}")


def test_commands_are_listed_below_three_headings_the_most_used_first(autopipe: Autopipe, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sections = re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", autopipe("--help").out, re.MULTILINE)
    listed = {heading: lines.splitlines() for heading, lines in sections if heading != "Options"}
    names = {heading: [line.split()[0] for line in lines] for heading, lines in listed.items()}
    assert list(names) == ["Tune and train", "Look closer", "Data and files"]
    assert names["Tune and train"][0] == "tune"
    assert sorted(itertools.chain(*names.values())) == sorted(COMMANDS)  # a line each
    lines = [line for lines in listed.values() for line in lines]
    assert [line for line in lines if len(line) > 80 or not line.endswith(".") or line.endswith("..")] == []


@pytest.fixture
def theirs(monkeypatch: Patch) -> Callable[..., None]:
    """Install modules with a command each, and no others."""
    return lambda **modules: monkeypatch.setattr(registry, "loaded", lambda group, kind: iter(modules.items()))


def test_commands_of_other_packages_have_their_headings(autopipe: Autopipe, theirs: Any, monkeypatch: Patch) -> None:
    def upload() -> None:
        """Send an artifact to a place that everybody who trains the same model reads, and say where it can be found."""

    theirs(upload=SimpleNamespace(upload=upload), fetch=SimpleNamespace(fetch=lambda: None, GROUP="Sharing"))
    monkeypatch.setenv("COLUMNS", "80")
    shown = autopipe("--help").out
    assert "\nSharing:\n  fetch" in shown
    assert f"More: upload {upload.__doc__}" in " ".join(shown.split())  # wrapped, not cut


def test_misspelt_names_and_impossible_numbers(autopipe: Autopipe) -> None:
    time = "error: `time` must be at least 0.5 s, but got '0.1s'."
    lasts = {"tun x": "tune", "tune --trails 3": "--trials", "show --jsn": "--json", "measure a.py:w --time 0.1s": time}
    for line, last in lasts.items():
        assert last in autopipe(*line.split()).refused().splitlines()[-1]


def test_an_error_is_a_line_and_a_hint_on_stderr_unless_the_level_is_debug(autopipe: Autopipe, here: Path) -> None:
    error, empty, hint = autopipe("show", "autopipe.json").refused().splitlines()
    assert (error[:27], empty, hint[:33]) == ("error: There is no artifact", "", "hint: `autopipe tune` writes one.")
    said = autopipe("show", "x" * 300).refused()  # which the system refuses
    assert said.startswith(f"error: File name too long: `{'x' * 300}`\n\nhint: With --log-level debug")
    debug = autopipe("show", "autopipe.json", "--log-level", "debug").refused()
    assert debug.startswith("Traceback (most recent call last):")
    assert error in debug
    assert autopipe("show", "autopipe.json").refused().startswith("error: ")


def test_what_stands_behind_a_script_is_the_scripts(autopipe: Autopipe, theirs: Callable[..., None]) -> None:
    def watch(script: str, arguments: list[str]) -> None:
        raise WorkloadError(f"{script} failed with {arguments}.")

    def upload() -> None:
        raise OpError("Map on sample 2 raised ValueError: no such colour") from ValueError("no such colour")

    contexts = {"CONTEXT": {"allow_interspersed_args": False}}
    theirs(watch=SimpleNamespace(watch=watch, **contexts), upload=SimpleNamespace(upload=upload))
    ended = autopipe("watch", "train.py", "--log-level", "debug", "-v")
    assert ended.err == "error: train.py failed with ['--log-level', 'debug', '-v'].\n"
    assert autopipe("upload").err.endswith("\nhint: With --log-level debug, the same command shows where.\n")


def test_the_page_of_reference_has_every_exit_code() -> None:
    table = (Path(__file__).parents[3] / "docs" / "reference.md").read_text().partition("## Exit codes")[2]
    codes = re.findall(r"^\| ([\d, ]+) \|", table.partition("\n## ")[0], re.MULTILINE)
    assert [int(each) for cell in codes for each in cell.split(", ")] == [0, *Exit]


def test_who_ended_a_search_shows_in_the_status(autopipe: Autopipe, theirs: Callable[..., None]) -> None:
    errors = {"nothing": NothingMeasuredError("Why."), "interrupted": SearchInterruptedError("Why.")}

    def upload(which: str) -> None:
        raise errors[which]

    theirs(upload=SimpleNamespace(upload=upload))
    for which, status in (("nothing", 3), ("interrupted", 130)):
        ended = autopipe("upload", which)
        assert (ended.status, ended.out, ended.err) == (status, "", "error: Why.\n")


def _ended(into: Any, *arguments: str) -> tuple[int, list[str]]:
    options: dict[str, Any] = {"env": environment(), "stdout": into, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.run([sys.executable, "-m", "autopipe", *arguments], **options, check=False)
    return done.returncode, done.stderr.splitlines()


def test_a_stdout_that_takes_no_more_is_told_in_a_line_or_not_at_all() -> None:
    reads, pipe = os.pipe()
    os.close(reads)
    with open("/dev/full", "w") as full, open(pipe, "w") as nobody_reads:
        assert _ended(nobody_reads, "--version") == (1, [])
        # What Python prints when it ends, and what Rich prints.
        for arguments in (["--version"], ["show", ASSET]):
            status, (error, empty, hint) = _ended(full, *arguments)
            assert error == "error: The output cannot be written to stdout: No space left on device."
            assert (status, empty, hint[:25]) == (2, "", "hint: Make room where it ")


WORKS = """
import contextlib, os, pathlib, select, signal, sys
from autopipe.cli import main

# The tests themselves may run under nohup.
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
os.open(os.ttyname(1), os.O_RDWR)  # the terminal of this session, whose end is a hang-up

def command(arguments, prog_name):
    try:
        print("ready", flush=True)
        while sys.argv[1] != "nohup":
            select.select([], [], [], 0.1)  # `pause` would miss a signal that comes right before it
        with contextlib.suppress(OSError):  # or nothing more comes: both are the terminal's end
            sys.stdin.read()
        ended = "the terminal's end"
    except KeyboardInterrupt:
        print("what a terminal that is gone would refuse", flush=True)
        ended = "KeyboardInterrupt"
    pathlib.Path("saved").write_text(ended)

command.registered_commands = ()
main.application = lambda: command
main.main()
"""


@pytest.mark.parametrize(("how", "ended"), [("plain", "KeyboardInterrupt"), ("nohup", "the terminal's end")])
def test_a_closed_terminal_ends_a_command_as_ctrl_c_does_but_for_nohup(tmp_path: Path, how: str, ended: str) -> None:
    ours, theirs = os.openpty()
    ends: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "-c", WORKS, how], cwd=tmp_path, env=environment(), **ends)
    os.close(theirs)
    said = b""
    while not said.endswith(b"\n"):  # its end, too: a write that is cut in the middle fails
        said += os.read(ours, 64)
    os.close(ours)
    assert said.startswith(b"ready")
    assert process.wait(60) == 0
    assert (tmp_path / "saved").read_text() == ended  # with `nohup`, reading goes on until the terminal's end


def test_a_second_sigterm_does_not_cut_short_the_first(autopipe: Autopipe, theirs: Callable[..., None]) -> None:
    saved = []

    def upload() -> None:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        saved.append("what was measured")

    theirs(upload=SimpleNamespace(upload=upload))
    autopipe("upload")
    assert saved == ["what was measured"]
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN  # which a process that is started would inherit
