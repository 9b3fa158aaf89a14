"""`autopipe check` with a real child that trains: what it says of a profile that holds, one that drifted, and one gone
stale. All three share one child, on the backend that starts soonest."""

from __future__ import annotations

import contextlib
import datetime
import os
from pathlib import Path

import pytest

from autopipe.api import retuning
from autopipe.artifact.schema import Profile
from autopipe.hardware import machine
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description
from autopipe.search import lock, searching
from autopipe.search.result import Event, Waiting
from autopipe.search.searching import hardware_of
from tests.fakes.profiles import about, profile
from tests.fakes.workload_script import TRAIN


def _profile(described: Description, rate: float) -> Profile:
    """Return what a tune in this very child would have found, at another rate."""
    here = fingerprint.of_machine(machine.detect(), described.storage_kind, described.backend)
    digest, now = described.digest, datetime.datetime.now(datetime.UTC)
    return profile(hardware=here, workload=digest, images_per_second=about(rate), ceiling=None, measured_at=now)


@pytest.mark.slow
def test_a_profile_that_holds_one_that_drifted_and_one_gone_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(retuning, "PROOF", {"min_seconds": 0.5, "max_seconds": 1.0})
    (tmp_path / "train.py").write_text(TRAIN)

    with (
        searching.runner_for(f"{tmp_path / 'train.py'}:workload") as runner,
        retuning.Processes(runner) as processes,
    ):
        described = searching.description(runner)
        here = hardware_of(machine.detect(), described)
        holds = retuning.check_with(processes, described, _profile(described, 1e-3), here)
        waited = list[Event]()
        with contextlib.ExitStack() as another_tune:
            monkeypatch.setattr(lock, "MEASURING", f"autopipe-test-{os.getpid()}")
            another_tune.enter_context(lock.Queue(pytest.fail).held(lock.MEASURING))

            def wait(event: Event) -> None:
                waited.append(event)
                another_tune.close()

            fast = _profile(described, 1e12)
            queue = searching.queue_of(wait)
            drifted = retuning.check_with(processes, described, fast, here, queue=queue)
        (event,) = waited
        assert isinstance(event, Waiting)
        assert event.why.startswith(f"process {os.getpid()} ")
        assert queue.seconds > 0
        another = described.model_copy(update={"ops": "f" * 16, "op_list": described.op_list[1:]})
        stale = retuning.check_with(processes, another, _profile(described, 1.0), here, measures=lambda judged: False)
    assert described.backend == "jax"
    assert [each.exit_code for each in (holds, drifted, stale)] == [0, 5, 4]
    assert holds.rows[0].together is not None
    assert holds.rows[0].together.value > 1.0
    assert "images/s, but 1,000,000,000,000 when it was tuned" in drifted.reasons[0]
    assert "Rescale was removed" in stale.reasons[0]
