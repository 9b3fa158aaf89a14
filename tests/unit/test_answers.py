"""The functions of `ap` that answer what a command of the same name does: what they take, and how they show it."""

import dataclasses
import importlib
import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rich.console
import rich.jupyter

import autopipe as ap
from autopipe.api import request
from autopipe.api.request import Search, settings_of
from autopipe.artifact import artifact as files
from autopipe.cli.options import SearchOptions
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.reports.answer import Answer
from tests.fakes.profiles import artifact, profile
from tests.fakes.reports import Approved, refusal
from tests.unit.cli.conftest import photos


@pytest.fixture
def here(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_tune_takes_the_same_options_in_python_and_on_the_command_line_and_shows_their_defaults() -> None:
    names = {field.name for field in dataclasses.fields(SearchOptions)}
    assert names == set(Search.__annotations__)
    shown, again = (inspect.signature(function).parameters for function in (ap.tune, ap.retune))
    assert names <= set(shown) & set(again)
    defaults: Any = {name: shown[name].default for name in names}
    assert settings_of(defaults) == settings_of(Search(virtual_devices=0))
    assert shown["budget"].annotation == "float | str | None"
    assert repr(again["trials"].default) == "<as tuned>"
    importlib.import_module("autopipe.measure")  # a package of the same name
    assert inspect.isfunction(ap.measure)


def test_a_duration_and_a_size_are_numbers_or_texts() -> None:
    texts = settings_of(Search(budget="2m", max_memory="8G", simulate_step="15ms"))
    simulated = ap.SimulatedAccelerator(0.015)
    numbers = settings_of(Search(budget=120, max_memory=8 << 30, simulate_step=simulated))
    assert texts == dataclasses.replace(numbers, clock=texts.clock)
    only = {"threads.workers": np.arange(1, 3), "devices": np.int64(1)}
    numpys: Any = {"budget": np.float32(90), "trials": np.int64(9), "seed": np.int64(3), "only": only}
    of_numpy = settings_of(numpys)
    assert repr(of_numpy.limits.only) == "{'threads.workers': (1, 2), 'devices': (1,)}"
    assert [type(each) for each in (of_numpy.budget_seconds, of_numpy.trials, of_numpy.seed)] == [float, int, int]
    assert settings_of(Search(budget=None)).budget_seconds is None


IMPOSSIBLE: dict[str, list[Any]] = {
    "budget": ["soon", "120", 0, -1, True, math.inf, math.nan],
    "max_memory": ["lots", -1],
    "trials": [0, "ten", True],
    "seed": [None, "7", 1.5, -1],
    "baseline": [1, "bench.py"],
    "only": [1, ["loader"], {"loader": None}, {5: "threads"}],
    "simulate_step": ["quick", "15ms/some"],
    "space": [1, None],
}
IMPOSSIBLE |= {"max_workers": [0], "epochs": [1.5], "virtual_devices": [-1], "mode": ["serve"], "page_cache": ["hot"]}
IMPOSSIBLE |= {"convert": ["yes"], "fresh": [1], "storage": [1], "workload": [5], "on_event": [5], "out": [5]}
IMPOSSIBLE |= {"trails": [3]}


def test_impossible_options(approved: Approved) -> None:
    def tune(options: dict[str, Any]) -> str:
        return refusal(lambda: ap.tune(**{"workload": "train.py:workload", **options}))

    wrong = [{name: value} for name, values in IMPOSSIBLE.items() for value in values]
    approved({str(each): tune(each) for each in wrong})


@pytest.fixture
def tuned(here: Path) -> Path:
    """The artifact in the folder `tuned` of the working directory."""
    (here / "tuned").mkdir()
    return files.write(artifact(profile(), profile()), here / "tuned" / "autopipe.json")


def test_an_answer_is_text_html_and_figures(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_notebook = list[object]()
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(rich.jupyter, "display", lambda *what: in_notebook.append(what))
    shown = ap.show()
    html = shown._repr_html_()
    assert html.startswith("<pre")
    assert all("profile 2 of 2" in each for each in (repr(shown), html))
    assert in_notebook == []  # where making a text shows nothing
    assert shown.figures == {"tuned/autopipe.json": files.read(tuned)}
    assert set(json.loads(shown.json())) == {"tuned/autopipe.json"}
    assert shown.save("shown.txt").read_text() == f"{shown}\n"
    with pytest.raises(ap.ArtifactError, match="cannot be written"):
        shown.save(Path("nowhere", "shown.txt"))
    for named in (None, "tuned", Path("tuned"), "tuned/autopipe.json"):
        assert request.artifact_of(named) == Path("tuned/autopipe.json")
        assert isinstance(ap.show(named), Answer)


class Pairs:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 4), index), np.full(2, index)


