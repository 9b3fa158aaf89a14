"""The module that is written beside an artifact, and plain code without autopipe."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import codegen, factory, verifying
from autopipe.artifact.artifact import Stored
from autopipe.artifact.codegen import eject, eject_usual
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference, Reference
from autopipe.errors import ConfigError
from autopipe.measure import fingerprint
from autopipe.measure.facts import Impossible, WrappedDataset
from autopipe.measure.outcome import Verification
from autopipe.pipeline import wrap
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search import searching
from autopipe.search.result import Trial
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import artifact, config, profile

WORKLOAD = ap.Workload(data=ap.Arrays(np.zeros((4, 2))), ops=[], batch_size=2)


def _source(named: Reference | None, artifact: Path) -> str:
    tuned = factory.of_profile(profile(), WORKLOAD, named=named)
    return codegen.text_for(tuned.artifact_for(artifact.parent).workload, artifact.name)


@pytest.mark.parametrize("name", ["train.py", 'the "größte" \U0001f5bc\ufe0f.py'])
def test_the_module_holds_the_workload_itself(tmp_path: Path, name: str) -> None:
    text = _source(FileReference(path=str(tmp_path / name)), tmp_path / "tuned" / "autopipe.json")
    constants = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    artifact, workload = (ast.literal_eval(node.value) for node in constants[:2])
    assert artifact == "autopipe.json"
    assert workload == {
        "kind": "file",
        "path": f"../{name}",
        "origin": str(tmp_path / name),
        "attribute": "workload",
    }
    assert "allow_outside" not in text


@pytest.mark.parametrize(
    "named",
    [
        None,
        ModuleReference(module="project.train"),
        FileReference(path='/a/"""; import this; """\\train.py'),
        ImagesReference(path="/photos", model="VGG16"),
    ],
)
def test_whatever_the_workload_is_called_the_module_is_the_same_code(named: Reference | None, tmp_path: Path) -> None:
    tree = ast.parse(_source(named, tmp_path / 'auto"""pipe.json'))
    kinds = [type(node).__name__ for node in tree.body]
    assert {"make_loader", "make_trainer", "make_dataset"} <= {getattr(node, "name", None) for node in tree.body}
    assert kinds == ["Expr", *["ImportFrom"] * 3, "Import", *["Assign"] * 3, "AnnAssign", *["FunctionDef"] * 3]


def test_the_module_passes_the_linter_and_the_formatter(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "tuned"):
        folder.mkdir(exist_ok=True)
        source = _source(FileReference(path=str(tmp_path / "train.py")), folder / "autopipe.json")
        (folder / "tuned_pipeline.py").write_text(source)
    for arguments in (
        ["check", "--isolated", "--select", "E,F,I,UP,B,D,FA", "--ignore", "D203,D213"],
        ["format", "--check"],
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "--line-length", "120", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------- ejecting


@pytest.fixture
def workload(tmp_path: Path) -> ap.Workload:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(2):
            cv2.imwrite(str(tmp_path / name / f"{number}.png"), np.zeros((8, 9, 3), np.uint8))
    return ap.Workload(data=ap.ImageFolder(tmp_path), ops=[ap.Decode(), ap.Resize(4, 4)], batch_size=2)


def stored(workload: ap.Workload, tuned: object, *trials: Trial) -> Stored:
    known = profile(hardware=fingerprint.detect(), config=tuned, trials=trials)
    return Stored(path=Path("autopipe.json"), artifact=artifact(known), workload=workload)


def test_what_has_no_plain_form_is_said_with_the_forms_that_there_are(workload: ap.Workload) -> None:
    with pytest.raises(ConfigError, match="the `threads` loader is autopipe's own") as raised:
        eject(stored(workload, config()))
    assert "--to tf.data" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("to", "line"),
    [
        ("tf.data", "num_parallel_calls=tf.data.AUTOTUNE"),
        ("keras", "workers=1"),
        ("keras-workers=32", "workers=32, use_multiprocessing=False, max_queue_size=32"),
    ],
)
def test_a_workload_is_written_as_it_usually_is(workload: ap.Workload, to: str, line: str) -> None:
    assert line in eject_usual(workload, to)


