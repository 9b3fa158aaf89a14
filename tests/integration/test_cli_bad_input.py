"""Bad input that only the trial's child can find: what the user sees of it.

Bad data and ops, which any command that imports the workload finds: tests/unit/cli/test_data.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.commands import autopipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TRAIN = """
import numpy as np
import autopipe as ap

{more}

def build_model():
    import keras
    model = keras.Sequential([keras.Input(({inputs},)), keras.layers.Dense(1)])
    {build}
    return model

workload = ap.Workload(
    data=ap.Arrays(np.zeros((16, 4), "float32"), np.zeros((16, 1), "float32")), ops=[], batch_size=4, model=build_model,
)
"""


def train(home: Path, **changes: object) -> None:
    plain = {"more": "", "inputs": 4, "build": 'model.compile("sgd", "mse")'}
    (home / "train.py").write_text(TRAIN.format(**{**plain, **changes}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"more": "import no_such_module"}, ["ModuleNotFoundError", "train.py, line 5"]),
        ({"build": "pass"}, ["compiled", "compile("]),
        ({"inputs": 5}, ["(None, 5), but gets (None, 4)", "hint: Change the ops"]),
    ],
    ids=["import fails", "not compiled", "another input shape"],
)
def test_a_workload_that_cannot_be_trained_is_named_before_anything_is_measured(
    tmp_path: Path, changes: dict[str, object], said: list[str]
) -> None:
    train(tmp_path, **changes)
    done = autopipe("tune", "train.py:workload", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "error: " in done.stderr
    for words in said:
        assert words in done.stderr
    assert "Traceback" not in done.stderr
