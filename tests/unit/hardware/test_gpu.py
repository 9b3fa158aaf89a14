from __future__ import annotations

import sys

import pytest

from autopipe.hardware import gpu
from tests.fakes.nvml import Device, FakeNvml

A, B = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000"


@pytest.fixture(autouse=True)
def every_gpu_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_two_gpus_with_name_memory_and_driver() -> None:
    one = gpu.Gpu(name="NVIDIA A100-SXM4-40GB", memory_bytes=40 * 2**30, driver="570.12")
    assert gpu.detect(FakeNvml()) == (one, one)


def test_what_they_do_now() -> None:
    with gpu.Nvml(FakeNvml()) as nvml:
        assert nvml.use() == (
            gpu.GpuUse(busy_percent=75.0, memory_used_bytes=3 * 2**30, power_watts=250.5),
            gpu.GpuUse(busy_percent=25.0, memory_used_bytes=5 * 2**30, power_watts=150.0),
        )


def test_without_a_driver_there_are_none() -> None:
    assert gpu.detect(FakeNvml(failing=frozenset({"nvmlInit"}))) == ()


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.detect() == ()


def test_the_installed_library_raises_nothing() -> None:
    assert all(isinstance(found, gpu.Gpu) for found in gpu.detect())


@pytest.mark.parametrize("function", ["nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_gpus_that_cannot_be_listed_are_none(function: str) -> None:
    assert gpu.detect(FakeNvml(failing=frozenset({function}))) == ()


def test_figures_that_a_gpu_does_not_give_are_none() -> None:
    silent = {
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetPowerUsage",
        "nvmlShutdown",
    }
    with gpu.Nvml(FakeNvml(devices=(Device(),), failing=frozenset(silent))) as nvml:
        assert nvml.gpus() == (gpu.Gpu(name="NVIDIA GPU", memory_bytes=None, driver=None),)
        assert nvml.use() == (gpu.GpuUse(busy_percent=None, memory_used_bytes=None, power_watts=None),)


@pytest.mark.parametrize(
    ("visible", "busy"),
    [
        ("0,1", [75, 25]),
        ("1", [25]),
        ("1, 0", [25, 75]),
        ("", []),
        ("-1", []),
        ("0,7,1", [75]),
        (f"{B},{A}", [25, 75]),
        ("GPU-bbbb", [25]),
        ("GPU-", []),
        ("MIG-cccc3333", [75]),
        ("MIG-unknown,0", []),
    ],
)
def test_only_visible_gpus_count_in_the_order_in_which_cuda_shows_them(visible: str, busy: list[int]) -> None:
    with gpu.Nvml(FakeNvml(), {"CUDA_VISIBLE_DEVICES": visible}) as nvml:
        assert [use.busy_percent for use in nvml.use()] == busy


def test_the_library_is_closed_once() -> None:
    library = FakeNvml()
    nvml = gpu.Nvml(library)
    assert library.initialised == 1
    nvml.close()
    nvml.close()
    assert library.initialised == 0
    assert (nvml.gpus(), nvml.use()) == ((), ())


def test_the_fake_has_no_function_that_the_real_module_lacks() -> None:
    import pynvml

    played = [name for name in dir(FakeNvml) if name.lower().startswith("nvml")]
    assert [name for name in played if not hasattr(pynvml, name)] == []
