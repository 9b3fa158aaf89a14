"""torch's `DataLoader`, wrapped and diagnosed, on each backend. `make test-torch` runs it, which installs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autopipe.errors import LoaderError
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.wrapped import Wrapped
from tests.fakes.commands import autopipe, succeeded

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


def make(num_workers: int = 0, shuffle: bool = False) -> Any:
    """Return a loader whose workers are begun anew, so that nothing of this process is in them."""
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    context = "forkserver" if num_workers else None
    return DataLoader(data, batch_size=4, num_workers=num_workers, shuffle=shuffle, multiprocessing_context=context)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_data_loader_gives_its_batches_as_they_are_epoch_after_epoch(num_workers: int) -> None:
    workload = wrap.wrap(make, model=None, parameters={"num_workers": [0, 1]})
    config = PipelineConfig(loader=Wrapped.model_validate({"num_workers": num_workers}), finish="host")
    with assembly.build_loader(workload, config) as loader:
        assert (len(loader), loader.batch_size) == (3, 4)
        for epoch in range(2):
            batches = list(loader.batches(epoch))
            np.testing.assert_array_equal(X, np.concatenate([x for x, _ in batches]))
            np.testing.assert_array_equal(Y, np.concatenate([y for _, y in batches if y is not None]))
        trained = [x for x, _ in loader.native_dataset(0, 2)]
    np.testing.assert_array_equal(np.concatenate([X, X]), np.concatenate(trained))


def test_workers_that_would_be_forked_after_a_framework_has_run_are_refused() -> None:
    import jax

    jax.devices()  # starts it
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    with pytest.raises(LoaderError, match=r"DataLoader with num_workers=1 forks, .*after \w+ has run"):
        wrap.wrap(lambda: DataLoader(data, batch_size=4, num_workers=1), model=None)


def test_its_own_order_is_kept_and_differs_from_epoch_to_epoch() -> None:
    workload = wrap.wrap(lambda num_workers=0: make(num_workers, shuffle=True), model=None)
    config = wrap.as_it_is(workload)
    assert config is not None
    torch.manual_seed(0)
    with assembly.build_loader(workload, config) as loader:
        first, second = ([int(y) for _, batch in loader.batches(epoch) for y in batch] for epoch in range(2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


TRAIN = """
import numpy as np, keras, torch
from torch.utils.data import DataLoader, TensorDataset
import autopipe as ap

def build_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(10, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model

def make_dataset(num_workers=0):
    data = TensorDataset(torch.zeros((64, 2)), torch.zeros(64, dtype=torch.int64))
    return DataLoader(data, batch_size=4, num_workers=num_workers)

workload = ap.wrap(make_dataset, model=build_model, parameters={"num_workers": [0]})
if __name__ == "__main__":
    build_model().fit(make_dataset(), epochs=1000, verbose=0)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path / "train.py"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_training_by_a_data_loader_is_diagnosed(backend: str, script: Path) -> None:
    line = ("diagnose", "--json", "--steps", "12", "train.py")
    watched = json.loads(succeeded(autopipe(*line, cwd=script.parent, backend=backend)).stdout)
    assert (watched["data"], watched["backend"]) == ("torch DataLoader", backend)
    assert watched["steps"] > 0
    assert watched["waiting_seconds"] > 0
    assert watched["alone_images_per_second"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_wrapped_data_loader_is_measured(backend: str, script: Path) -> None:
    line = ("measure", "train.py:workload", "--json", "--time", "0.5s")
    (row,) = json.loads(succeeded(autopipe(*line, cwd=script.parent, backend=backend)).stdout)
    assert row["together"]["value"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
def test_a_training_is_measured_on_torch_in_any_mode(mode: str, script: Path) -> None:
    line = ("measure", "train.py:workload", "--mode", mode, "--time", "0.5s", "--json")
    (row,) = json.loads(succeeded(autopipe(*line, cwd=script.parent, backend="torch")).stdout)
    assert row["model"]["value"] > 0
