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
        ("", "its end where a number or name"),
        ("2*core", "Did you mean `cores`"),
        ("2 cores", "`cores` where it should end"),
        ("cores/2", "'/'"),
        ("cores//gpus", "divides by zero"),
        ("max(1)", "should be"),
        ("(1", "should be"),
        ("__import__('os')", "no part of a bound"),
        ("cores.real", r"'\.'"),
        ("1" * 81, "at most 80"),
    ],
)
def test_what_is_no_bound_is_named(text: str, problem: str) -> None:
    with pytest.raises(BoundError, match=problem):
        evaluate(text, NAMES)
