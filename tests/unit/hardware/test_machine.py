"""What the machine is, and which devices and packages it has."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import platform
import sys
import types
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import cv2
import numpy as np
import pytest
import threadpoolctl

from autopipe.errors import ConfigError, MissingExtraError
from autopipe.hardware import gpu, machine, processes
from autopipe.hardware.gpu import BACKENDS, Gpu, GpuUse, keras_backend, require_installed, require_known
from autopipe.hardware.machine import Cpu, Machine, Memory
from tests.fakes.nvml import Device, FakeNvml

GIB = 2**30
H200 = Gpu(name="NVIDIA H200", memory_bytes=141 * GIB, driver="570.12")
GB10 = replace(H200, name="GB10", memory_bytes=None)
CPU = Cpu(model="AMD EPYC 7B13", cores=2, logical_cores=2)
MEMORY = Memory(usable_bytes=int(23.4 * GIB), available_bytes=20 * GIB)
THIS = Machine(cpu=CPU, memory=MEMORY, gpus=(), os="Debian", kernel="Linux 6.1.0", python="3.11.7", versions={})


def test_this_machine_is_found_and_any_is_told_in_one_line() -> None:
    found = machine.detect()
    assert (found.python, found.cpu.cores >= 1) == (platform.python_version(), True)
    assert found.versions["numpy"] == np.__version__ == metadata.version("numpy")
    xeon = replace(THIS, cpu=Cpu(model="Xeon", cores=1, logical_cores=64))
    assert xeon.one_line() == "1 of 64 cores (Xeon), 23.4 GiB, no GPU"
    shown = {
        (): "no GPU",
        (H200,): "NVIDIA H200 141 GiB",
        (H200, H200): "2 x NVIDIA H200 141 GiB",
        (H200, GB10): "NVIDIA H200 141 GiB, GB10",
    }
    for gpus, words in shown.items():
        assert replace(THIS, gpus=gpus).one_line() == f"2 cores (AMD EPYC 7B13), 23.4 GiB, {words}"


A, B = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000"


@pytest.fixture(autouse=True)
def every_gpu_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_two_gpus_with_what_they_are_and_do_now_until_the_library_is_closed_once() -> None:
    one, library = Gpu(name="NVIDIA A100-SXM4-40GB", memory_bytes=40 * GIB, driver="570.12"), FakeNvml()
    assert gpu.detect(library) == (one, one)
    assert library.initialised == 0
    with contextlib.closing(gpu.Nvml(library)) as nvml:
        assert library.initialised == 1
        assert nvml.use() == (
            GpuUse(busy_percent=75.0, memory_used_bytes=3 * GIB, power_watts=250.5),
            GpuUse(busy_percent=25.0, memory_used_bytes=5 * GIB, power_watts=150.0),
        )
        nvml.close()
    assert (library.initialised, nvml.gpus(), nvml.use()) == (0, (), ())


def test_without_the_package_are_none_and_the_installed_one_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    played = [name for name in dir(FakeNvml) if name.lower().startswith("nvml")]
    assert [name for name in played if not hasattr(pynvml, name)] == []
    assert all(isinstance(found, Gpu) for found in gpu.detect())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.detect() == ()


def test_figures_that_a_gpu_does_not_give_are_none() -> None:
    of_device = {f"nvmlDeviceGet{each}" for each in ("Name", "MemoryInfo", "UtilizationRates", "PowerUsage")}
    silent = frozenset({"nvmlSystemGetDriverVersion", "nvmlShutdown", *of_device})
    with contextlib.closing(gpu.Nvml(FakeNvml(devices=(Device(),), failing=silent))) as nvml:
        assert nvml.gpus() == (Gpu(name="NVIDIA GPU", memory_bytes=None, driver=None),)
        assert nvml.use() == (GpuUse(busy_percent=None, memory_used_bytes=None, power_watts=None),)
    for function in ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        assert gpu.detect(FakeNvml(failing=frozenset({function}))) == ()


VISIBLE = {"0,1": [75, 25], "1": [25], "1, 0": [25, 75], "": [], "-1": [], "0,7,1": [75], f"{B},{A}": [25, 75]}
VISIBLE |= {"GPU-bbbb": [25], "GPU-": [], "MIG-cccc3333": [75], "MIG-unknown,0": []}


def test_only_visible_gpus_count_in_the_order_in_which_cuda_shows_them() -> None:
    for visible, busy in VISIBLE.items():
        with contextlib.closing(gpu.Nvml(FakeNvml(), {"CUDA_VISIBLE_DEVICES": visible})) as nvml:
            assert [use.busy_percent for use in nvml.use()] == busy, visible


def test_virtual_devices_are_those_that_were_asked_for_by_a_whole_number() -> None:
    asked = {"": 0, "0": 0, "2": 2, " 8 ": 8}
    assert {text: gpu.asked({gpu.VARIABLE: text}) for text in asked} == asked
    assert gpu.asked({}) == 0
    for text in ("two", "-1", "1.5"):
        with pytest.raises(ConfigError, match="AUTOPIPE_VIRTUAL_DEVICES"):
            gpu.asked({gpu.VARIABLE: text})


JAX = types.SimpleNamespace(config=types.SimpleNamespace(backend=lambda: "jax"))
HALF = types.SimpleNamespace()  # in the middle of its import


def test_the_backend_of_keras_is_that_of_an_imported_one_or_else_of_the_environment() -> None:
    assert [keras_backend(environment, {}) for environment in ({}, {"KERAS_BACKEND": ""})] == [None, None]
    torch = {"KERAS_BACKEND": "torch"}
    found = [keras_backend(torch, modules) for modules in ({}, {"keras": HALF}, {"keras": JAX})]
    assert found == ["torch", "torch", "jax"]  # the last was set too late


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_backend_that_is_not_installed_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=f"`{name}` is not installed; the extra `{name}` brings it") as raised:
        require_installed({"KERAS_BACKEND": name})
    hint = str(raised.value.hint)  # with bounds in the order of whichever tool built the package's metadata
    assert (f"'{name}" in hint, ">=" in hint) == (True, True)


def test_backends_that_keras_has_and_none_are_taken_and_no_other() -> None:
    for asked, guess in (("jx", " Did you mean `jax`?"), ("JAX", " Did you mean `jax`?"), ("mxnet", "")):
        with pytest.raises(ConfigError) as raised:
            require_known({"KERAS_BACKEND": asked})
        assert raised.value.message.endswith(f"numpy, openvino, tensorflow, torch, but got {asked!r}.{guess}")
        assert "unset it" in str(raised.value.hint)
    for environment in ({}, {"KERAS_BACKEND": ""}, *({"KERAS_BACKEND": name} for name in BACKENDS)):
        require_known(environment)
    for environment in ({}, {"KERAS_BACKEND": "tensorflow"}, {"KERAS_BACKEND": "numpy"}):
        require_installed(environment)


def test_no_opencv_and_two_at_once_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"opencv-python": "5.0", "opencv-python-headless": "4.10"}
    for name, version in there.items():
        (folder := tmp_path / f"{name.replace('-', '_')}-{version}.dist-info").mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert "pip install opencv-python-headless" in str(machine.opencv_warning({}))
    assert machine.opencv_warning({"opencv-contrib-python": "5.0"}) is None
    assert machine.opencv_installed() == there
    assert machine.opencv_warning(there) == (
        "opencv-python 5.0 and opencv-python-headless 4.10 are installed together, but bring the same module `cv2`. "
        "Run: pip uninstall -y opencv-python opencv-python-headless && pip install opencv-python-headless"
    )


def library_threads() -> set[int]:
    blas = {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}
    return {cv2.getNumThreads(), *blas}


def test_libraries_work_in_the_thread_that_calls_them_until_they_have_their_own_threads_back() -> None:
    before = cv2.getNumThreads()
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        try:
            cv2.setNumThreads(2)
            with processes.library_threads():
                with processes.library_threads(2):
                    assert library_threads() == {1}
                assert library_threads() == {1}
            assert library_threads() == {2}
        finally:
            cv2.setNumThreads(before)


def test_freed_memory_is_kept_where_the_c_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[int, int]] = []
    library = types.SimpleNamespace(mallopt=lambda *setting: called.append(setting))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(processes, "_keeps", False)
    processes.keep_again()
    assert called == []  # it was not told to
    processes.keep_freed_memory()
    wanted = [(-3, 32 << 20), (-1, 256 << 20), (-2, 64 << 20)]
    assert called == wanted
    processes.keep_again()
    assert called == 2 * wanted
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    processes.keep_freed_memory()
