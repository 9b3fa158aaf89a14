"""The functions of `ap` that answer what a command of the same name does: what they take, and how they show it."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.api import request
from autopipe.artifact import artifact as files
from autopipe.cli.options import SearchOptions
from autopipe.errors import ArtifactError, AutopipeError, ConfigError
from autopipe.measure.trial import protocol
from autopipe.reports.answer import Answer
from tests.fakes.profiles import artifact, profile
from tests.unit.cli.conftest import photos


def test_a_tune_takes_the_same_options_in_python_and_on_the_command_line() -> None:
    names = {field.name for field in dataclasses.fields(SearchOptions)}
    assert names == set(request.Search.__annotations__)
    for function in (ap.tune, ap.retune):
        assert names <= set(inspect.signature(function).parameters)


def test_a_duration_and_a_size_are_numbers_or_texts() -> None:
    texts = request.settings_of(request.Search(budget="2m", max_memory="8G", simulate_step="15ms"))
    numbers = request.settings_of(
        request.Search(budget=120, max_memory=8 << 30, simulate_step=ap.SimulatedAccelerator(0.015))
    )
    assert texts == dataclasses.replace(numbers, clock=texts.clock)
    assert request.settings_of(request.Search(budget=None)).budget_seconds is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": "soon"}, "`budget` must be a duration such as 90s, 3m or 15ms, but got 'soon'"),
        ({"budget": "120"}, "`budget` must be .* Write the unit: "),
        ({"budget": 0}, "`budget` must be longer than 0 s"),
        ({"budget": True}, "`budget` must be a duration"),
        ({"max_memory": "lots"}, "`max_memory` must be a size such as 8G or 500M, but got 'lots'"),
        ({"max_memory": -1}, "`max_memory` must be a size"),
        ({"max_workers": 0}, "`max_workers` must be a whole number of 1 or more, but got 0"),
        ({"epochs": 1.5}, "`epochs` must be a whole number of 1 or more, but got 1.5"),
        ({"trials": True}, "`trials` must be a whole number"),
        ({"virtual_devices": -1}, "`virtual_devices` must be a whole number of 0 or more, but got -1"),
        ({"mode": "serve"}, "`mode` must be one of train, evaluate, predict, but got 'serve'"),
        ({"page_cache": "hot"}, "`page_cache` must be one of warm, cold, auto, but got 'hot'"),
        ({"simulate_step": "quick"}, "`simulate_step` must be a duration"),
        (
            {"simulate_step": "15ms/some"},
            "`simulate_step` takes a step of some .*, but got '15ms/some'",
        ),
        ({"convert": "yes"}, "`convert` must be True or False, but got 'yes'"),
        ({"fresh": 1}, "`fresh` must be True or False, but got 1"),
        ({"storage": 1}, "`storage` must be the URL of an Optuna storage, or None, but got 1"),
        ({"space": 1}, "`space` must be the name of a search space, or a YAML file, but got 1"),
        ({"only": 1}, "`only` must be a mapping from parameters to their values, or None, but got 1"),
        ({"only": ["loader"]}, "A setting must be written key=value, but got 'loader'"),
        ({"baseline": 1}, "`baseline` must be a function of your own, its name, or None, but got 1"),
        ({"trails": 3}, "Did you mean `trials`"),
    ],
)
def test_an_impossible_option_is_named_with_what_it_takes(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ap.tune("train.py:workload", **options)


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The artifact in the folder `tuned` of the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned").mkdir()
    return files.write(artifact(profile(), profile()), tmp_path / "tuned" / "autopipe.json")


def test_an_answer_is_text_html_and_figures(tuned: Path, tmp_path: Path) -> None:
    shown = ap.show()
    assert "profile 2 of 2" in repr(shown)
    html = shown._repr_html_()
    assert html.startswith("<pre")
    assert "profile 2 of 2" in html
    assert shown.figures == {"tuned/autopipe.json": files.read(tuned)}
    assert set(json.loads(shown.json())) == {"tuned/autopipe.json"}
    assert shown.save(tmp_path / "shown.txt").read_text() == f"{shown}\n"
    with pytest.raises(ArtifactError, match="cannot be written"):
        shown.save(tmp_path / "nowhere" / "shown.txt")


@pytest.mark.parametrize("named", [None, "tuned", Path("tuned"), "tuned/autopipe.json"])
def test_an_artifact_is_named_by_a_folder_a_file_or_not_at_all(tuned: Path, named: str | Path | None) -> None:
    assert request.artifact_of(named) == Path("tuned/autopipe.json")
    assert isinstance(ap.show(named), Answer)


def test_a_workload_is_named_by_a_file_a_module_a_folder_of_images_or_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos(tmp_path / "photos", each=16).parent)
    assert request.target("train.py").name == "train.py:workload"
    assert request.target("package.module:made").workload == protocol.Reference(text="package.module:made")
    images = request.target("photos")
    assert isinstance(images.workload, ap.Workload)
    assert request.target(images.workload).workload is images.workload
    for wrong, said in ((None, "there is no artifact in `tuned/` either"), (5, "`workload` must be an ap.Workload")):
        with pytest.raises(AutopipeError, match=said):
            request.target(wrong)


def test_samples_are_converted_verified_and_written_as_plain_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos(tmp_path / "photos").parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = f"ap.ImageFolder({str(tmp_path / 'photos')!r})"
    made = f"ap.Workload(data={data}, ops=[ap.Decode(), ap.Resize(16, 16)], batch_size=2)"
    (tmp_path / "train.py").write_text(f"import autopipe as ap\n\nworkload = {made}\n")
    workload = "train.py"
    part = ap.convert(workload, out="set", shard="0/2")
    assert part.figures.record is None
    assert "part 0 of 2 to set" in repr(part)
    assert ap.convert(workload, out="set", verify=True).figures.record is not None
    assert repr(ap.verify(workload, files=True)) == "verified  all 8 samples can be read and decoded"
    code = ap.eject("train.py", to="tf.data")
    compile(code.figures, "plain.py", "exec")
    assert code.save("plain.py").read_text() == code.figures


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: ap.convert("w.py", shard="2/2"), "`shard` must be I/N with 0 <= I < N"),
        (lambda: ap.convert("w.py", by="nobody=x"), "`by` must be NAME=ADDRESS"),
        (lambda: ap.verify("w.py", samples=0), "`samples` must be a whole number of 1 or more, but got 0"),
        (lambda: ap.measure("w.py", time="0.1s"), "`time` must be at least 0.5 s, but got '0.1s'"),
        (lambda: ap.measure("w.py", "x.py", batch_sizes="8"), "`batch_sizes` takes one workload, but got 2"),
        (lambda: ap.measure("w.py", batch_sizes=(0,)), "`batch_sizes` must be whole numbers of 1 or more"),
        (lambda: ap.measure("w.py", settings={"keep": "disk"}), "`keep` cannot be 'disk'"),
        (lambda: ap.measure("w.py", mode="serve"), "`mode` must be one of"),  # type: ignore[arg-type]  # a wrong one
        (lambda: ap.check("nowhere.json"), "There is no artifact"),
        (lambda: ap.eject("nowhere.json"), "There is no artifact"),
        (lambda: ap.retune("nowhere.json", budget="2m"), "There is no artifact"),
    ],
)
def test_what_cannot_be_answered_is_named(ask: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AutopipeError, match=said):
        ask()
