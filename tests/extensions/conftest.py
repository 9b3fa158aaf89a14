"""The fixtures that tests of commands share."""

from __future__ import annotations

from tests.unit.cli.conftest import autopipe as autopipe
