"""What every device strategy must do, on each backend: train the same model from the same batches, wherever it runs.

The losses of one TensorFlow device are what the strategies of that backend are compared with, and likewise for JAX.
Not tested: real accelerators, which the machines that run this do not have.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import filelock
import keras
import numpy as np
import pytest

from tests.fakes.commands import ROOT, python, succeeded

STRATEGIES = [("tensorflow", 1), ("tensorflow", 2), ("jax", 1), ("jax", 2), ("torch", 1)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@dataclasses.dataclass(frozen=True)
class Run:
    """What `device_strategy_run` wrote."""

    folder: Path
    result: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.result[name]


def _run(backend: str, devices: int, base: Path) -> Run:
    folder = base / f"{backend}-{devices}"
    with filelock.FileLock(f"{folder}.lock"):  # the workers of one test run share it
        if not (folder / "result.json").exists():
            folder.mkdir(exist_ok=True)
            asked = {"AUTOPIPE_VIRTUAL_DEVICES": str(devices)} if devices > 1 else {}
            line = ("-m", "tests.contract.device_strategy_run", devices, folder)
            succeeded(python(*line, cwd=ROOT, backend=backend, **asked))
    return Run(folder, json.loads((folder / "result.json").read_text()))


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(params=STRATEGIES, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def pair(request: pytest.FixtureRequest, base: Path) -> tuple[Run, Run, int]:
    """The strategy's run, the run of one device on that backend, and the device count."""
    backend, devices = request.param
    if backend == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed; `make test-torch` installs it")
    return _run(backend, devices, base), _run(backend, 1, base), devices


def test_it_trains_what_one_device_trains(pair: tuple[Run, Run, int]) -> None:
    run, single, _ = pair
    assert run["history"].keys() == single["history"].keys() == {"loss", "accuracy", "val_loss", "val_accuracy"}
    for name, values in single["history"].items():
        np.testing.assert_allclose(run["history"][name], values, rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(run["weights"], single["weights"], atol=1e-5)
    assert run["history"]["loss"][-1] < run["history"]["loss"][0]


def test_it_trains_the_same_with_batches_finished_on_the_host(pair: tuple[Run, Run, int]) -> None:
    run, _, _ = pair
    np.testing.assert_allclose(run["host_loss"], run["history"]["loss"], rtol=1e-4)


def test_it_evaluates_and_predicts_in_order(pair: tuple[Run, Run, int]) -> None:
    run, single, _ = pair
    last = [run["history"][name][-1] for name in ("val_loss", "val_accuracy")]
    np.testing.assert_allclose(run["evaluated"], last, rtol=1e-4)
    np.testing.assert_allclose(run["predicted"], single["predicted"], atol=1e-4)


def test_a_short_last_batch_is_predicted_or_refused_before_anything_is(pair: tuple[Run, Run, int]) -> None:
    run, single, devices = pair
    uneven = devices == 1 or run.folder.name.startswith("tensorflow")  # JAX shares out equal parts only
    for samples, rest, possible in (("13", 5, uneven), ("9", 1, devices == 1)):
        if possible:
            np.testing.assert_allclose(run["short"][samples], single["predicted"][: int(samples)], atol=1e-4)
        else:
            assert f"it has {rest} samples for devices=2" in run["short"][samples]


def test_a_further_fit_compiles_nothing_and_leaves_the_model_clean(pair: tuple[Run, Run, int]) -> None:
    run, _, _ = pair
    eager = run.folder.name.startswith("torch")  # there the step is called as it is, in each of 16
    assert run["traced_again"] == (16 if eager else 0)
    assert run["leftover_attributes"] == []


def test_a_callback_may_evaluate_and_predict_on_data_of_its_own(pair: tuple[Run, Run, int]) -> None:
    run, _, _ = pair
    assert len(run["asked"]["losses"]) == 2
    for validated, *asked in run["asked"]["losses"]:
        np.testing.assert_allclose(asked, validated, rtol=1e-4)
    assert run["asked"]["difference"] < 1e-4


def test_a_training_that_was_cut_is_resumed_within_its_epoch(pair: tuple[Run, Run, int]) -> None:
    run, _, _ = pair
    assert run["resumed_at"] == [1, 4]  # killed after batch 4 of epoch 1, backed up after every second batch
    np.testing.assert_allclose(run["resumed_weights"], run["weights"], atol=1e-5)


def test_a_loaders_error_comes_out_as_itself(pair: tuple[Run, Run, int]) -> None:
    run, _, _ = pair
    assert run["loader_error"] == "OpError: the op failed"


def test_what_devices_cannot_share_is_refused(pair: tuple[Run, Run, int]) -> None:
    run, _, devices = pair
    if devices == 1:
        assert run["uneven_batch_error"] == "none"
    else:
        assert "7 samples for devices=2" in run["uneven_batch_error"]
        assert "Pass the function" in run["finished_model_error"]
        assert "devices=4096" in run["too_many_devices_error"]
        assert "AUTOPIPE_VIRTUAL_DEVICES=4096" in run["too_many_devices_error"]  # the CPU is split where asked for only
        assert run["virtual"] == devices
        assert all(name.startswith("virtual ") for name in run["names"])


def test_several_steps_an_execution_train_the_same(pair: tuple[Run, Run, int]) -> None:
    run, single, _ = pair
    one, three = run["several_steps"]
    np.testing.assert_allclose(three, one, atol=1e-5)
    np.testing.assert_allclose(three, single["several_steps"][0], atol=1e-5)


def test_another_model_trains_in_the_same_process(pair: tuple[Run, Run, int]) -> None:
    run, single, _ = pair
    np.testing.assert_allclose(run["second_model"], single["second_model"], rtol=1e-4)


def test_what_a_backend_cannot_do_on_several_devices_is_refused_up_front(pair: tuple[Run, Run, int]) -> None:
    run, _, devices = pair
    if devices == 1:
        return
    if run.folder.name.startswith("tensorflow"):
        by_xla, accumulating = run["model_errors"]
        assert "has jit_compile=True, and devices=2" in by_xla
        assert "gradient_accumulation_steps=2, and devices=2" in accumulating
        assert "devices=1 after devices=2" in run["other_count_error"]
        assert run["uneven_validation_error"] == "none"  # TensorFlow shares out uneven batches where nothing is trained
    else:
        assert run["model_errors"] == ["none", "none"]
        assert run["other_count_error"] == "none"
        assert "it has 5 samples for devices=2" in run["uneven_validation_error"]


def test_a_batch_that_lies_on_all_devices_already_trains_the_same(pair: tuple[Run, Run, int]) -> None:
    run, single, _ = pair
    np.testing.assert_allclose(run["resident"], run["repeated"], rtol=1e-5)
    np.testing.assert_allclose(run["resident"], single["resident"], rtol=1e-4)


def test_the_simulated_accelerator_runs_on_it(pair: tuple[Run, Run, int]) -> None:
    run, _, _ = pair
    assert run["simulated"] == {"loss": [0.0]}


def test_its_checkpoints_load_on_one_device(pair: tuple[Run, Run, int]) -> None:
    run, _, _ = pair
    whole, weights = run.folder / "whole.keras", run.folder / "only.weights.h5"
    model = keras.saving.load_model(whole, compile=False, custom_objects={"Counting": keras.Sequential})
    loaded = [float(value) for array in model.get_weights() for value in array.ravel()]
    np.testing.assert_allclose(loaded, run["weights"], atol=1e-6)
    model.load_weights(weights)
    loaded = [float(value) for array in model.get_weights() for value in array.ravel()]
    np.testing.assert_allclose(loaded, run["weights"], atol=1e-6)
