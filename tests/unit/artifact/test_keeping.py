from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autopipe import again
from autopipe.artifact import artifact as files
from autopipe.artifact import codegen
from autopipe.errors import ArtifactError
from autopipe.hardware import machine
from autopipe.measure import fingerprint
from autopipe.measure.outcome import StepTime
from autopipe.values import Estimate
from autopipe.workload.mode import Mode
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import artifact, digest, hardware, profile


def step(mode: Mode, seconds: float = 0.004) -> StepTime:
    took = Estimate(value=seconds, low=seconds, high=seconds)
    return StepTime(mode=mode, batch_size=32, step_seconds=took, first_call_seconds=1.0, backend="none")


def written(folder: Path, **changes: Any) -> Path:
    here = fingerprint.of_machine(machine.detect(), DESCRIBED.storage_kind, DESCRIBED.backend, 0)
    plain = {"hardware": here, "workload": digest(model="m")}
    other = profile(hardware=hardware(cpu_model="another"))
    return files.write(artifact(other, profile(**{**plain, **changes})), folder / "autopipe.json")


def test_a_step_is_kept_in_this_machines_profile_one_of_each_mode(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = files.read(path)
    for each in (step(Mode.PREDICT), step(Mode.TRAIN), step(Mode.PREDICT, 0.002)):
        kept = codegen.step_time(path, each, DESCRIBED)
    other, here = files.read(path).profiles
    assert other == before.profiles[0]
    assert here == kept
    assert here.step_times == (step(Mode.TRAIN), step(Mode.PREDICT, 0.002))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hardware": hardware()}, "no profile of this machine"),
        ({"workload": digest(model="n")}, "of another model"),
    ],
)
def test_what_is_of_another_machine_or_model_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "my models").mkdir()
    path = written(tmp_path / "my models", **changes)
    before = path.read_text()
    with pytest.raises(ArtifactError, match=said) as error:
        codegen.step_time(path, step(Mode.TRAIN), DESCRIBED)
    assert error.value.hint == f"Run: {again.autopipe('retune', path)}"
    assert path.read_text() == before
