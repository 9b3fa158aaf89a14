"""The machine as it is found: cores and memory that cgroups leave, GPUs, libraries."""

import contextlib
import ctypes
import functools
import importlib.util
import os
import platform
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import threadpoolctl

from autopipe.errors import ConfigError, MissingExtraError
from autopipe.hardware import gpu, machine, processes
from autopipe.hardware.gpu import BACKENDS, Gpu, GpuUse, keras_backend, require_installed, require_known
from autopipe.hardware.machine import Cpu, Machine, Memory
from tests.fakes.nvml import Device, FakeNvml
from tests.unit.hardware.conftest import Play

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


V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNT = "31 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
CONTAINER = V1_MOUNT.replace("0:29 / ", "0:29 /docker/abc ")
BOTH = V1_MOUNT + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)


def test_without_cgroups_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (machine.quota_cores(tmp_path), machine.usable_cores(tmp_path)) == (None, 16)
    monkeypatch.undo()
    with ThreadPoolExecutor(1) as one:  # whose thread alone is bound
        one.submit(lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})).result()
        assert one.submit(machine.usable_cores).result() == 1


def test_the_model_is_the_first_name_listed_or_else_the_architecture(play: Play) -> None:
    root = play({"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7B13\n\nmodel name\t: other\n"})
    assert machine.model_name(root) == "AMD EPYC 7B13"
    assert machine.model_name(play({"proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd0c\n"})) == os.uname().machine


def v2_quotas(limits: dict[str, str]) -> dict[str, str]:
    files = {f"sys/fs/cgroup/{group}/cpu.max": f"{quota} 100000\n" for group, quota in limits.items()}
    return {"proc/self/cgroup": "0::/jobs/trial\n", "proc/self/mountinfo": V2_MOUNT} | files


def test_the_lowest_version_2_quota_counts(play: Play) -> None:
    for quota, usable, time in (("400000", 4, 4.0), ("max", 16, 16.0), ("150000", 2, 1.5), ("50000", 1, 0.5)):
        root = play(v2_quotas({"jobs/trial": quota}))
        found = machine.usable_cores(root), machine.core_time(root), machine.spare_cores(root)
        assert found == (usable, time, 16 - time)
    assert machine.core_time(play(v2_quotas({"jobs/trial": "10000000"}))) == 16.0
    assert machine.core_time(play(v2_quotas({"jobs/trial": "400000", "jobs": "200000", ".": "max"}))) == 2.0


V1_QUOTAS = {
    "parent": ("/jobs/trial", V1_MOUNT, {"jobs/": 300_000}, 3),
    "no quota": ("/jobs/trial", V1_MOUNT, {"jobs/trial/": -1}, 16),
    "named as the host does: the mount is that group": ("/docker/abc", CONTAINER, {"": 200_000}, 2),
    "not mounted": ("/elsewhere", CONTAINER, {"": 200_000}, 2),
    "outside the namespace": ("/../other", V1_MOUNT, {"": -1, "../other/": 100_000}, 16),
    "both versions": ("/jobs/trial", BOTH, {"jobs/trial/": 500_000}, 5),
}


@pytest.mark.parametrize("case", V1_QUOTAS)
def test_version_1_quotas_are_found(play: Play, case: str) -> None:
    group, mount, limits, usable = V1_QUOTAS[case]
    files = {"proc/self/cgroup": f"9:name=systemd:/\n1:cpu,cpuacct:{group}\n0::/\n", "proc/self/mountinfo": mount}
    for name, quota in limits.items():
        files[f"sys/fs/cgroup/cpu/{name}cpu.cfs_quota_us"] = f"{quota}\n"
        files[f"sys/fs/cgroup/cpu/{name}cpu.cfs_period_us"] = "100000\n"
    assert machine.usable_cores(play(files)) == usable


def test_what_keeps_a_process_to_fewer_cores_is_named(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Any, str, dict[str, str], list[str]]] = [
        (range(16), "max", {}, []),
        ([0], "max", {}, ["on core 0 only"]),
        ([0, 1, 2, 5, 8, 9], "max", {}, ["on cores 0-2, 5, 8-9 only"]),
        (range(16), "150000", {}, ["the time of 1.5 cores"]),
        (range(16), "max", {"OMP_PROC_BIND": "TRUE", "KMP_AFFINITY": "none"}, ["OMP_PROC_BIND=TRUE"]),
        ([3], "50000", {"GOMP_CPU_AFFINITY": "3"}, ["on core 3 only", "the time of 0.5 cores", "GOMP_CPU_AFFINITY=3"]),
    ]
    for cores, quota, environment, said in cases:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(cores))
        limits = machine.core_limits(play(v2_quotas({"jobs/trial": quota})), environment)
        assert [words for words, limit in zip(said, limits, strict=True) if words not in limit] == []


