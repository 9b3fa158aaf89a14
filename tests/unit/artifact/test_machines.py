"""One artefact and three machines, each found by the hardware layer itself: the right profile is picked each time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact import factory
from autopipe.hardware import machine
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.threads import Threads
from tests.fakes.nvml import FakeNvml
from tests.fakes.profiles import artifact, config, profile

LIMITED, GPUS, THIS = Threads(workers=1), Processes(workers=7), Threads(workers=5)


@pytest.fixture
def limited(tmp_path: Path) -> Path:
    """A root that plays this machine in a container of one core and 1 GiB."""
    group = "sys/fs/cgroup/pod"
    texts = {
        "proc/cpuinfo": f"model name\t: {machine.model_name()}\n",
        "proc/meminfo": Path("/proc/meminfo").read_text(),
        "proc/self/cgroup": "0::/pod\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        f"{group}/cpu.max": "100000 100000\n",
        f"{group}/memory.max": f"{2**30}\n",
        f"{group}/memory.current": "0\n",
    }
    for name, text in texts.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "root"


@contextmanager
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as inside:
        inside.setitem(sys.modules, "pynvml", FakeNvml())
        inside.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield


@pytest.fixture
def path(tmp_path: Path, limited: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The artefact, with a profile of each."""
    with two_gpus(monkeypatch):
        gpus = fingerprint.detect()
    found = [
        profile(hardware=fingerprint.of_machine(machine.detect(limited)), config=config(loader=LIMITED)),
        profile(hardware=gpus, config=config(loader=GPUS, devices=2)),
        profile(hardware=fingerprint.detect(), config=config(loader=THIS)),
    ]
    return files.write(artifact(*found), tmp_path / "autopipe.json")


@pytest.fixture
def load(path: Path) -> Callable[..., factory.Tuned]:
    def load(here: Hardware | None = None) -> factory.Tuned:
        return factory.load(path, strict=True, here=here)

    return load


def test_this_machine_gets_its_own(load: Callable[..., factory.Tuned]) -> None:
    assert load().config.loader == THIS


def test_in_a_container_of_fewer_cores_the_limited_one_is_picked(
    load: Callable[..., factory.Tuned], limited: Path
) -> None:
    tuned = load(fingerprint.of_machine(machine.detect(limited)))
    assert (tuned.config.loader, tuned.profile.hardware.cores) == (LIMITED, 1)


def test_with_two_cards_theirs_is_picked(load: Callable[..., factory.Tuned], monkeypatch: pytest.MonkeyPatch) -> None:
    with two_gpus(monkeypatch):
        tuned = load()
    assert (tuned.config.loader, tuned.config.devices) == (GPUS, 2)
    assert [gpu.name for gpu in tuned.profile.hardware.gpus] == ["NVIDIA A100-SXM4-40GB"] * 2


def test_with_one_of_the_two_cards_theirs_is_near_and_its_devices_are_reduced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_gpus(monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        with pytest.warns(factory.ProfileWarning, match="GPUs: 2 there, 1 here"):
            tuned = factory.load(path)
    assert (tuned.config.loader, tuned.config.devices) == (GPUS, 1)
