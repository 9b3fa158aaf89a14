"""The command line in this process, too."""

from __future__ import annotations

from tests.unit.cli.conftest import autopipe as autopipe
