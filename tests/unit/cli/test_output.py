"""What a command writes and says, and what a person sees of a tune, event by event on a terminal of 80 columns."""

import errno
import io
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console
from rich.status import Status
from rich.text import Text

import autopipe as ap
from autopipe import again
from autopipe.api.request import Target
from autopipe.artifact import factory, schema
from autopipe.cli import screen
from autopipe.cli.output import folder_of, reserved, say_next, use_beside, write_outputs
from autopipe.cli.progress import Progress
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.trial.child import Log, PhaseBegan
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.search import result as events
from autopipe.search.result import AskedBy, Reason, Stop
from autopipe.values import Estimate
from tests.fakes.facts import measurement
from tests.fakes.profiles import config, profile
from tests.fakes.reports import Approved
from tests.unit.cli.conftest import Patch

NAMED = schema.ModuleReference(module="project.train")
TRAIN = Target(name="", workload=WorkloadName(text="train.py:workload"))
IMAGES = schema.ImagesReference(path="/my photos", model="vgg16", image_size=96)
OF_IMAGES = Target(name="", workload=TRAIN.workload, named=IMAGES)


def test_what_to_do_next_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder := tmp_path / "my models").mkdir()
    for chosen, keep, options in (
        (TRAIN, "none", None),
        (TRAIN, "array", "train.py:workload --to array --out '{}/array'"),
        (OF_IMAGES, "array:1", "--images '/my photos' --image-size 96 --to array --cut 1 --out '{}/array-1'"),
    ):
        known = profile(config=config(keep=keep))
        tuned = factory.of_profile(known, lambda: pytest.fail("imported"), named=NAMED)
        written, module = write_outputs(tuned, [folder])
        say_next(written, known, chosen.arguments, [str(written)])
        lines = capsys.readouterr().err.splitlines()
        assert module.is_file()
        assert f"report    {folder / 'report.html'}" in lines
        convert = f"before    {again.autopipe('convert')} {str(options).format(folder / 'converted')}"
        assert [line for line in lines if line.startswith("before")] == ([] if options is None else [convert])
        check = again.autopipe("check", written)
        assert lines[-2:] == [f"next      {use_beside(written, known)}", f"          {check}"]


def test_a_folder_that_was_made_for_nothing_is_gone_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        assert list(folder.iterdir()) == []  # the room is kept by a file without a name
        if folder.name == "begun":
            (folder / "study.db").touch()
        raise ap.ArtifactError("no such workload")

    (tmp_path / "old").mkdir()
    for folder in (tmp_path / name for name in ("old", "new", "begun")):
        with pytest.raises(ap.ArtifactError, match="no such workload"), reserved(folder):
            fail(folder)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["begun", "old"]


