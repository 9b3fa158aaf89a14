"""One artefact and two machines, each found by the hardware layer itself: the right profile is picked each time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact import factory
from autopipe.measure import fingerprint
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.threads import Threads
from tests.fakes.nvml import FakeNvml
from tests.fakes.profiles import artifact, config, profile

GPUS, THIS = Processes(workers=7), Threads(workers=5)


@contextmanager
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as inside:
        inside.setitem(sys.modules, "pynvml", FakeNvml())
        inside.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The artefact, with a profile of each."""
    with two_gpus(monkeypatch):
        gpus = fingerprint.detect()
    found = [
        profile(hardware=gpus, config=config(loader=GPUS, devices=2)),
        profile(hardware=fingerprint.detect(), config=config(loader=THIS)),
    ]
    return files.write(artifact(*found), tmp_path / "autopipe.json")


def test_this_machine_gets_its_own_and_with_two_cards_theirs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert factory.load(path, strict=True).config.loader == THIS
    with two_gpus(monkeypatch):
        tuned = factory.load(path, strict=True)
        assert (tuned.config.loader, tuned.config.devices) == (GPUS, 2)
        assert [gpu.name for gpu in tuned.profile.hardware.gpus] == ["NVIDIA A100-SXM4-40GB"] * 2
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # with one of them theirs is near, and devices are reduced
        with pytest.warns(factory.ProfileWarning, match="GPUs: 2 there, 1 here"):
            tuned = factory.load(path)
    assert (tuned.config.loader, tuned.config.devices) == (GPUS, 1)
