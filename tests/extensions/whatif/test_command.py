"""`autopipe whatif` on an artifact; what is predicted is `test_prediction.py`'s."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autopipe import again
from autopipe.artifact import artifact as files
from autopipe.errors import ConfigError
from autopipe.extensions.whatif import command, prediction
from autopipe.measure import fingerprint
from autopipe.search.result import DeviceCount
from autopipe.values import Estimate
from tests.extensions.whatif.test_prediction import ceiling
from tests.fakes.profiles import about, artifact, baseline, config, profile, trial
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
    as_it_is = baseline("the dataset as it is", 500.0, loader={"kind": "wrapped"})
    wrapped = files.write(artifact(profile(hardware=fingerprint.detect(), baselines=(as_it_is,))), tmp_path / "w.json")
    error = autopipe("whatif", str(wrapped)).refused()
    assert "ops of a wrapped dataset cannot be told apart" in error
    assert "retune" not in error  # which would not help


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [("12GB/s", 12e9), ("25Gbit/s", 3.125e9), ("800 MB/s", 8e8), ("1.5gb/s", 1.5e9), ("25gbe", 3.125e9)],
)
def test_an_interconnect_is_a_rate_in_bytes_or_bits_or_a_name(text: str, bytes_per_second: float) -> None:
    assert command.rate_of(text, "--interconnect").bytes_per_second == bytes_per_second


@pytest.mark.parametrize("text", ["12", "12GB", "0GB/s", "pcie5x", "-1GB/s"])
def test_what_is_no_interconnect_is_refused_with_the_names_that_are(text: str) -> None:
    with pytest.raises(ConfigError, match="`--interconnect` must be a rate such as 12GB/s"):
        command.rate_of(text, "--interconnect")


def test_the_exchange_that_a_tune_has_measured_is_taken(autopipe: Autopipe, tmp_path: Path) -> None:
    two = DeviceCount(devices=2, model_images_per_second=15_000.0, exchange_seconds=0.01)
    costs = ceiling(gradient_bytes=10**8)
    here = profile(hardware=fingerprint.detect(), ceiling=costs, devices=(DeviceCount(devices=1), two))
    path = files.write(artifact(here), tmp_path / "a.json")
    assert "at 10 GB/s (measured between 2 devices)" in " ".join(autopipe("whatif", path, "--devices", "4").out.split())


@pytest.mark.parametrize("cores", ["inf", "1e300", "0"])
def test_a_machine_that_nobody_has_is_wrong_use(autopipe: Autopipe, tuned: Path, cores: str) -> None:
    assert "--cores" in autopipe("whatif", str(tuned), "--cores", cores).refused()


PAGE = (Path(prediction.__file__).with_name("README.md")).read_text()
COMMANDS = re.findall(r"^autopipe (whatif .*)$", PAGE, re.M)


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_of_the_docs_run_beside_an_artifact(
    autopipe: Autopipe, tuned: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tuned.parent)
    done = autopipe(*line.split())
    assert done.status == 0, done.err
