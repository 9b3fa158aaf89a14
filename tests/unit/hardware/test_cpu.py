from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.hardware import cpu

Play = Callable[[dict[str, str]], Path]

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNT = "31 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


def v2(play: Play, limits: dict[str, str]) -> Path:
    return play(
        {"proc/self/cgroup": "0::/jobs/trial\n", "proc/self/mountinfo": V2_MOUNT}
        | {f"sys/fs/cgroup/{group}": text for group, text in limits.items()}
    )


def v1(play: Play, limits: dict[str, str], mount: str = V1_MOUNT, group: str = "/jobs/trial") -> Path:
    return play(
        {"proc/self/cgroup": f"9:name=systemd:/\n1:cpu,cpuacct:{group}\n0::/\n", "proc/self/mountinfo": mount}
        | {f"sys/fs/cgroup/cpu/{name}": text for name, text in limits.items()}
    )


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert cpu.quota_cores(tmp_path) is None
    assert cpu.usable_cores(tmp_path) == 16


def test_version_2_quota_of_the_own_group(play: Play) -> None:
    assert cpu.usable_cores(v2(play, {"jobs/trial/cpu.max": "400000 100000\n"})) == 4


def test_the_lowest_quota_of_all_parents_counts(play: Play) -> None:
    limits = {"jobs/trial/cpu.max": "400000 100000\n", "jobs/cpu.max": "200000 100000\n", "cpu.max": "max 100000\n"}
    assert cpu.usable_cores(v2(play, limits)) == 2


def test_max_is_no_quota(play: Play) -> None:
    assert cpu.quota_cores(v2(play, {"jobs/trial/cpu.max": "max 100000\n"})) is None


@pytest.mark.parametrize(("quota", "cores"), [("150000", 2), ("50000", 1), ("10000000", 16)])
def test_a_broken_quota_is_rounded_up_and_never_exceeds_the_affinity(play: Play, quota: str, cores: int) -> None:
    assert cpu.usable_cores(v2(play, {"jobs/trial/cpu.max": f"{quota} 100000\n"})) == cores


@pytest.mark.parametrize(("quota", "cores"), [("150000", 1.5), ("50000", 0.5), ("10000000", 16.0)])
def test_what_a_quota_gives_is_no_more_than_it_says(play: Play, quota: str, cores: float) -> None:
    assert cpu.core_time(v2(play, {"jobs/trial/cpu.max": f"{quota} 100000\n"})) == cores


@pytest.mark.parametrize(("quota", "cores"), [("150000", 14.5), ("10000000", 0.0), ("max", 0.0)])
def test_cores_that_a_quota_keeps_this_process_from_are_spare(play: Play, quota: str, cores: float) -> None:
    assert cpu.spare_cores(v2(play, {"jobs/trial/cpu.max": f"{quota} 100000\n"})) == cores


def test_version_1_quota(play: Play) -> None:
    root = v1(play, {"jobs/cpu.cfs_quota_us": "300000\n", "jobs/cpu.cfs_period_us": "100000\n"})
    assert cpu.usable_cores(root) == 3


def test_version_1_without_quota_says_minus_one(play: Play) -> None:
    root = v1(play, {"jobs/trial/cpu.cfs_quota_us": "-1\n", "jobs/trial/cpu.cfs_period_us": "100000\n"})
    assert cpu.quota_cores(root) is None


def test_in_a_version_1_container_the_group_is_the_mount_point(play: Play) -> None:
    """The kernel names the group as the host does, and mounts that group itself."""
    root = v1(
        play,
        {"cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n"},
        mount=V1_MOUNT.replace("0:29 / ", "0:29 /docker/abc "),
        group="/docker/abc",
    )
    assert cpu.usable_cores(root) == 2


def test_a_group_that_is_not_mounted_falls_back_to_the_mount_point(play: Play) -> None:
    root = v1(
        play,
        {"cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n"},
        mount=V1_MOUNT.replace("0:29 / ", "0:29 /docker/abc "),
        group="/elsewhere",
    )
    assert cpu.usable_cores(root) == 2


def test_a_group_outside_of_the_namespace_is_not_looked_for_beside_the_mount_point(play: Play) -> None:
    beside = {"../other/cpu.cfs_quota_us": "100000\n", "../other/cpu.cfs_period_us": "100000\n"}
    root = v1(play, {"cpu.cfs_quota_us": "-1\n"} | beside, group="/../other")
    assert cpu.quota_cores(root) is None


def test_both_versions_at_once(play: Play) -> None:
    root = v1(
        play,
        {"jobs/trial/cpu.cfs_quota_us": "500000\n", "jobs/trial/cpu.cfs_period_us": "100000\n"},
        mount=V1_MOUNT + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
    )
    assert cpu.usable_cores(root) == 5


def test_model_is_the_first_name_listed(play: Play) -> None:
    root = play({"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7B13\n\nmodel name\t: other\n"})
    assert cpu.detect(root).model == "AMD EPYC 7B13"


def test_a_processor_without_a_name_goes_by_its_architecture(play: Play) -> None:
    assert cpu.model_name(play({"proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd0c\n"})) == os.uname().machine


def test_a_process_bound_to_one_core_has_one() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from autopipe.hardware import cpu; print(cpu.detect().cores)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "1\n"
