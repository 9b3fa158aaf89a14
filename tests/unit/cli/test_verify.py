"""`autopipe verify --files`. It imports the workload into the command's own process, and so do these tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from autopipe.artifact import verifying
from autopipe.errors import WorkloadError
from autopipe.measure.outcome import Agreement, Verification
from autopipe.measure.trial import protocol
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.search import searching
from tests.unit.cli.conftest import Autopipe
from tests.unit.cli.conftest import photos as written


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return written(tmp_path / "photos")


def damage(path: Path, at: bytes) -> None:
    data = path.read_bytes()
    middle = (data.index(at) + len(data)) // 2
    path.write_bytes(data[:middle] + bytes(range(100, 116)) + data[middle + 16 :])


def test_a_whole_set_is_said_to_be_so(photos: Path, autopipe: Autopipe) -> None:
    ended = autopipe("verify", "--files", "--images", photos)  # fewer than a usual batch
    assert (ended.status, ended.out) == (0, "verified  all 8 samples can be read and decoded\n")


def test_every_damaged_file_is_listed_with_its_reason_and_the_command_fails(photos: Path, autopipe: Autopipe) -> None:
    damage(photos / "cat" / "1.jpg", b"\xff\xda")
    damage(photos / "cat" / "0.png", b"IDAT")
    (photos / "dog" / "2.png").write_bytes(b"")
    (photos / "dog" / "3.jpg").unlink()
    os.mkfifo(photos / "dog" / "target")
    (photos / "dog" / "3.jpg").symlink_to("target")
    ended = autopipe("verify", "--files", "--images", photos, "--batch-size", 2)
    assert ended.status == 1
    *bad, verified, advice = ended.out.splitlines()
    for line, (name, reason) in zip(
        bad,
        [
            ("cat/0.png", "cannot decode the image"),
            ("cat/1.jpg", "the JPEG is damaged"),
            ("dog/2.png", "is empty"),
            ("dog/3.jpg", "must be a regular file"),
        ],
        strict=True,
    ):
        assert line.startswith(f"bad       {photos / name}: ")
        assert reason in line
    assert verified == "verified  8 samples: 4 cannot be used"
    assert "more than the 1 %" in advice


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_file_whose_name_is_no_text_is_listed(photos: Path, autopipe: Autopipe, options: tuple[str, ...]) -> None:
    (photos / "dog" / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"")
    ended = autopipe("verify", "--files", *options, "--images", photos, "--batch-size", 2)
    assert ended.status == 1
    names = [ended.out]
    if options:
        found = json.loads(ended.out)
        names = [each["name"] for each in found["bad"]]
        assert (found["samples"], len(names)) == (9, 1)
    assert "dog/caf\\udce9.jpg" in names[0]


def test_a_wrapped_dataset_is_refused(photos: Path, autopipe: Autopipe) -> None:
    (photos.parent / "train.py").write_text(
        "import autopipe as ap, keras, numpy as np\n"
        "class Data(keras.utils.PyDataset):\n"
        "    def __len__(self): return 2\n"
        "    def __getitem__(self, number): return np.zeros((2, 4)), np.zeros(2)\n"
        "workload = ap.wrap(lambda workers=0: Data(workers=workers), model=None, parameters={'workers': [0]})\n"
    )
    ended = autopipe("verify", "--files", "train.py:workload")
    assert ended.status == 2
    assert "reads its own files" in ended.err


def test_batches_are_compared_without_the_workloads_model(autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = []

    def verify(runner: TrialRunner, **_: object) -> Verification:
        simulated.append(runner.launch.simulate is not None)
        return Verification(agreements=())

    monkeypatch.setattr(verifying, "verify", verify)  # a real one takes half a minute: README's is in test_readme.py
    assert autopipe("verify", "train.py:workload").status == 0
    assert simulated == [True]


def test_what_could_not_run_has_an_exit_code_of_its_own(autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(*agreements: Agreement) -> int:
        found = Verification(agreements=agreements, compared=False)
        monkeypatch.setattr(verifying, "verify", lambda runner, **_: found)
        return autopipe("verify", "train.py:workload").status

    config = PipelineConfig(loader=Threads(workers=1))
    could_not = Agreement(config=config, digest="", samples=0, message="it forks")
    twice = Agreement(config=config, digest="ab", samples=9, repeated=3)
    fine = Agreement(config=config, digest="ab", samples=9)
    assert [status(fine), status(fine, twice), status(fine, could_not), status(twice, could_not)] == [0, 1, 3, 1]


def test_what_trials_warn_of_is_said_once(autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def warns(runner: TrialRunner, **options: object) -> Verification:
        for _ in range(2):
            runner.on_event(protocol.Log(text="3 files are left out."))
        return Verification(agreements=())

    def fails(runner: TrialRunner) -> NoReturn:
        warns(runner)
        raise WorkloadError("It ends here.")

    monkeypatch.setattr(verifying, "verify", warns)
    assert autopipe("verify", "train.py:workload").err == "warning: 3 files are left out.\n"
    monkeypatch.setattr(searching, "description", fails)
    said = autopipe("measure", "train.py:workload").err
    assert said == "warning: 3 files are left out.\nerror: It ends here.\n"
