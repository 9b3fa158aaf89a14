"""The search space that comes with the extension. That it makes configurations: tests/unit/search/test_library.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from autopipe.errors import SpaceError
from autopipe.search import library
from tests.unit.cli.conftest import Autopipe

BOUNDS = {"cores": 2, "gpus": 0}


def test_a_knob_of_ray_is_named_with_the_space_that_has_it() -> None:
    with pytest.raises(SpaceError, match=r"`ray\.workers` is no parameter of this space") as caught:
        library.require(library.load("default", BOUNDS), "ray.workers", [4], BOUNDS)
    assert "--space remote," in str(caught.value.hint)


def test_tune_names_the_space_that_has_ray_before_a_child_is_started(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = autopipe("tune", "train.py:workload", "--only", "loader=ray")
    assert (ended.status, ended.out) == (2, "")
    assert "hint: The space `remote` has it: --space remote," in ended.err
