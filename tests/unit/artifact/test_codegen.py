"""The module that is written beside an artifact, plain code without autopipe, and looks at samples."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.artifact import codegen, factory, verifying
from autopipe.artifact.artifact import Stored
from autopipe.artifact.codegen import eject, eject_usual
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference, Reference
from autopipe.artifact.verifying import BadFile, inspect
from autopipe.measure import fingerprint
from autopipe.measure.facts import Impossible, WrappedDataset
from autopipe.measure.outcome import Verification
from autopipe.pipeline import wrap
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.pipeline.storage.form import Conversion
from autopipe.search import searching
from autopipe.search.result import Trial
from autopipe.workload.ops import custom, planner
from tests.fakes.commands import python, succeeded
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import artifact, config, profile
from tests.fakes.sources import Made

WORKLOAD = ap.Workload(data=ap.Arrays(np.zeros((4, 2))), ops=[], batch_size=2)


def _source(named: Reference | None, artifact: Path) -> str:
    tuned = factory.of_profile(profile(), WORKLOAD, named=named)
    return codegen.text_for(tuned.artifact_for(artifact.parent).workload, artifact.name)


@pytest.mark.parametrize("name", ["train.py", 'the "größte" \U0001f5bc\ufe0f.py'])
def test_the_module_holds_the_workload_itself(tmp_path: Path, name: str) -> None:
    text = _source(FileReference(path=str(tmp_path / name)), tmp_path / "tuned" / "autopipe.json")
    constants = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    artifact, workload = (ast.literal_eval(node.value) for node in constants[:2])
    named = {"kind": "file", "path": f"../{name}", "origin": str(tmp_path / name), "attribute": "workload"}
    assert (artifact, workload) == ("autopipe.json", named)
    assert "allow_outside" not in text


def test_whatever_the_workload_is_called_the_module_is_the_same_code(tmp_path: Path) -> None:
    hostile, module = FileReference(path='/a/"""; import this; """\\train.py'), ModuleReference(module="project.train")
    for named in (None, module, hostile, ImagesReference(path="/photos", model="VGG16")):
        tree = ast.parse(_source(named, tmp_path / 'auto"""pipe.json'))
        kinds = [type(node).__name__ for node in tree.body]
        assert {"make_loader", "make_trainer", "make_dataset"} <= {getattr(node, "name", None) for node in tree.body}
        assert kinds == ["Expr", *["ImportFrom"] * 3, "Import", *["Assign"] * 3, "AnnAssign", *["FunctionDef"] * 3]


def test_the_module_passes_the_linter_and_the_formatter(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "tuned"):
        folder.mkdir(exist_ok=True)
        source = _source(FileReference(path=str(tmp_path / "train.py")), folder / "autopipe.json")
        (folder / "tuned_pipeline.py").write_text(source)
    rules = ["--isolated", "--select", "E,F,I,UP,B,D,FA", "--ignore", "D203,D213"]
    for arguments in (["check", *rules], ["format", "--check"]):
        succeeded(python("-m", "ruff", *arguments, "--line-length", "120", str(tmp_path)))


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


def test_a_workload_is_written_as_it_usually_is(workload: ap.Workload) -> None:
    assert "num_parallel_calls=tf.data.AUTOTUNE" in eject_usual(workload, "tf.data")
    assert "workers=1" in eject_usual(workload, "keras")
    assert "workers=32, use_multiprocessing=False, max_queue_size=32" in eject_usual(workload, "keras-workers=32")


def test_what_has_no_plain_form_is_said_with_the_forms_that_there_are(workload: ap.Workload) -> None:
    with pytest.raises(ap.ConfigError, match="the `threads` loader is autopipe's own") as raised:
        eject(stored(workload, config()))
    assert "--to tf.data" in str(raised.value.hint)
    forms, counts = "must be one of tf.data, .*directory, fit, but got 'tfdata'", "must be 1 to 1024 workers, but got"
    for unknown, said in (
        ("tfdata", forms),
        ("keras-workers=many", "mean `keras-workers`"),
        ("keras-workers=2000", counts),
    ):
        with pytest.raises(ap.ConfigError, match=said):
            eject_usual(workload, unknown)


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


