"""What `ap.tune` refuses before it starts anything. Whole tunes: tests/integration."""

from __future__ import annotations

import sys
import types

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
