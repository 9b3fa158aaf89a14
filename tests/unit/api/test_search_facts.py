"""How many devices a search looks at: those that Keras and NVML both see, played by the fake NVML."""

from __future__ import annotations

import sys

import pytest

from autopipe.api import search_facts
from autopipe.core.facts import Description
from autopipe.hardware import gpu
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
    assert search_facts.devices_of(described(accelerators), len(gpu.detect())) == (devices, reason)


def test_virtual_devices_are_called_so() -> None:
    assert search_facts.devices_of(described(virtual_devices=2), 0) == (2, "2 virtual devices were asked for")
