"""The life of a fleet: tuned, loaded elsewhere, retuned, upgraded, drifted, merged, moved; and many jobs at once."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

import autopipe as ap
from autopipe.api import tuning
from autopipe.artifact import artifact
from autopipe.artifact import artifact as files
from autopipe.artifact.drift import Result, Verdict
from autopipe.artifact.factory import ProfileWarning, Tuned
from autopipe.artifact.schema import Profile
from tests.fakes.fleet import Fleet, imaginary
from tests.fakes.surface import Surface
from tests.fakes.workload_script import TRAIN

JOBS = 50
A = imaginary(cores=16, gpus=4)
B = imaginary(cores=4)
C = imaginary(cores=16, gpus=3)
SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {choices: [1, cores, cores*2], when: {loader: threads}}
  threads.queue_size: {choices: [8], when: {loader: threads}}
  keep: [none]
  finish: [device, host]
  device_prefetch: [2]
  devices: [1, 2, 4]
"""


def of_a() -> Surface:
    return Surface(cores=16, model_rate=1500.0, noise=0.01, scaling=lambda devices: 0.95 * devices + 0.05)


def of_b(*, neighbour: bool = False) -> Surface:
    """The second machine, where a neighbour may take half of the cores."""
    return Surface(cores=2 if neighbour else 4, model_rate=60_000.0, noise=0.01, quirks=2)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a workload that is never imported, where commands are run."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "space.yaml").write_text(SPACE)
    monkeypatch.chdir(project)
    return project


def checked(path: Path, *, quick: bool = False) -> Result:
    return tuning.check(path, quick=quick).figures


