"""What changed in a workload since it was tuned is told in words, when it is checked and when it is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.artifact import factory
from autopipe.measure import fingerprint
from autopipe.workload.op import Op
from autopipe.workload.workload import Workload
from tests.fakes.profiles import artifact, hardware, profile

DATA = ap.Arrays(np.zeros((8, 6, 6, 3), np.uint8))
OPS: tuple[Op, ...] = (ap.Resize(4, 4), ap.RandomFlip(), ap.Rescale(1 / 255))


def _half(x: np.ndarray) -> np.ndarray:
    return x // 2


def _third(x: np.ndarray) -> np.ndarray:
    return x // 3


_third.__qualname__ = "_half"


def workload(ops: Sequence[Op] = OPS, batch_size: int = 2) -> Workload:
    return Workload(data=DATA, ops=ops, batch_size=batch_size)


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        ((ap.Resize(4, 4), ap.Rescale(1 / 255)), "RandomFlip was removed"),
        ((*OPS[:2], ap.RandomBrightness(0.1), OPS[2]), "RandomBrightness was added"),
        ((ap.Resize(5, 4), *OPS[1:]), "Resize changed: height was 4 and is 5"),
        ((ap.RandomFlip(), ap.Resize(4, 4), OPS[2]), "was moved"),
        ((ap.Resize(4, 4), ap.RandomCrop(2, 2), OPS[2]), "RandomFlip was removed, RandomCrop was added"),
    ],
)
def test_changed_ops_are_told_in_words(ops: tuple[Op, ...], said: str) -> None:
    assert said in fingerprint.of_ops(fingerprint.ops_of(workload()), fingerprint.ops_of(workload(ops)))


def test_a_function_with_other_code_is_named() -> None:
    before, now = (fingerprint.ops_of(workload([ap.Map(function)])) for function in (_half, _third))
    assert fingerprint.of_ops(before, now) == "Map changed: the code of _half"


def test_a_script_that_is_run_and_one_that_is_imported_have_the_same_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint.workload_digest(workload([ap.Map(_half)]))
    monkeypatch.setattr(_half, "__module__", "__main__")
    now = workload([ap.Map(_half)])
    assert fingerprint.changed_since(before, now) == ()
    assert fingerprint.compare_workload(before, fingerprint.workload_digest(now)) == ()


def _tuned(folder: Path, now: Workload, **known: object) -> factory.Tuned:
    digest = fingerprint.workload_digest(workload()).model_copy(update=known)
    path = files.write(artifact(profile(workload=digest)), folder / "autopipe.json")
    return factory.load(path, here=hardware(), workload=now)


def test_it_is_told_when_a_loader_is_made_but_not_of_the_same_workload(tmp_path: Path) -> None:
    now = workload((OPS[0], OPS[2]), batch_size=4)
    expected = r"changed since it was tuned: RandomFlip was removed, the batch size was 2 and is 4\..*retune"
    with pytest.warns(factory.ProfileWarning, match=expected) as caught:
        _tuned(tmp_path, now).make_loader().close()
    assert str(tmp_path / "autopipe.json") in str(caught[0].message)
    assert caught[0].filename == __file__
    _tuned(tmp_path, workload()).make_loader().close()  # a warning would be an error


def test_a_check_speaks_in_words() -> None:
    known = fingerprint.workload_digest(workload(), model="a" * 16)
    here = fingerprint.workload_digest(workload(OPS[:1]), model="b" * 16)
    said = [str(each) for each in fingerprint.compare_workload(known, here)]
    assert said == ["RandomFlip was removed, Rescale was removed", "the model's structure is another than it was"]


def test_a_long_setting_is_kept_short_and_still_differs() -> None:
    @dataclasses.dataclass(frozen=True)
    class Long(ap.Rescale):
        note: str = ""

    long = [fingerprint.ops_of(workload([Long(1.0, note="x" * 500 + end)]))[0].settings["note"] for end in "ab"]
    assert all(len(text) < 150 for text in long)
    assert long[0] != long[1]
