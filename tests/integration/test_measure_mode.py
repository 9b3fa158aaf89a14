"""`autopipe measure`: other batch sizes and modes, virtual devices, a dataset of the user's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autopipe.measure.outcome import Measurement
from autopipe.reports import tables
from tests.fakes.commands import autopipe, python, succeeded
from tests.fakes.reports import printed
from tests.fakes.workload_script import TRAIN


@pytest.mark.slow
def test_the_model_alone_is_measured_at_other_batch_sizes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    line = "measure train.py:workload --batch-sizes 2,4,8,16 --json"
    rows = json.loads(succeeded(autopipe(*line.split(), cwd=tmp_path)).stdout)
    assert [row["batch_size"] for row in rows] == [2, 4, 8, 16]
    for row in rows:
        assert row["model"]["value"] > 0
        assert row["alone"]["resources"]["peak_rss_bytes"] > 0
        assert (row["both"], row["together"]) == (None, None)


@pytest.mark.slow
def test_a_training_is_measured_in_another_mode(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    line = "measure train.py:workload --mode predict --time 0.5s --json"
    (row,) = json.loads(succeeded(autopipe(*line.split(), cwd=tmp_path)).stdout)
    assert min(row[part]["value"] for part in ("model", "loader", "together")) > 0


@pytest.mark.slow
def test_a_batch_size_that_the_model_does_not_take_is_a_row_with_its_reason(tmp_path: Path) -> None:
    of_four = "keras.layers.Lambda(lambda x: keras.ops.reshape(x, (4, 4))), keras.layers.Dense(1)"
    (tmp_path / "train.py").write_text(TRAIN.replace("keras.layers.Dense(1)", of_four))
    line = "measure train.py:workload --batch-sizes 8,4"
    _, own, other, _, why, *_ = succeeded(autopipe(*line.split(), cwd=tmp_path)).stdout.splitlines()
    assert own.startswith("batch 4 (own)")
    assert other.strip() == "batch 8"
    assert why.startswith("batch 8: build in warm up")
    assert autopipe("measure", "train.py:workload", "--batch-sizes", "8", cwd=tmp_path).returncode == 3


EXCHANGE = """
from autopipe.pipeline.config import ModelSetup
from autopipe.search import searching
from autopipe.search.settings import Settings

with searching.runner_for("train.py:workload", Settings(virtual_devices=2)) as runner:
    found = runner.ceiling(ModelSetup(devices=2), {"model_only": True})
print(found.gradient_bytes, found.exchange_seconds > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "before"), [("tensorflow", "import tensorflow as tf; tf.constant(0)"), ("jax", "")]
)
def test_two_virtual_devices_are_measured_and_their_exchange(backend: str, before: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{before}\n{TRAIN}")
    line = "measure train.py:workload --virtual-devices 2 --set devices=2 --time 0.5s --json"
    done = succeeded(autopipe(*line.split(), cwd=tmp_path, backend=backend))
    assert len(json.loads(done.stdout)[0]["both"]["ran"]["devices"]) == 2
    (tmp_path / "exchange.py").write_text(EXCHANGE)
    told = succeeded(python("exchange.py", cwd=tmp_path, backend=backend)).stdout
    assert told == "20 True\n"  # four weights and a bias, of four bytes


WRAPPED = """
import keras
import numpy as np

import autopipe as ap

class Data(keras.utils.PyDataset):
    def __init__(self, times):
        super().__init__()
        self.times = times

    def __len__(self):
        return 50

    def __getitem__(self, index):
        total = sum(number % 7 for number in range(100_000 * self.times))
        return np.full((4, 2, 2, 3), total % 7, "float32"), np.zeros(4)

def make_dataset(times: int = 2):
    sum(range(30_000_000))  # once, which makes no batch
    return Data(times)

workload = ap.wrap(make_dataset, model=ap.SimulatedAccelerator(0.001), parameters={"times": [1, 2, 4]})
"""


@pytest.mark.slow
def test_a_wrapped_dataset_is_read_without_its_model_and_its_slow_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRAPPED)
    done = autopipe("measure", "train.py:workload", "--json", "--time", "1s", cwd=tmp_path)
    (row,) = json.loads(succeeded(done).stdout)
    found = [Measurement.model_validate_json(json.dumps(each)) for each in row["without_model"]]
    assert found[1].config["arguments"] == {"times": 2}
    assert [each["config"]["loader"].get("times") for each in row["without_model"]] == [2, None, 1, 4, 2]
    assert found[-1].config == row["both"]["config"]
    assert [each.lines is None for each in found] == [True, True, True, True, False]
    shown = printed(tables.without_model(found), 300)
    assert re.search(r"the dataset without the model +images/s", shown)
    assert [re.findall(rf"times={times}\b", shown) != [] for times in (1, 2, 4)] == [True, True, True]
    assert re.search(r"slow lines +of making data *\n +\d+% train\.py:16 ", shown), shown
    assert "train.py:20" not in shown


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", ["", "step=lambda batch: time.sleep(0.1 * (len(batch[0]) == 4)), "])
def test_a_wrapped_dataset_is_measured_alone_or_beside_a_step_in_place_of_a_model(model: str, tmp_path: Path) -> None:
    text = WRAPPED.replace("model=ap.SimulatedAccelerator(0.001), ", model).replace("100_000", "1000")
    (tmp_path / "train.py").write_text("import time\n" + text)
    line = ("measure", "train.py:workload", "--time", "0.5s")
    (row,) = json.loads(succeeded(autopipe(*line, "--json", cwd=tmp_path)).stdout)
    beside, alone = (each["images_per_second"]["value"] for each in (row["both"], row["without_model"][0]))
    assert alone > 100
    assert (beside < 40) == bool(model)


@pytest.mark.slow
def test_a_value_with_which_a_wrapped_dataset_cannot_run_is_told_and_the_others_are_measured(tmp_path: Path) -> None:
    text = WRAPPED.replace("self.times = times", "self.times, self.lock = times, threading.Lock()")
    (tmp_path / "train.py").write_text(
        "import threading\n" + text.replace("make_dataset, model", "Data(1), model").partition(", param")[0] + ")"
    )
    done = succeeded(autopipe("measure", "train.py:workload", "--json", "--time", "0.5s", cwd=tmp_path))
    assert re.search("use_multiprocessing=True.*`Data.lock`", done.stderr)
    assert all(
        not each["config"]["loader"]["use_multiprocessing"] for each in json.loads(done.stdout)[0]["without_model"]
    )
