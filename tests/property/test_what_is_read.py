"""Whatever the kernel, a user or a torn write leaves, looking at the machine gives an answer, a kept set is sound or a
StorageError, and a search space is sound or a SpaceError; never another exception.
"""

import contextlib
import json
import string
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autopipe.errors import SpaceError, StorageError
from autopipe.hardware import disk, machine
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.form import Folder
from autopipe.pipeline.storage.layout import SetRecord, whole_record
from autopipe.search import space as spaces
from autopipe.search.space import Space, among

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


per_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SOUND = SetRecord(
    storage="array", source_digest="count=2", ops=("Decode",), ops_digest="abc", cut=1, samples=2, samples_per_shard=1,
    files={f"x-{number:05d}.npy": (0, "00000000") for number in range(2)},
)  # fmt: skip


def saved(folder: Path) -> Path:
    for name in SOUND.files:
        (folder / name).touch()
    SOUND.save(Folder.of(folder))
    return folder / "set.json"


@per_file
@given(st.data())
def test_a_sound_record_comes_back_and_a_changed_text_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    text = (file := saved(tmp_path)).read_text()
    assert whole_record(Folder.of(tmp_path)) == SOUND
    place = data.draw(st.integers(0, len(text) - 2))  # the last character is a line end
    changed = text[:place] + data.draw(st.text(max_size=3)) + text[place + data.draw(st.integers(0, 20)) :]
    file.write_bytes(changed.encode("utf-8", "surrogatepass"))
    same = False
    with contextlib.suppress(ValueError):
        same = json.loads(changed) == json.loads(text)
    if not same:
        with pytest.raises(StorageError):
            whole_record(Folder.of(tmp_path))


@per_file
@given(st.data())
def test_values_of_the_wrong_kind_are_refused_even_with_a_good_seal(tmp_path: Path, data: st.DataObject) -> None:
    file, body = saved(tmp_path), SOUND.model_dump(mode="json")
    owner: dict[str, Any] = data.draw(st.sampled_from([body, body["files"]]))
    key = data.draw(st.sampled_from([*sorted(owner), "../x-00000.npy"]))
    owner[key] = data.draw(JSON)
    file.write_text(json.dumps({**body, "seal": layout._seal(body)}))
    try:
        whole_record(Folder.of(tmp_path))
    except StorageError as error:
        assert "set" in error.message  # noqa: PT017  # it may also be sound


BOUNDS = {"cores": 3, "gpus": 1}
SHIPPED = [path.read_text() for path in sorted((Path(__file__).parents[2] / "search_spaces").glob("*.yaml"))]

scalars = st.none() | st.booleans() | st.integers(-10, 10**6) | st.floats() | st.text(max_size=12)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
bounds = st.sampled_from([0, 1, 4, "cores", "cores*2", "gpus", "core", "1+"])
CHOICES = [1, 2, "auto", "none", "memory", "threads", "cores", True]
when = st.dictionaries(st.sampled_from(["loader", "keep"]), st.sampled_from(["threads", "memory"]), max_size=2)
ranges = {"range": st.tuples(bounds, bounds).map(list), "log": st.booleans(), "step": st.integers(-1, 3)}
choices = st.lists(st.sampled_from(CHOICES), max_size=4)
parameter = st.fixed_dictionaries({}, optional={"choices": choices, "when": when, **ranges})
names = st.sampled_from(["loader", "keep", "devices", "device_prefetch", "threads.workers", "tfdata.prefetch", "what"])
space_files = st.dictionaries(names, parameter, max_size=5).map(
    lambda some: {"schema_version": 1, "parameters": {"loader": ["threads", "tfdata"], **some}}
)


def read(text: str) -> Space | None:
    try:
        return spaces.parse(text)(BOUNDS)
    except SpaceError:
        return None


@given(st.text(max_size=200) | trees.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)))
def test_any_text_and_any_tree(text: str) -> None:
    read(text)


@given(st.sampled_from(SHIPPED), st.integers(0, 10**6), st.text(string.printable, max_size=5), st.integers(0, 5))
def test_a_shipped_space_with_a_place_overwritten(text: str, place: int, put: str, cut: int) -> None:
    at = place % len(text)
    read(text[:at] + put + text[at + cut :])


@given(space_files)
def test_whatever_is_read_enumerates_inside_itself_and_counts_what_it_enumerates(tree: dict[str, object]) -> None:
    space = read(yaml.safe_dump(tree, sort_keys=False))
    if space is None:
        return
    for params, _ in zip(space.grid(), range(50), strict=False):
        assert {parameter.name for parameter in space.parameters if parameter.counts(params)} == set(params)
        assert all(among(value, space[name].values) for name, value in params.items())
    if space.count() <= 1000:
        assert space.count() == sum(1 for _ in space.grid())
