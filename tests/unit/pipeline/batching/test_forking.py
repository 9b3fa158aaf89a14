"""Forking is judged without settling how processes start."""

from __future__ import annotations

import multiprocessing

import pytest

from autopipe import frameworks
from autopipe.errors import LoaderError
from autopipe.pipeline.batching import stream


class Loader:
    __module__ = "torch.utils.data"
    num_workers = 2


def test_a_script_may_still_choose_how_processes_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def method(allow_none: bool = False) -> str | None:
        asked.append(allow_none)
        return None if allow_none else "fork"

    monkeypatch.setattr(multiprocessing, "get_start_method", method)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["fork", "spawn"])
    monkeypatch.setattr(frameworks, "running_framework", lambda: "TensorFlow")
    with pytest.raises(LoaderError, match="forks"):
        stream.require_safe_workers(Loader())
    assert asked == [True]
