"""`autopipe whatif` on an artefact; what is predicted is `test_prediction.py`'s."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autopipe import again
from autopipe.artifact import artifact as files
from autopipe.extensions.whatif import prediction
from autopipe.measure import fingerprint
from autopipe.values import Estimate
from tests.extensions.whatif.test_prediction import ceiling
from tests.fakes.profiles import about, artifact, config, profile, trial
from tests.unit.cli.conftest import Autopipe


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    here = profile(
        hardware=fingerprint.detect(),
        config=config(),
        images_per_second=about(1500.0),
        trials=(trial(config(keep="memory"), 1400.0),),
        ceiling=ceiling(),
        cache_bytes=300 * 2**30,
    )
    return files.write(artifact(here), tmp_path / "autopipe.json")


def test_another_machine_is_told_with_what_to_buy(autopipe: Autopipe, tuned: Path) -> None:
    done = autopipe("whatif", str(tuned), "--cores", "16", "--step", "5ms", "--devices", "4", "--batch", "256")
    assert done.status == 0, done.err
    for said in ("predicted", "would bring", "32 cores instead of 16", "by a factor of 8", "samples (300 GiB)"):
        assert said in done.out


def test_it_is_told_as_json(autopipe: Autopipe, tuned: Path) -> None:
    found = json.loads(autopipe("whatif", str(tuned), "--json").out)
    assert Estimate.model_validate(found["images_per_second"]).value == pytest.approx(1500, rel=0.1)
    assert found["pairs"] == 2


def test_a_configuration_whose_loader_is_not_installed_is_left_out(autopipe: Autopipe, tuned: Path) -> None:
    (here,) = files.read(tuned).profiles
    theirs = trial({**config(), "loader": {"kind": "theirs"}}, 1200.0)
    result = here.result.model_copy(update={"trials": (*here.result.trials, theirs)})
    files.write(artifact(here.model_copy(update={"result": result})), tuned)
    ended = autopipe("whatif", tuned, "--json")
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["pairs"] == 2


def test_a_profile_without_costs_is_refused_with_what_to_do(autopipe: Autopipe, tmp_path: Path) -> None:
    old = files.write(artifact(profile(hardware=fingerprint.detect())), tmp_path / "my model.json")
    error = autopipe("whatif", str(old)).refused()
    assert "does not keep" in error
    assert again.autopipe("retune", old) in error


@pytest.mark.parametrize("cores", ["inf", "1e300", "0"])
def test_a_machine_that_nobody_has_is_wrong_use(autopipe: Autopipe, tuned: Path, cores: str) -> None:
    assert "--cores" in autopipe("whatif", str(tuned), "--cores", cores).refused()


PAGE = (Path(prediction.__file__).with_name("README.md")).read_text()
COMMANDS = re.findall(r"^autopipe (whatif .*)$", PAGE, re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_docs_run(autopipe: Autopipe, tuned: Path, command: str) -> None:
    done = autopipe(*command.replace("tuned/autopipe.json", str(tuned)).split())
    assert done.status == 0, done.err
