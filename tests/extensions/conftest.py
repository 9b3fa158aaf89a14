"""The fixtures that tests of commands share."""

from tests.unit.cli.conftest import autopipe as autopipe
