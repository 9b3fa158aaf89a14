"""What a trial's process changes of TensorFlow before it reads a user's dataset."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import tensorflow as tf

from autopipe.measure.trial import runner


def test_a_trial_writes_no_cache_file_of_the_users_and_reads_a_complete_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ours := tmp_path / "ours").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(ours))
    monkeypatch.setattr(tf.data.Dataset, "cache", tf.data.Dataset.cache)  # to have it back
    kept = str(tmp_path / "kept")
    theirs = tf.data.Dataset.range(4).cache(kept)
    runner._cache_apart(tf)
    for _ in range(2):
        half = iter(tf.data.Dataset.range(4).cache(kept))  # in the middle, as a trial may end
        assert (int(next(half)), [*tmp_path.iterdir()]) == (0, [ours])
    assert [int(each) for each in tf.data.Dataset.range(4).cache()] == [0, 1, 2, 3]
    assert len(list(theirs)) == 4
    assert [int(each) for each in tf.data.Dataset.range(9).cache(kept)] == [0, 1, 2, 3]
