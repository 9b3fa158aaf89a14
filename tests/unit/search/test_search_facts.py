"""What is known around a search: how many devices there are, played by the fake NVML, and the profile of its result."""

from __future__ import annotations

import sys

import pytest

from autopipe.artifact import codegen
from autopipe.hardware import gpu
from autopipe.measure.facts import Description
from autopipe.search import searching, storage
from autopipe.search.settings import Settings
from tests.fakes import findings, profiles
from tests.fakes.facts import DESCRIBED
from tests.fakes.nvml import Device, FakeNvml

FOUR = tuple(Device(uuid=f"GPU-{number}") for number in range(4))


def described(accelerators: int = 0, virtual_devices: int = 0) -> Description:
    return Description(
        samples=100,
        batch_size=32,
        compact_bytes=10,
        finished_bytes=40,
        backend="jax",
        accelerators=accelerators,
        virtual_devices=virtual_devices,
        mean_bytes=10.0,
        data_digest="",
        ops_digest="",
        model_digest="",
    )


@pytest.mark.parametrize(
    ("accelerators", "visible", "devices", "reason"),
    [
        (4, None, 4, "Keras's jax backend sees 4 devices, NVML 4 devices"),
        (2, "GPU-2,GPU-3", 2, "Keras's jax backend sees 2 devices, NVML 2 devices"),
        (4, "3", 1, "Keras's jax backend sees 4 devices, NVML 1 device"),
        (0, None, 1, "NVML sees 4 devices, but Keras's jax backend none: it trains on the CPU"),
        (8, "", 1, "Keras's jax backend sees 8 devices, but NVML none, so that nothing could be told of more than one"),
        (0, "", 1, "there is no accelerator"),
    ],
)
def test_devices_are_those_that_keras_and_nvml_both_see(
    accelerators: int, visible: str | None, devices: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(devices=FOUR))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert searching.devices_of(described(accelerators), len(gpu.detect())) == (devices, reason)


def test_virtual_devices_are_called_so() -> None:
    assert searching.devices_of(described(virtual_devices=2), 0) == (2, "2 virtual devices were asked for")


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("sqlite:////studies/a.db", "sqlite:////studies/a.db"),
        ("postgresql://me:secret@host:5432/studies", "postgresql://me@host:5432/studies"),
    ],
)
def test_the_storages_password_is_not_kept(url: str, kept: str) -> None:
    assert storage.without_password(url) == kept


def test_a_profile_is_made_of_what_a_search_found_and_none_of_nothing() -> None:
    result = findings.result()
    made = codegen.profile_of(result, DESCRIBED, profiles.hardware(), Settings())
    assert made is not None
    assert made.result == result
    assert made.measured_at == result.ended_at
    nothing = result.model_copy(update={"winner": None})
    assert codegen.profile_of(nothing, DESCRIBED, profiles.hardware(), Settings()) is None
