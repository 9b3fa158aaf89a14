"""A manifest that is cut, mutated or made up gives a StorageError, never another exception and never a set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autopipe.errors import StorageError
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.layout import FieldRecord, Header, Manifest, ShardRecord, whole_manifest
from autopipe.workload.sample import FieldKind

per_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def sound() -> Manifest:
    header = Header(
        storage="array",
        source_digest="count=2",
        ops=("Decode",),
        ops_digest="abc",
        cut=1,
        samples=2,
        samples_per_shard=1,
        x=FieldRecord(kind=FieldKind.IMAGE, shape=(1, 1, 3), dtype="uint8"),
        y=None,
    )
    shards = tuple(ShardRecord(number=number, header=header.seal, files=()) for number in range(2))
    return Manifest(header=header, shards=shards)


def test_a_sound_manifest_comes_back(tmp_path: Path) -> None:
    sound().save(tmp_path / "manifest.json")
    assert whole_manifest(tmp_path) == sound()


@per_file
@given(st.data())
def test_a_changed_text_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    sound().save(tmp_path / "manifest.json")
    text = (tmp_path / "manifest.json").read_text()
    place = data.draw(st.integers(0, len(text) - 2))  # the last character is a line end
    changed = text[:place] + data.draw(st.text(max_size=3)) + text[place + data.draw(st.integers(0, 20)) :]
    (tmp_path / "manifest.json").write_bytes(changed.encode("utf-8", "surrogatepass"))
    try:
        same = json.loads(changed) == json.loads(text)
    except ValueError:
        same = False
    if not same:
        with pytest.raises(StorageError):
            whole_manifest(tmp_path)


@per_file
@given(st.data())
def test_values_of_the_wrong_kind_are_refused_even_with_a_good_seal(tmp_path: Path, data: st.DataObject) -> None:
    body: dict[str, Any] = sound().model_dump(mode="json")
    owner = data.draw(st.sampled_from([body, body["header"], body["shards"][0], body["header"]["x"]]))
    key = data.draw(st.sampled_from(sorted(owner)))
    value = data.draw(JSON)
    owner[key] = value
    seal = layout._seal(body)
    (tmp_path / "manifest.json").write_text(json.dumps({**body, "seal": seal}))
    try:
        whole_manifest(tmp_path)
    except StorageError as error:
        assert "manifest.json" in error.message  # noqa: PT017  # it may also be sound
