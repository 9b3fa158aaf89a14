"""What `ap.tune` refuses before it starts anything. Whole tunes: tests/integration."""

from __future__ import annotations

import sys
import types

import pytest

from autopipe.api.tuning import tune
from autopipe.errors import ConfigError


def test_a_baseline_of_a_notebook_stands_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_dataset() -> None:
        pass

    kernel = types.ModuleType("__main__")
    make_dataset.__module__, make_dataset.__qualname__ = "__main__", "make_dataset"
    vars(kernel)["make_dataset"] = make_dataset
    monkeypatch.setitem(sys.modules, "__main__", kernel)
    with pytest.raises(ConfigError, match="must be a function that stands in a file"):
        tune("train.py:workload", baseline=make_dataset)
