"""torch's `DataLoader`, wrapped and diagnosed, on each backend. `make test-torch` runs it, which installs torch."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler

import autopipe as ap
from autopipe.measure.outcome import VerifyOptions
from autopipe.measure.verify import repeats
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.loaders.wrapped import Wrapped
from tests.fakes.commands import autopipe, in_shell, python, succeeded
from tests.fakes.reports import Told

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)
PAIRS, ROWS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), TensorDataset(torch.from_numpy(X))
OURS: dict[str, Any] = {"finish": "host", "device_prefetch": 0}


def make(num_workers: int = 0, shuffle: bool = False) -> Any:
    """Return a loader whose workers are begun anew, so that nothing of this process is in them."""
    context = "forkserver" if num_workers else None
    return DataLoader(PAIRS, batch_size=4, num_workers=num_workers, shuffle=shuffle, multiprocessing_context=context)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_data_loader_gives_its_batches_as_they_are_epoch_after_epoch(num_workers: int) -> None:
    workload = wrap.wrap(make, model=None, parameters={"num_workers": [0, 1]})
    config = ap.PipelineConfig(loader=Wrapped.model_validate({"num_workers": num_workers}), finish="host")
    with assembly.make_loader(workload, config) as loader:
        assert (len(loader), loader.batch_size) == (3, 4)
        for epoch in range(2):
            batches = list(loader.batches(epoch))
            np.testing.assert_array_equal(X, np.concatenate([x for x, _ in batches]))
            np.testing.assert_array_equal(Y, np.concatenate([y for _, y in batches if y is not None]))
        trained = [x for x, _ in loader.native_dataset(0, 2)]
    np.testing.assert_array_equal(np.concatenate([X, X]), np.concatenate(trained))


@pytest.mark.parametrize("batch_size", [4, None])
@pytest.mark.parametrize("loader", [ap.Threads(workers=2), ap.Processes(workers=2)], ids=lambda each: each.kind)
def test_workers_of_ours_make_the_batches_that_a_data_loader_would_have_made(
    loader: Any, batch_size: int | None
) -> None:
    data = TensorDataset(torch.from_numpy(X.reshape(5, 2, 2)), torch.from_numpy(Y.reshape(5, 2)))
    own = DataLoader(data, batch_size=batch_size, shuffle=True)
    torch.manual_seed(3)
    wanted = [[y.tolist() for _, y in own] for _ in range(3)]
    torch.manual_seed(3)
    workload = wrap.wrap(own)
    with assembly.make_loader(workload, ap.PipelineConfig(loader=loader, **OURS)) as made:
        assert [[y.tolist() for _, y in made.batches(epoch)] for epoch in range(3)] == wanted
    assert wanted[0] != wanted[1]


@pytest.mark.parametrize(
    "loader", [Wrapped(), ap.Threads(workers=2), ap.Processes(workers=1)], ids=lambda each: each.kind
)
def test_a_sampler_that_shuffles_by_the_number_of_the_epoch_is_told_that(loader: Any) -> None:
    data = TensorDataset(torch.from_numpy(Y))
    own = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=1, rank=0))
    wanted = []
    for epoch in (0, 1, 5):
        own.sampler.set_epoch(epoch)
        wanted.append([y.tolist() for (y,) in own])
    own.sampler.set_epoch(0)
    with assembly.make_loader(wrap.wrap(own), ap.PipelineConfig(loader=loader, **OURS)) as made:
        assert [[y.tolist() for y, _ in made.batches(epoch)] for epoch in (0, 1, 5)] == wanted
    assert wanted[0] != wanted[1]


def test_its_own_order_is_kept_and_differs_from_epoch_to_epoch() -> None:
    workload = wrap.wrap(lambda num_workers=0: make(num_workers, shuffle=True), model=None)
    config = wrap.as_it_is(workload)
    assert config is not None
    torch.manual_seed(0)
    with assembly.make_loader(workload, config) as loader:
        first, second = ([int(y) for _, batch in loader.batches(epoch) for y in batch] for epoch in range(2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


@pytest.mark.parametrize("tune", [None, "live"])
def test_a_loop_of_torch_gets_the_tensors_that_its_step_takes(tune: Any) -> None:
    batches = list[Any]()
    step: Any = batches.append
    workload = wrap.wrap(DataLoader(ROWS, batch_size=4), step=step)
    with ap.make_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=2), **OURS), tune=tune) as loader:
        for batch in loader.epoch(0):
            step(batch)
    assert [type(batch) for batch in batches] == [list] * 3
    np.testing.assert_array_equal(X, torch.cat([x for (x,) in batches]).numpy())


class Stream(IterableDataset[Any]):
    """Samples that each worker reads all of, or, `by_worker`, a part."""

    def __init__(self, *, by_worker: bool) -> None:
        self.by_worker = by_worker

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        part = slice(info.id, None, info.num_workers) if info is not None and self.by_worker else slice(None)
        return iter(zip(torch.arange(64)[part], torch.arange(64)[part], strict=True))


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:.*has no length")  # if counting takes more than a second
@pytest.mark.parametrize("by_worker", [True, False])
def test_an_iterable_that_each_worker_reads_whole_is_a_fault(*, by_worker: bool) -> None:
    stream = Stream(by_worker=by_worker)
    workload = wrap.wrap(lambda: DataLoader(stream, 4, num_workers=2, multiprocessing_context="forkserver"))
    as_it_is = wrap.as_it_is(workload)
    assert as_it_is is not None
    found = repeats(workload, [as_it_is], VerifyOptions(random=True), Told())
    assert ["each of 2 workers" in each for each in found.faults] == [True] * (not by_worker)


def alone(line: str, folder: Path) -> Any:
    """Run a command on a script in a process of its own without Keras, and return what it tells, and its errors."""
    done = in_shell(f"unset KERAS_BACKEND; {sys.executable} -m autopipe {line} --json", folder)
    return json.loads(done.stdout), done.stderr


LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset

weights = torch.zeros(2, requires_grad=True)
loader = DataLoader(TensorDataset(torch.arange(64.0).reshape(32, 2)), batch_size=8, num_workers=2)
for epoch in range(1000):
    for (x,) in loader:  # read
        (x @ weights).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_loop_whose_workers_begin_anew_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    done = succeeded(autopipe("diagnose", "--steps", "12", "loop.py", cwd=tmp_path, COLUMNS="1000"))
    (line,) = (number for number, text in enumerate(LOOP.splitlines(), 1) if text.endswith("# read"))
    assert f"loop.py:{line}" in done.stdout
    assert "persistent_workers=True" in done.stdout
    assert re.search("nothing shuffles|shuffle=True mixes", done.stdout)  # the second if few samples were looked at


@pytest.mark.timeout(300)
def test_of_a_script_that_trains_at_its_top_what_stands_before_is_read(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    found, said = alone("verify loop.py:loader", tmp_path)
    assert "trains when it is imported: it was read as far as line 9, `(x @ weights).sum().backward()`" in said
    assert found["agreements"][0]["samples"] == 32


TRAIN = """
import numpy as np, torch
from torch.utils.data import DataLoader, TensorDataset
import autopipe as ap

