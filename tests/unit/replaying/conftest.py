"""The small space of the searches' own tests."""

from __future__ import annotations

from tests.unit.search.conftest import space as space
