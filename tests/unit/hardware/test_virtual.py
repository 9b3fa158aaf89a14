from __future__ import annotations

import pytest

from autopipe.errors import ConfigError
from autopipe.hardware import virtual


@pytest.mark.parametrize(("text", "count"), [(None, 0), ("", 0), ("0", 0), ("2", 2), (" 8 ", 8)])
def test_virtual_devices_are_those_that_were_asked_for(text: str | None, count: int) -> None:
    assert virtual.asked({} if text is None else {virtual.VARIABLE: text}) == count


@pytest.mark.parametrize("text", ["two", "-1", "1.5"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="AUTOPIPE_VIRTUAL_DEVICES"):
        virtual.asked({virtual.VARIABLE: text})
