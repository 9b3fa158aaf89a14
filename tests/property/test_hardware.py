"""Whatever the kernel, a container or a user writes, looking at the machine gives an answer and no exception."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from autopipe.hardware import disk, machine

MOUNTS = (
    "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 23 0:29 / /sys/fs/v1 rw - cgroup cgroup rw,cpu,memory\n"
)
FOLDERS = ("sys/fs/cgroup", "sys/fs/v1")
FILES = (
    *("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.max", "memory.high", "memory.current"),
    *("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
)
words = st.one_of(st.integers().map(str), st.sampled_from(["max", "0", "-1", "inactive_file"]), st.text(max_size=8))
contents = st.lists(words, max_size=4).map(" ".join)
lines = st.lists(st.lists(words, max_size=12).map(" ".join), max_size=4).map("\n".join)


@contextlib.contextmanager
def written(files: dict[str, str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (file := Path(folder, name)).parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode(errors="surrogatepass"))
        yield Path(folder)


@given(st.dictionaries(st.sampled_from([f"{folder}/{file}" for folder in FOLDERS for file in FILES]), contents))
def test_any_content_of_a_group_gives_at_least_a_core_and_no_negative_memory(files: dict[str, str]) -> None:
    memory = "MemTotal: 1000 kB\nMemAvailable: 900 kB\n"
    with written(files | {"proc/self/mountinfo": MOUNTS, "proc/meminfo": memory}) as root:
        assert machine.usable_cores(root) >= 1
        found = machine.detect_memory(root)
        assert 0 <= found.usable_bytes <= 1000 * 1024
        assert 0 <= found.available_bytes <= 900 * 1024


@given(mountinfo=lines, cgroup=lines, meminfo=lines, group=st.text(max_size=12))
def test_any_list_of_mounts_and_groups_is_read(mountinfo: str, cgroup: str, meminfo: str, group: str) -> None:
    groups = f"0::/{group}\n1:cpu,memory:{group}\n{cgroup}"
    files = {"self/mountinfo": MOUNTS + mountinfo, "self/cgroup": groups, "meminfo": meminfo}
    with written({f"proc/{name}": text for name, text in files.items()}) as root:
        assert machine.usable_cores(root) >= 1
        machine.detect_memory(root)
        disk.detect(root, root)
