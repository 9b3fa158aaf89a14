"""What every device strategy must do, on each backend: train the same from the same batches. No real accelerators."""

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest

from tests.fakes.commands import ROOT, python, succeeded

STRATEGIES = [("tensorflow", 1), ("tensorflow", 2), ("jax", 1), ("jax", 2), ("torch", 1)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Run:
    """What `device_strategy_run` wrote, beside the run of one device on that backend."""

    def __init__(self, backend: str, devices: int, base: Path) -> None:
        self.backend, self.devices, self.folder = backend, devices, base / f"{backend}-{devices}"
        result = self.folder / "result.json"
        with filelock.FileLock(f"{self.folder}.lock"):  # the workers of one test run share it
            if not result.exists():
                self.folder.mkdir(exist_ok=True)
                asked = {"AUTOPIPE_VIRTUAL_DEVICES": str(devices)} if devices > 1 else {}
                line = ("-m", "tests.contract.device_strategy_run", devices, self.folder)
                succeeded(python(*line, cwd=ROOT, backend=backend, **asked))
        self._result = json.loads(result.read_text())
        self.single = self if devices == 1 else Run(backend, 1, base)

    def __getitem__(self, name: str) -> Any:
        return self._result[name]


@pytest.fixture(params=STRATEGIES, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    backend, devices = request.param
    if backend == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed; `make test-torch` installs it")
    own = tmp_path_factory.getbasetemp()
    return Run(backend, devices, own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


METRICS = ["loss", "accuracy", "val_loss", "val_accuracy"]
ALIKE: dict[str, Callable[[Run], list[tuple[Any, Any]]]] = {
    "losses as on one device": lambda run: [(run["history"][each], run.single["history"][each]) for each in METRICS],
    "losses of an evaluation": lambda run: [(run["evaluated"], [run["history"][each][-1] for each in METRICS[2:]])],
    "losses of a batch that lies on all devices": lambda run: [
        (run["resident"], each) for each in (run["repeated"], run.single["resident"])
    ],
    "predictions": lambda run: [(run["predicted"], run.single["predicted"])],
    "weights": lambda run: [(run["weights"], run.single["weights"])],
    "weights of a training that was cut and resumed": lambda run: [(run["resumed_weights"], run["weights"])],
}


@pytest.mark.parametrize("what", ALIKE)
def test_it_trains_what_one_device_trains(run: Run, what: str) -> None:
    relative, absolute = (1e-4, 0) if "losses" in what else (1e-7, 1e-4 if what == "predictions" else 1e-5)
    for found, wanted in ALIKE[what](run):
        np.testing.assert_allclose(found, wanted, rtol=relative, atol=absolute)


def test_it_learns_and_a_further_fit_compiles_nothing_and_leaves_the_model_clean(run: Run) -> None:
    assert sorted(run["history"]) == sorted(METRICS)
    assert run["history"]["loss"][-1] < run["history"]["loss"][0]
    assert run["traced_again"] == (16 if run.backend == "torch" else 0)  # there each step is called as it is
    assert run["leftover_attributes"] == []
    assert run["resumed_at"] == [1, 4]  # killed after batch 4 of epoch 1, backed up after every second batch
    assert run["loader_error"] == "OpError: the op failed"


def test_inputs_targets_and_weights_train_as_by_keras_alone(run: Run) -> None:
    unweighted, wanted, *found = run.single["parts"].values()
    assert np.abs(np.array(wanted) - unweighted).max() > 1e-3
    assert len(found) == (3 if run.backend == "tensorflow" else 1)
    for each in found:
        np.testing.assert_allclose(each, wanted, rtol=0, atol=1e-5)


def test_what_devices_cannot_share_is_refused(run: Run) -> None:
    if run.devices == 1:
        assert run["uneven_batch_error"] == "none"
        return
    assert "7 samples for devices=2" in run["uneven_batch_error"]
    assert "devices=4096" in run["too_many_devices_error"]
    assert "AUTOPIPE_VIRTUAL_DEVICES=4096" in run["too_many_devices_error"]  # the CPU is split where asked for only
    by_xla, accumulating = run["model_errors"]
    if run.backend == "tensorflow":
        assert "has jit_compile=True, and devices=2" in by_xla
        assert "gradient_accumulation_steps=2, and devices=2" in accumulating
        assert "devices=1 after devices=2" in run["other_count_error"]
    else:
        assert by_xla == accumulating == run["other_count_error"] == "none"