def test_an_unknown_form_is_refused_with_those_that_there_are(workload: ap.Workload) -> None:
    with pytest.raises(ConfigError, match=r"must be one of tf.data, .*directory, fit, but got 'tfdata'"):
        eject_usual(workload, "tfdata")
    for beyond in ("keras-workers=many", "keras-workers=2000"):
        with pytest.raises(ConfigError):
            eject_usual(workload, beyond)


def batches(calls: int = 1, prefetch: str = "none") -> Iterator[Any]:
    yield np.zeros((2, 4), np.float32), np.zeros(2)


def test_a_dataset_of_ones_own_becomes_its_call_with_the_best_arguments() -> None:
    workload = wrap.wrap(batches, model=None, parameters={"calls": [1, 2], "prefetch": ["none", "some"]}, steps=5)
    best = Wrapped.model_validate({"calls": 2, "prefetch": "some"})
    ejected = eject(stored(workload, config(loader=best, finish="host", device_prefetch=2)))
    assert "return batches(calls=2, prefetch='some')" in ejected
    assert "steps_per_epoch=5" in ejected
    assert "2 batches on the device ahead" in ejected
    assert "import autopipe" not in ejected
    made: dict[str, Any] = {}
    exec(compile(ejected, "plain.py", "exec"), made)
    assert next(made["tuned_dataset"]())[0].shape == (2, 4)


@pytest.mark.parametrize("to", ["tf.data", "keras", "fit"])
def test_a_dataset_of_ones_own_has_no_other_form_and_the_hint_names_what_there_is(to: str) -> None:
    with pytest.raises(ConfigError, match=r"`batches` makes the batches.*without --to"):
        eject_usual(wrap.wrap(batches, model=None, parameters={"calls": [1, 2]}), to)


@pytest.mark.parametrize(
    ("best", "hint"), [({"workers": 4}, r"Make it with workers=4\."), ({}, "Its own code is the best")]
)
def test_of_a_dataset_that_was_wrapped_itself_its_best_arguments_are_told(best: dict[str, int], hint: str) -> None:
    workload = wrap.wrap(Rows(), model=None)
    tuned = config(loader=Wrapped.model_validate(best), finish="host", device_prefetch=0)
    with pytest.raises(ConfigError, match=f"`Rows`.*{hint}"):
        eject(stored(workload, tuned))


class Rows:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        return np.full((2, 4), index)


def test_a_dataset_whose_function_no_file_holds_is_refused_without_a_hint_to_other_pipelines() -> None:
    workload = wrap.wrap(lambda calls=1: batches(calls), model=None, parameters={"calls": [1, 2]})
    tuned = config(loader=Wrapped.model_validate({"calls": 2}), finish="host", device_prefetch=0)
    with pytest.raises(ConfigError, match="cannot be imported") as raised:
        eject(stored(workload, tuned))
    assert "--to" not in str(raised.value.hint)


AS_IT_IS = ap.PipelineConfig(
    loader=Wrapped.model_validate({"calls": 1, "prefetch": 0}), finish="host", device_prefetch=0
)


@pytest.mark.parametrize("kinds", [(), ("processes",)])  # of our loaders, that can make its batches
def test_of_a_dataset_each_parameter_is_changed_alone(monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]) -> None:
    choices: Any = {"calls": (1, 2), "prefetch": (0, 4), "tf_threads": (0, 8)}
    wrapped = WrappedDataset(as_it_is=AS_IT_IS, choices=choices, with_workers=True)
    against = [each for each in ("threads", "processes") if each not in kinds]
    impossible = tuple(Impossible(parameter="loader", value=each, reason="shares a file") for each in against)
    described = DESCRIBED.model_copy(update={"wrapped": wrapped, "impossible": impossible})
    asked: list[str] = []

    class Runner:
        def verify(self, configs: Sequence[ap.PipelineConfig], options: dict[str, Any]) -> Verification:
            asked.extend(config.short().partition(") ")[0] + ")" for config in configs)
            return Verification(agreements=(), compared=False)

    monkeypatch.setattr(searching, "description", lambda runner: described)
    verifying.verify(Runner(), space="default", samples=1)  # type: ignore[arg-type]  # no trial is run
    assert asked == [
        "wrapped(calls=1, prefetch=0)",
        "wrapped(calls=2, prefetch=0)",
        "wrapped(calls=1, prefetch=4)",
        *["processes(workers=2, queue_size=4)"] * len(kinds),
    ]