def test_this_machine_has_some_memory_left_and_sizes_are_written_for_people() -> None:
    found = machine.detect_memory()
    assert 0 < found.available_bytes <= found.usable_bytes
    sizes = {0: "0 B", 1023: "1023 B", 2**30 - 1: "1 GiB", 25_165_824_000: "23.4 GiB", 3 * 2**41: "6 TiB"}
    assert {count: machine.size_text(count) for count in sizes} == sizes


MEMINFO = f"MemTotal: {16 * 2**20} kB\nMemFree:  1 kB\nMemAvailable:   {12 * 2**20} kB\nHugePages_Total:       0\n"
V1_MEMORY = V1_MOUNT.replace("/cpu rw", "/memory rw").replace("rw,cpu,cpuacct", "rw,memory")
V2_STAT = f"anon 123\ninactive_file {2 * GIB}\nactive_file {2 * GIB}\nfile_mapped {GIB}\n"
MAPPED = f"inactive_file {GIB}\nactive_file {GIB}\nfile_mapped {2 * GIB}\n"
V1_STAT = f"inactive_file 1\ntotal_inactive_file {GIB // 4}\ntotal_active_file {GIB // 4}\n"


def v2(name: str = "0::/jobs/trial\n", mount: str = V2_MOUNT, root: str = "", /, **values: object) -> dict[str, str]:
    """Return the files of a group by their names; `parent_` stands before those of the group above."""
    found = {"proc/self/cgroup": name, "proc/self/mountinfo": mount}
    for file, value in values.items():
        group = "jobs/" if file.startswith("parent_") else "jobs/trial/"
        found[f"sys/fs/cgroup/{root}{group}memory.{file.removeprefix('parent_')}"] = f"{value}\n"
    return found


v1 = functools.partial(v2, "4:memory:/jobs/trial\n", V1_MEMORY, "memory/")


KNOWN: dict[str, tuple[dict[str, str], int, float]] = {
    "no group": ({}, 16, 12),
    # Pages of files are as good as free, but for mapped ones; where all active ones may be, inactive ones count.
    "version 2": (v2(max=8 * GIB, high="max", current=5 * GIB, stat=V2_STAT), 8, 6),
    "mapped pages": (v2(max=8 * GIB, high=9 * GIB, current=5 * GIB, stat=MAPPED), 8, 4),
    "soft limit of a parent": (v2(max=8 * GIB, parent_high=4 * GIB, parent_current=5 * GIB), 4, 0),
    "version 1": (v1(limit_in_bytes=2 * GIB, usage_in_bytes=GIB, stat=V1_STAT), 2, 1.5),
    "version 1 without a limit": (v1(limit_in_bytes=9223372036854771712), 16, 12),
}


@pytest.mark.parametrize("case", KNOWN)
def test_the_lowest_limit_of_all_groups_counts(play: Play, case: str) -> None:
    limits, usable, available = KNOWN[case]
    found = machine.detect_memory(play({"proc/meminfo": MEMINFO} | limits))
    assert (found.usable_bytes, found.available_bytes) == (usable * GIB, available * GIB)


V1_EVENTS = "oom_kill_disable 0\nunder_oom 0\noom_kill 3"


def test_kills_of_this_group_alone_are_counted(play: Play) -> None:
    of_v2 = v2(events="low 0\noom 9\noom_kill 2", parent_events="oom_kill 5")
    of_v1 = v1(oom_control=V1_EVENTS, parent_oom_control="oom_kill 5")
    for group, kills in (({}, 0), (v1(), 0), (v2(), 0), (of_v2, 2), (of_v1, 3)):  # the first ones say nothing
        assert machine.oom_kills(play({"proc/vmstat": "oom_kill 7\n"} | group)) == kills  # 7 of the whole machine


def test_mounts_are_read_with_any_number_of_optional_fields_and_escaped_names(play: Play) -> None:
    lines = (
        "36 35 98:0 /inner /mnt rw shared:1 master:2 - ext3 /dev/root rw,errors=continue\n"
        "36 35 98:0 /a\\040b /my\\040photos\\134x rw - nfs4 server:/ rw\n"
    )
    first, second = machine.read(play({"proc/self/mountinfo": lines}))
    assert first == machine.Mount(kind="ext3", inner="/inner", point="/mnt", options=("rw", "errors=continue"))
    assert (second.point, second.inner) == ("/my photos\\x", "/a b")