def test_a_folder_without_room_is_refused_before_measuring(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("os.posix_fallocate", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(ap.ArtifactError, match=r"must have room for 512 KiB, but: No space left"), reserved(tmp_path):
        pytest.fail("it went on")


def test_what_does_not_fit_into_one_folder_is_written_to_the_next_or_told(tmp_path: Path) -> None:
    workload = ap.Workload(data=ap.Arrays(np.zeros((4, 2))), ops=[], batch_size=2)
    tuned = factory.of_profile(profile(), workload, named=NAMED)
    (tmp_path / "file").touch()
    gone, there = tmp_path / "file" / "gone", tmp_path / "there"
    artifact, module = write_outputs(tuned, [gone, there])
    assert (artifact, module.is_file()) == (there / "autopipe.json", True)
    with pytest.raises(ap.ArtifactError, match=r"gone too.* cannot be written") as raised:
        write_outputs(tuned, [gone, tmp_path / "file" / "gone too"])
    assert tuned.config.model_dump_json() in (raised.value.hint or "")
    urls = {None: [], "postgresql://host/studies": [], "sqlite:////data/study.db": [Path("/data")]}
    assert {url: folder_of(url) for url in urls} == urls  # the next, for a study that is a file


def test_what_is_said_is_no_markup_and_leaves_stdout_to_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"photos[red]/{'a' * 200}/autopipe.json"
    screen.say(f"wrote     {name}")
    screen.show(Text("the result"))
    assert capsys.readouterr() == ("the result\n", f"wrote     {name}\n")


def test_a_bar_is_for_a_terminal_alone(capsys: pytest.CaptureFixture[str], monkeypatch: Patch) -> None:
    with screen.bar("looking", unit="samples") as told:
        told(40, 40)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen.bar("looking", unit="samples") as told:
        told(10, 40)
        told(40, 40)
    out, error = capsys.readouterr()
    assert (out, "looking" in error, "40/40" in error) == ("", True, True)


CONFIG = ap.PipelineConfig(loader=ap.Threads(workers=2), keep="memory")


class Screen:
    """A terminal, and the progress of a tune on it."""

    def __init__(self, *, verbose: bool = False, terminal: bool = True, budget_seconds: float | None = None) -> None:
        self.now, self._written = 0.0, io.StringIO()
        console = Console(file=self._written, width=80, force_terminal=terminal, color_system=None)
        options: dict[str, Any] = {"verbose": verbose, "budget_seconds": budget_seconds, "console": console}
        self.progress = Progress(**options, clock=lambda: self.now)

    def tell(self, *told: events.Event) -> list[str]:
        for event in told:
            self.progress.watcher.on_search(event)
        return [line.rstrip() for line in self._written.getvalue().splitlines()]

    def live(self) -> str:
        return self.progress.__rich__().plain


def finished(outcome: Any, origin: str = "surrogate", best: float | None = 100.0) -> events.Event:
    by = AskedBy.parse(origin)
    return events.TrialFinished(number=0, origin=by, config=CONFIG, outcome=outcome, value=None, best=best)


def measured(rate: float, *, stable: bool = True) -> Measurement:
    return measurement(CONFIG, [rate] * 5, batch_size=32).model_copy(update={"stable": stable})


def ceiling(rate: float, **setup: Any) -> events.Event:
    estimate = Estimate(value=rate, low=rate, high=rate)
    return Ceiling(model_images_per_second=estimate, model_core_seconds_per_image=0.0, **setup)


def planned(trials: int, needed: float) -> events.Event:
    seconds = {"budget_seconds": 30.0, "spent_seconds": 12.0, "trial_seconds": 4.0, "advised_seconds": 112.0}
    return events.BudgetPlanned(trials=trials, needed_seconds=needed, **seconds)


def started(origin: str = "surrogate") -> events.Event:
    return events.TrialStarted(number=3, origin=AskedBy.parse(origin), config=CONFIG, seconds_left=60.0)


LONG = " ".join(["of something"] * 10)
CRASHED = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message=f"It died.\n{LONG}")
TOLD: dict[str, list[events.Event]] = {
    "the space": [events.SpaceTrimmed(candidates=184, left_out={"too large": 1200, "forks": 24, "none": 0})],
    "the ceiling": [ceiling(1000.0), ceiling(1100.0, finish="host")],
    "a baseline": [finished(measured(279.4), "baseline:Keras")],
    "the best, and one that is slower": [finished(measured(100.0)), finished(measured(90.0))],
    "a trial that exceeds a limit": [finished(measured(1000.0), best=None)],
    "a trial that is not steady": [finished(measured(100.0, stable=False))],
    "a failure": [finished(CRASHED)],
    "a lost storage": [events.StorageLost(reason="the disk is full")],
    "a study with failures": [events.StudyOpened(name="autopipe", resumed=3, failed=2)],
    "a study": [events.StudyOpened(name="autopipe", resumed=1)],
    "a budget with time for nothing": [planned(0, 40.0)],
    "a budget that is short": [planned(4, 20.0)],
    "a budget with time for one trial": [planned(1, 20.0)],
    "a budget": [planned(20, 20.0)],
    "the end": [Stop(reason=Reason.TIME, message="see [red]this[/red]")],  # which is no markup
}


def test_events(approved: Approved) -> None:
    approved(
        {
            f"{name}{', verbose' * verbose}": "\n".join(Screen(verbose=verbose, terminal=False).tell(*told))
            for name, told in TOLD.items()
            for verbose in (False, True)
        }
    )
    first, *others = Screen().tell(Stop(reason=Reason.TIME, message=12 * "the time is up "))
    assert (first[:18], {line[:10] for line in others}) == ("stopped   the time", {" " * 10})
    assert max(map(len, others)) <= 80
    assert [len(line) for line in Screen().tell(finished(CRASHED))] == [80]
    screen = Screen()
    for _ in range(2):  # what a child warns of is said once, however many start
        screen.progress.watcher.on_trial(Log(text="Only one image is in `cat`."))
    assert screen.tell() == ["note      Only one image is in `cat`."]


def test_the_live_line_has_the_time_left_the_best_so_far_and_what_is_going_on() -> None:
    screen = Screen()
    screen.tell(finished(measured(100.0)), finished(measured(80.0), "proof:1", best=90.0))  # in a proof the best stays
    screen.tell(started())
    screen.progress.watcher.on_trial(PhaseBegan(phase=Phase.FIRST_BATCH))
    screen.now = 20.0
    what = "trial 4: threads(workers=2) keep=memory | first batch"
    assert screen.live() == f"20 s, 40 s left | best 100 images/s | {what}"
    written = io.StringIO()
    Console(file=written, width=40).print(Status(screen.progress).renderable)
    assert len(written.getvalue().splitlines()) == 1
    screen.tell(events.ConfirmationStarted(configs=(CONFIG, CONFIG), blocks=(2, 3)), *[started("proof:0")] * 3)
    assert "confirmation, round 2, 1 of 2: threads(workers=2)" in screen.live()


def test_waiting_for_another_tune_is_told_and_takes_nothing_of_the_budget() -> None:
    screen = Screen(budget_seconds=60.0)
    screen.tell(events.Waiting(why="process 7", seconds=120.0))
    screen.now = 100.0
    assert screen.live().endswith("waiting: process 7 measures on this machine; the wait is at most 120 s")
    screen.tell(events.StudyOpened(name="autopipe", resumed=0))
    assert screen.live().startswith("100 s, 60 s left")


def test_a_log_has_a_line_of_what_runs_if_nothing_else_was_said() -> None:
    line = "so far    40 s, 60 s left | trial 4: threads(workers=2) keep=memory"
    for terminal, expected in ((True, []), (False, [line])):
        screen = Screen(terminal=terminal, budget_seconds=100.0)
        screen.now = 20.0
        assert screen.tell(started()) == []
        screen.now = 40.0
        assert screen.tell(started()) == expected
