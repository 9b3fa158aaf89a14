from __future__ import annotations

import math

import pydantic
import pytest

from autopipe.core.value import Estimate


def test_a_value_cannot_be_changed() -> None:
    rate = Estimate(value=2.0, low=1.0, high=3.0)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        rate.value = 1.0  # type: ignore[misc]  # what the test is about


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_figure_is_finite(value: float) -> None:
    with pytest.raises(pydantic.ValidationError, match="finite"):
        Estimate(value=value, low=0.0, high=1.0)


def test_an_interval_is_not_upside_down() -> None:
    with pytest.raises(pydantic.ValidationError, match="`low` must not exceed `high`"):
        Estimate(value=1.0, low=2.0, high=1.0)
