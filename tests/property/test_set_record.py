"""A record that is cut, mutated or made up gives a StorageError, never another exception and never a set."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autopipe.errors import StorageError
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.form import Folder
from autopipe.pipeline.storage.layout import SetRecord, whole_record

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
