"""Fixtures of tests that start processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autopipe.measure.trial.child import Launch

FAKES = Path(__file__).parents[1] / "fakes"

TRAIN = """
from autopipe.workload.workload import Workload

class Numbers:
    def __len__(self):
        return 8

    def read(self, index):
        return index, index

workload = Workload(data=Numbers(), ops=[], batch_size=2)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """A workload file, and a session that misbehaves on request."""
    (tmp_path / "train.py").write_text(TRAIN)
    return Launch(
        workload="train.py:workload", session="trial_sessions:FakeSession", directory=tmp_path, sys_path=(str(FAKES),)
    )
