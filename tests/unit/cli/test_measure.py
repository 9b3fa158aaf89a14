"""What `autopipe measure` refuses before it starts anything. Measurements: tests/integration/test_measure.py."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Autopipe


def test_a_trace_that_cannot_be_written_is_refused_before_the_workload_is_imported(
    autopipe: Autopipe, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("from pathlib import Path\n\nPath(__file__).with_name('imported').touch()\n")
    ended = autopipe("measure", f"{script}:workload", "--trace", tmp_path / "nowhere" / "trace.json")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: `--trace` must name a file in a folder that can be written to")
    assert not (tmp_path / "imported").exists()
