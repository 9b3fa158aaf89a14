"""What `ap.tune` refuses before it starts anything. Whole tunes: tests/integration."""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from autopipe.api import tuning
from autopipe.api.tuning import tune
from autopipe.errors import ConfigError
from autopipe.search.settings import Settings


def test_a_baseline_of_a_notebook_stands_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_dataset() -> None:
        pass

    kernel = types.ModuleType("__main__")
    make_dataset.__module__, make_dataset.__qualname__ = "__main__", "make_dataset"
    vars(kernel)["make_dataset"] = make_dataset
    monkeypatch.setitem(sys.modules, "__main__", kernel)
    with pytest.raises(ConfigError, match="must be a function that stands in a file"):
        tune("train.py:workload", baseline=make_dataset)


def test_a_parameter_is_held_to_one_value_or_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []

    def run(workload: str, settings: Settings, watcher: object) -> tuple[None, str]:
        asked.append(settings)
        return None, "tuned"

    monkeypatch.setattr(tuning, "run", run)
    tune("train.py:workload", only={"cache": "none", "threads.workers": 4, "loader": ["threads", "tfdata"]})
    (settings,) = asked
    assert settings.limits.only == {"cache": ("none",), "threads.workers": (4,), "loader": ("threads", "tfdata")}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workload": 5}, "`workload` must be an ap.Workload or the name of one, but got 5."),
        ({"space": None}, "`space` must be the name of a search space, or a YAML file, but got None."),
        ({"storage": Path("study.db")}, "`storage` must be the URL of an Optuna storage, or None, but got "),
        ({"baseline": 5}, "`baseline` must be a function of your own, its name, or None, but got 5."),
        ({"on_event": 5}, "`on_event` must be a function, or None, but got 5."),
        ({"only": 5}, "`only` must be a mapping from parameters to their values, or None, but got 5."),
        ({"only": {"loader": None}}, "`only` must be a mapping from parameters to their values, or None, but got {'lo"),
        ({"only": {5: "threads"}}, "`only` must be a mapping from parameters to their values, or None, but got {5: '"),
    ],
)
def test_an_argument_that_cannot_be_is_named_with_its_value(given: dict[str, Any], message: str) -> None:
    arguments = {"workload": "train.py:workload", **given}
    with pytest.raises(ConfigError) as raised:
        tune(**arguments)
    assert raised.value.message.startswith(message)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("given", "ends"), [({"out": 5}, "out=5."), ({"trails": 3}, "trails=3. Did you mean `trials`?")]
)
def test_an_argument_that_there_is_not_is_named_with_its_value(given: dict[str, Any], ends: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tune("train.py:workload", **given)
    assert raised.value.message.startswith(
        "`ap.tune` takes workload, budget, trials, space, storage, join, seed, only, "
    )
    assert raised.value.message.endswith(f", but got {ends}")
    assert '.save("autopipe.json")' in str(raised.value.hint)
    assert "budget" in inspect.signature(tune).parameters


def test_a_file_of_a_space_may_be_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []

    def run(workload: str, settings: Settings, watcher: object) -> tuple[None, str]:
        asked.append(settings)
        return None, "tuned"

    monkeypatch.setattr(tuning, "run", run)
    tune("train.py:workload", space=Path("space.yaml"))  # type: ignore[arg-type]  # as it always was taken
    assert asked[0].space == "space.yaml"