def loaded(path: Path, said: str | None) -> Tuned:
    """Load an artifact, which warns of its profile with these words, or does not warn."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tuned = ap.load(path)
    told = [str(each.message) for each in seen if issubclass(each.category, ProfileWarning)]
    assert [said is not None and said in each for each in told] == ([] if said is None else [True])
    return tuned


def profiles(path: Path) -> dict[int, Profile]:
    return {each.hardware.cores: each for each in files.read(path).profiles}


def a_year_later(path: Path, profile: Profile) -> Profile:
    """Let a profile in an artifact have been measured a year later than it was, and return it."""
    at = profile.measured_at + datetime.timedelta(days=365)
    later = profile.model_copy(update={"measured_at": at})
    known = files.read(path)
    profiles = tuple(later if each == profile else each for each in known.profiles)
    files.write(known.model_copy(update={"profiles": profiles}), path)
    return later


def test_the_life_of_a_fleet(fleet: Fleet, folder: Path, tmp_path: Path) -> None:
    path = folder / "autopipe.json"
    fleet.at(A, of_a())
    ap.tune("train.py:workload", space="space.yaml", budget=None).save(path)
    first = profiles(path)[16]
    assert first.winner.config["devices"] == 4
    assert checked(path).verdict is Verdict.FITS

    # Another machine takes the nearest profile, until its first job retunes.
    fleet.at(B, of_b())
    assert loaded(path, "usable cores: 16 there, 4 here").profile == first
    retuned = ap.load(path, on_new_hardware="retune")
    assert retuned.profile.hardware.cores == 4
    assert loaded(path, None).profile == retuned.profile == profiles(path)[4]
    assert profiles(path)[16] == first

    # An upgrade makes the first one's stale; it is measured, found as fast as before, and kept without a search.
    fleet.at(imaginary(cores=16, gpus=4, keras="3.16.0"), of_a())
    stale = checked(path, quick=True)
    assert (stale.verdict, stale.reasons) == (Verdict.STALE, ("keras was 3.15 and is 3.16 now",))
    ap.retune(path, if_stale=True)
    measured = [key for key, _ in fleet.trials.surface.measured]
    assert measured.count(first.winner.key) == 3  # the rounds of a check
    kept = profiles(path)[16]
    assert (kept.winner.key, kept.hardware.packages["keras"]) == (first.winner.key, "3.16.0")
    assert checked(path).verdict is Verdict.FITS

    # The second one has a copy of its own, and a neighbour: it drifts, and is retuned.
    own = tmp_path / "b" / "autopipe.json"
    shutil.copytree(folder, own.parent)
    fleet.at(B, of_b())
    assert checked(own).verdict is Verdict.FITS
    fleet.at(B, of_b(neighbour=True))
    assert checked(own).verdict is Verdict.DRIFTED
    ap.retune(own, if_drifted=True)
    assert checked(own).verdict is Verdict.FITS
    slower, before = profiles(own)[4], profiles(path)[4]
    assert slower.winner.images_per_second.high < before.winner.images_per_second.low

    # United, the latest of each machine stays; moved, the workload is found still.
    later = a_year_later(own, slower)
    artifact.merge([path, own], path)
    assert profiles(path) == {16: kept, 4: later}
    moved = folder.rename(tmp_path / "moved") / "autopipe.json"
    os.chdir(moved.parent)
    assert artifact.stored(moved).workload is not None

    # A machine like the first, with one card fewer, trains on as many as share a batch of 32.
    fleet.at(C, of_a())
    told = "It trains on 2 of 4 devices, because a batch of 32 cannot be shared between 3."
    assert loaded(moved, told).config.devices == 2


MANY = textwrap.dedent(
    """
    import json, os, signal, sys, warnings
    from pathlib import Path

    import pytest

    import autopipe as ap
    from tests.fakes.fleet import Fleet, Trials, imaginary
    from tests.servers.test_fleet import JOBS, of_b

    path = Path(sys.argv[1])
    fleet = Fleet(pytest.MonkeyPatch())
    fleet.at(imaginary(cores=4), of_b())

    def append(name):
        with (path.parent / name).open("a") as file:
            file.write(f"{os.getpid()}\\n")

    def trial():
        if not (path.parent / "died").exists():
            append("died")
            os.kill(os.getpid(), signal.SIGKILL)

    fleet.trials.on_describe = lambda: append("retunes")
    fleet.trials.on_measure = trial
    closed, opened = os.pipe()

    def job():
        os.close(opened)
        os.read(closed, 1)  # until all are there
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            tuned = ap.load(path, on_new_hardware="retune")
        imported = sorted({"tensorflow", "keras", "jax", "torch"} & sys.modules.keys())
        warned = [str(each.message) for each in seen]
        said = json.dumps([tuned.profile.winner.key, tuned.profile.hardware.cores, warned, imported])
        os.write(1, f"{said}\\n".encode())  # one write: lines of several jobs do not mix

    jobs = []
    for _ in range(JOBS):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                job()
                status = 0
            finally:
                os._exit(status)
        jobs.append(pid)
    os.close(opened)  # now they go
    failed = sum(os.waitpid(each, 0)[1] != 0 for each in jobs)
    sys.exit(failed)
    """
)


def many(path: Path) -> tuple[list[list[object]], int]:
    """Start many jobs at the same time on one kind of machine. Return the output of each, and the number that failed.

    The first that retunes is killed as it does.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", MANY, str(path)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    return [json.loads(line) for line in ended.stdout.splitlines()], ended.returncode


@pytest.fixture
def known_elsewhere(fleet: Fleet, folder: Path) -> Path:
    fleet.at(A, of_a())
    ap.tune("train.py:workload", space="space.yaml", budget=None).save(folder / "autopipe.json")
    return folder / "autopipe.json"


def test_of_fifty_jobs_at_once_one_retunes_or_the_next_if_it_is_killed_and_all_have_its_profile(
    known_elsewhere: Path,
) -> None:
    said, failed = many(known_elsewhere)
    profile = profiles(known_elsewhere)[4]
    assert failed == 1
    assert said == [[profile.winner.key, 4, [], []]] * (JOBS - 1)
    retuned = (known_elsewhere.parent / "retunes").read_text().split()
    died = (known_elsewhere.parent / "died").read_text().split()
    assert len(retuned) == 2
    assert died == retuned[:1]