def test_a_dataset_of_ones_own_has_no_other_form_and_the_hint_names_what_there_is() -> None:
    for to in ("tf.data", "keras", "fit"):
        with pytest.raises(ap.ConfigError, match=r"`batches` makes the batches.*without --to"):
            eject_usual(wrap.wrap(batches, model=None, parameters={"calls": [1, 2]}), to)
    nameless = wrap.wrap(lambda calls=1: batches(calls), model=None, parameters={"calls": [1, 2]})
    tuned = config(loader=Wrapped.model_validate({"calls": 2}), finish="host", device_prefetch=0)
    with pytest.raises(ap.ConfigError, match="cannot be imported") as raised:
        eject(stored(nameless, tuned))
    assert "--to" not in str(raised.value.hint)


def test_of_a_dataset_that_was_wrapped_itself_its_best_arguments_are_told() -> None:
    for best, hint in ({"workers": 4}, r"Make it with workers=4\."), ({}, "Its own code is the best"):
        tuned = config(loader=Wrapped.model_validate(best), finish="host", device_prefetch=0)
        with pytest.raises(ap.ConfigError, match=f"`Rows`.*{hint}"):
            eject(stored(wrap.wrap(Rows(), model=None), tuned))


class Rows:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        return np.full((2, 4), index)


PLAIN = Wrapped.model_validate({"calls": 1, "prefetch": 0})
AS_IT_IS = ap.PipelineConfig(loader=PLAIN, finish="host", device_prefetch=0)


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


COUNT = 1000


class Played(Made):
    """Samples of which some are bad; notes those that were read."""

    def __init__(self) -> None:
        super().__init__(COUNT, lambda index: np.full((2, 2, 3), index % 256, np.uint8))
        self.bad, self.gone, self.read_once = set[int](), -1, set[int]()

    def name(self, index: int) -> str:
        return f"/played/{index}.jpg"

    def digest(self) -> str:
        return "played"

    def read(self, index: int) -> Any:
        self.read_once.add(index)
        if index in self.bad:
            raise OSError("it is torn")
        if index == self.gone:
            raise ap.DataError("The connection is gone.")
        return super().read(index)


@pytest.fixture
def source() -> Played:
    return Played()


def conversion(source: Played, *ops: Any) -> Conversion:
    workload = ap.Workload(data=source, ops=ops, batch_size=4)
    plan = planner.make_plan(workload)
    source.read_once.clear()
    return Conversion.of(workload, plan, len(plan.prefix))


def test_every_sample_is_looked_at_and_each_bad_one_is_named_with_its_reason(source: Played, tmp_path: Path) -> None:
    def refuse(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if image[0, 0, 0] == 7:
            raise ValueError("no sevens")
        return image

    looked = conversion(source, custom.Map(refuse))
    source.bad = {70, 999}
    found = inspect(looked, tmp_path / "journal", workers=3)
    assert source.read_once == set(range(COUNT))
    assert (found.samples, found.resumed) == (COUNT, 0)
    assert [each.index for each in found.bad] == [7, 70, 263, 519, 775, 999]
    assert found.bad[1] == BadFile(
        index=70, name="/played/70.jpg", reason="sample 70 (/played/70.jpg) cannot be read: OSError: it is torn"
    )
    assert "no sevens" in found.bad[0].reason
    assert not (tmp_path / "journal").exists()


def test_a_stopped_look_goes_on_where_it_was_and_looks_at_bad_samples_again(source: Played, tmp_path: Path) -> None:
    journal = tmp_path / "folder" / "journal"
    looked = conversion(source)
    source.bad, source.gone = {70}, 500
    with pytest.raises(ap.DataError, match="connection is gone"):
        inspect(looked, journal, workers=1)
    source.read_once.clear()
    source.gone = -1
    said: list[tuple[int, int]] = []
    found = inspect(looked, journal, workers=1, on_progress=lambda done, count: said.append((done, count)))
    assert (found.resumed, [each.index for each in found.bad]) == (384, [70])  # seven times 64, but for those about 70
    assert source.read_once == {*range(64, 128), *range(448, COUNT)}
    assert said[0][0] > 384
    assert said[-1] == (COUNT, COUNT)


def test_half_a_journal_or_none_does_no_harm(source: Played, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = tmp_path / "journal"
    journal.write_text("0;\n64")
    assert inspect(conversion(source), journal, workers=1).resumed == 64
    assert source.read_once == set(range(64, COUNT))
    (tmp_path / "file").touch()
    found = inspect(conversion(source), tmp_path / "file" / "journal", workers=1)
    assert (found.samples, found.bad) == (COUNT, ())
    assert "cannot be kept" in caplog.text