def build_model():
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(10, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model

def make_dataset(num_workers=0):
    data = TensorDataset(torch.zeros((64, 2)), torch.zeros(64, dtype=torch.int64))
    return DataLoader(data, batch_size=4, num_workers=num_workers)

workload = ap.wrap(make_dataset, model=build_model, parameters={"num_workers": [0]})
data = ap.Arrays(np.zeros((64, 2), "float32"), np.zeros(64))
arrays = ap.Workload(data=data, ops=[], batch_size=4, model=build_model)
made = make_dataset(num_workers=1)
looped = ap.wrap(make_dataset(num_workers=1), step=lambda batch: batch[0].sum())
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
def test_a_training_by_a_data_loader_is_diagnosed_and_measured(backend: str, script: Path) -> None:
    def told(*line: str) -> Any:
        return json.loads(succeeded(autopipe(*line, "--json", cwd=script.parent, backend=backend)).stdout)

    watched = told("diagnose", "--steps", "12", "train.py")
    assert (watched["data"], watched["backend"]) == ("torch DataLoader", backend)
    assert min(watched[name] for name in ("steps", "waiting_seconds", "alone_images_per_second")) > 0
    (row,) = told("measure", "train.py:workload", "--time", "0.5s")
    assert row["together"]["value"] > 0
    for mode in ("train", "evaluate", "predict") if backend == "torch" else ():
        (row,) = told("measure", "train.py:arrays", "--mode", mode, "--time", "0.5s")
        assert row["model"]["value"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_torch_alone_reads_runs_beside_no_other_framework(script: Path) -> None:
    (row,), _ = alone("measure train.py:looped --time 0.5s", script.parent)
    assert row["together"]["value"] > 0  # its workers are forked
    found, said = alone("verify train.py:made", script.parent)
    assert found["agreements"][0]["samples"] == 64, said


RANK = """
import numpy as np, keras
import autopipe as ap
from autopipe.errors import ModelError

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = ap.Arrays(np.zeros((8, 2), "float32"), np.zeros((8, 1), "float32"))
workload = ap.Workload(data=data, ops=[], batch_size=4, model=model)
try:
    ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1)))
except ModelError as error:
    print(error.message)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_of_two_processes_that_torchrun_connects_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", tmp_path / "rank.py"]
    done = succeeded(python(*launch, backend="torch"))
    assert done.stdout.count("trains in one process on the torch backend, but torch.distributed connects 2.") == 2
