from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import verifying
from autopipe.artifact.artifact import Stored
from autopipe.artifact.codegen import eject, eject_usual
from autopipe.errors import ConfigError
from autopipe.measure import fingerprint
from autopipe.measure.facts import WrappedDataset
from autopipe.measure.outcome import Verification
from autopipe.pipeline import wrap
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search import searching
from autopipe.search.result import Trial
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import artifact, config, profile

PLAIN = config(loader=ap.TfData(num_parallel_calls=2))


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


def test_a_plain_loader_becomes_a_file_without_autopipe(workload: ap.Workload) -> None:
    ejected = eject(stored(workload, PLAIN))
    assert "import tensorflow as tf" in ejected
    assert "import autopipe" not in ejected
    compile(ejected, "plain.py", "exec")


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


def test_a_dataset_whose_function_no_file_holds_is_refused_without_a_hint_to_other_pipelines() -> None:
    workload = wrap.wrap(lambda calls=1: batches(calls), model=None, parameters={"calls": [1, 2]})
    tuned = config(loader=Wrapped.model_validate({"calls": 2}), finish="host", device_prefetch=0)
    with pytest.raises(ConfigError, match="cannot be imported") as raised:
        eject(stored(workload, tuned))
    assert "--to" not in str(raised.value.hint)


AS_IT_IS = ap.PipelineConfig(
    loader=Wrapped.model_validate({"calls": 1, "prefetch": 0}), finish="host", device_prefetch=0
)


def test_of_a_wrapped_dataset_each_parameter_is_changed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = WrappedDataset(as_it_is=AS_IT_IS, choices={"calls": (1, 2), "prefetch": (0, 4), "tf_threads": (0, 8)})
    described = DESCRIBED.model_copy(update={"wrapped": wrapped})
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
    ]