def made_pairs() -> Pairs:
    return Pairs()


def test_a_workload_is_a_file_a_module_a_folder_or_the_object(here: Path) -> None:
    photos(here / "photos", each=16)
    assert request.target("train.py").name == "train.py:workload"
    assert request.target("package.module:made").workload == WorkloadName(text="package.module:made")
    images = request.target("photos")
    assert isinstance(images.workload, ap.Workload)
    assert request.target(images.workload).workload is images.workload
    for given, name in ((Pairs(), "Pairs"), (made_pairs, "made_pairs")):  # a dataset, and a function that makes one
        assert f"{name}: 3 batches of 2" in repr(request.target(given))
    for wrong, said in ((None, "there is no artifact in `tuned/` either"), (5, "`workload` must be an ap.Workload")):
        with pytest.raises(ap.AutopipeError, match=said):
            request.target(wrong)


def test_samples_are_converted_verified_and_plain_code(here: Path) -> None:
    data = ap.ImageFolder(photos(here / "photos"))
    made = "ap.Workload(data=ap.ImageFolder('photos'), ops=[ap.Decode(), ap.Resize(16, 16)], batch_size=2)"
    (here / "train.py").write_text(f"import autopipe as ap\n\nworkload = {made}\n")
    part = ap.convert("train.py", out="set", shard="0/2")
    assert part.figures.record is None
    assert "part 0 of 2 to set" in repr(part)
    assert ap.convert("train.py", out="set", verify=True).figures.record is not None
    assert repr(ap.verify("train.py", files=True)) == "verified  all 8 samples can be read and decoded"
    made_here = ap.Workload(data=data, ops=[ap.Decode(), ap.Resize(16, 16)], batch_size=2)
    code = ap.eject(made_here, to="tf.data")
    assert ap.eject("train.py", to="tf.data").figures == code.figures
    compile(code.figures, "plain.py", "exec")
    assert code.save("plain.py").read_text() == code.figures


UNANSWERED: dict[str, Callable[[], object]] = {
    "shard": lambda: ap.convert("w.py", shard="2/2"),
    "samples": lambda: ap.verify("w.py", samples=0),
    "time": lambda: ap.measure("w.py", time="0.1s"),
    "batch sizes of two": lambda: ap.measure("w.py", "x.py", batch_sizes="8"),
    "batch sizes": lambda: ap.measure("w.py", batch_sizes=(0,)),
    "settings": lambda: ap.measure("w.py", settings={"keep": "disk"}),
    "mode": lambda: ap.measure("w.py", mode="serve"),  # type: ignore[arg-type]  # a wrong one
    "check": lambda: ap.check("nowhere.json"),
    "eject": lambda: ap.eject("nowhere.json"),
    "eject to": lambda: ap.eject(3, to="tf.data"),  # type: ignore[arg-type]
    "show": lambda: ap.show(3),  # type: ignore[arg-type]
    "retune": lambda: ap.retune("nowhere.json", budget="2m"),
}


@pytest.mark.usefixtures("here")
def test_what_cannot_be_answered(approved: Approved) -> None:
    approved({name: refusal(ask) for name, ask in UNANSWERED.items()})
