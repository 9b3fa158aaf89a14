"""`ap.live` of a torch `DataLoader`: its order, its collating, its tensors."""

import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset

import autopipe as ap

X = torch.arange(44, dtype=torch.float32).reshape(22, 2)


class Named(Dataset[Any]):
    """Samples that are dictionaries, made one by one."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> Any:
        return {"x": X[index], "y": index}


def flipped(samples: list[Any]) -> list[Any]:
    return [torch.stack([x.flip(0) for (x,) in samples]), torch.ones(len(samples), dtype=torch.int32)]


def halved(samples: list[Any]) -> Any:
    return torch.stack([x for (x,) in samples]).bfloat16(), torch.zeros(2, requires_grad=True)


LOADERS: dict[str, dict[str, Any]] = {
    "in order": {"dataset": TensorDataset(X, X[:, 0].long()), "batch_size": 4},
    "shuffled": {"dataset": TensorDataset(X, X[:, 0].long()), "batch_size": 4, "shuffle": True, "drop_last": True},
    "dictionaries": {"dataset": Named(), "batch_size": 5, "shuffle": True},
    "collated": {"dataset": TensorDataset(X), "batch_size": 4, "collate_fn": flipped, "sampler": RandomSampler(X)},
    "no arrays of NumPy": {"dataset": TensorDataset(X), "batch_size": 4, "collate_fn": halved},
    "a sampler of batches": {"dataset": Named(), "batch_sampler": BatchSampler(RandomSampler(X), 3, drop_last=False)},
    "workers that stay": {"dataset": Named(), "shuffle": True, "num_workers": 1, "persistent_workers": True},
    "whole batches": {"dataset": TensorDataset(X.reshape(11, 2, 2)), "batch_size": None, "shuffle": True},
}


def parts(batches: Iterable[Any]) -> list[Any]:
    """Return the containers, types, dtypes and values of batches."""

    def part(each: Any) -> Any:
        if isinstance(each, dict):
            return {key: part(value) for key, value in each.items()}
        if isinstance(each, tuple | list):
            return [type(each), *map(part, each)]
        return type(each), each.dtype, each.tolist()

    return list(map(part, batches))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("name", LOADERS)
def test_batches_are_those_of_the_data_loader_with_the_same_random_numbers(name: str, *, threads: bool) -> None:
    torch.manual_seed(3)
    plain = DataLoader(**LOADERS[name])
    expected = [parts(plain) for _ in range(2)]
    torch.manual_seed(3)
    with ap.live(DataLoader(**LOADERS[name]), threads=threads) as batches:
        assert len(batches) == len(plain)
        assert [parts(batches) for _ in range(2)] == expected


def test_a_generator_of_the_loaders_own_draws_the_order() -> None:
    def made() -> Any:
        return DataLoader(Named(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))

    with ap.live(made()) as batches:
        assert parts(batches) == parts(made())


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(X)


class Again:
    """A sampler without an end."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(range(len(X)))


class Repeating(DataLoader[Any]):
    def __iter__(self) -> Any:
        yield from super().__iter__()
        yield from super().__iter__()


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Named(), "is a sample"),
        (DataLoader(Stream(), batch_size=4), "have no index"),
        (DataLoader(Named(), batch_size=4, sampler=Again()), "gave 100,000 and more"),
        (Repeating(Named(), batch_size=4), "`Repeating` has an `__iter__` of its own"),
    ],
    ids=["samples", "no index", "no end", "own batches"],
)
def test_what_has_no_index_of_batches_is_refused(dataset: Any, said: str) -> None:
    with pytest.raises(ap.WorkloadError, match=said):
        list(ap.live(dataset))


class Sets(Named):
    current: Any = None

    def __getitem__(self, index: int) -> Any:
        self.current = X[index].clone()
        return self.current


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", [lambda data: data, lambda data: Subset(data, range(20)), lambda data: data + data])
def test_threads_do_not_share_what_each_sample_sets_in_a_part_of_the_dataset_either(part: Any) -> None:
    with ap.live(DataLoader(part(Sets()), batch_size=4)) as batches:
        assert len(torch.cat(list(batches))) == len(part(Sets()))
        feeding: Any = batches._loader
    assert feeding.watch.config.loader.kind == "processes"


SCRIPT = """
import sys, torch, autopipe as ap
from torch.utils.data import DataLoader, TensorDataset
for x, y in ap.live(DataLoader(TensorDataset(torch.zeros(40, 2), torch.zeros(40)), batch_size=4)):
    pass
print(sorted({"keras", "tensorflow", "jax"} & set(sys.modules)))
"""


@pytest.mark.timeout(300)
def test_no_other_framework_is_imported_for_a_loop_of_torch(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "loop.py"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
