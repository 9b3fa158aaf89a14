from __future__ import annotations

import pytest

from autopipe.errors import ConfigError
from autopipe.search.settings import Settings


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"budget_seconds": "2m"}, r"`budget` must be a number of seconds, or None, but got '2m'\. `budget=120`"),
        ({"budget_seconds": -1}, "longer than 0 s and come to an end, but got -1 s"),
        ({"budget_seconds": float("inf")}, r"but got inf s\. .* budget=None takes as long as the trials do\."),
        ({"budget_seconds": float("nan")}, "but got nan s"),
        ({"trials": 0}, "`trials` must be a whole number of 1 or more, but got 0"),
        ({"trials": "ten"}, "`trials` must be a whole number of 1 or more, but got 'ten'"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused_in_words(chosen: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**chosen)  # type: ignore[arg-type]
