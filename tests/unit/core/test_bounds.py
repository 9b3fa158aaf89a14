from __future__ import annotations

import pytest

from autopipe.core.bounds import BoundError, evaluate

NAMES = {"cores": 6, "gpus": 0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("cores", 6),
        (" 2*cores ", 12),
        ("1 + 2*cores - 3", 10),
        ("(1 + 2)*cores", 18),
        ("cores//4", 1),
        ("2*cores//4*3", 9),
        ("max(1, gpus)", 1),
        ("min(16, max(cores, 2))", 6),
    ],
)
def test_a_bound_is_computed(text: str, expected: int) -> None:
    assert evaluate(text, NAMES) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "but this one is ``"),
        ("2*core", "Did you mean `cores`"),
        ("2 cores", "but this one is `2 cores`"),
        ("cores/2", "`cores / 2` is none of them"),
        ("-cores", "`-cores` is none of them"),
        ("cores**9", "none of them"),
        ("2.5", "`2.5` is none of them"),
        ("True", "`True` is none of them"),
        ("cores//gpus", "divides by zero"),
        ("max(1)", r"`max\(1\)` is none of them"),
        ("max(*cores, 1)", "none of them"),
        ("(1", "but this one is"),
        ("__import__('os')", "none of them"),
        ("cores.real", "none of them"),
        ("cores\0", "but this one is"),
        ("1" * 81, "at most 80"),
    ],
)
def test_what_is_no_bound_is_named(text: str, problem: str) -> None:
    with pytest.raises(BoundError, match=problem):
        evaluate(text, NAMES)
