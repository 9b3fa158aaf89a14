"""The tuned pipeline and converted samples: found beside the artifact by their manifest, or missed with the command."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact import factory
from autopipe.errors import StorageError
from autopipe.measure import facts, fingerprint, session
from autopipe.pipeline.assembly import conversion_of
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.storage.convert import convert
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.source import first_digest
from autopipe.workload.ops import custom, planner
from autopipe.workload.workload import Workload
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import artifact, config, digest, hardware, profile

ARRAY = STORAGES["array"]


def workload(times: int = 1, own: Path = Path("/nowhere")) -> Workload:
    data = Arrays(np.arange(16.0).reshape(8, 2) * times)
    return Workload(data=data, ops=[], batch_size=2, shuffle=False, converted=str(own))


def doubled(numbers: np.ndarray) -> np.ndarray:
    return 2 * numbers


def tuned(folder: Path, made: Workload) -> factory.Tuned:
    path = files.write(
        artifact(profile(workload=digest(batch_size=2), config=config(keep="array"))), folder / "autopipe.json"
    )
    return factory.load(path, here=hardware(), workload=made)


def described(made: Workload) -> facts.Description:
    plan = planner.make_plan(made)
    told = {"samples": len(made.data), "data_digest": first_digest(made.data), "first_ops": fingerprint.first_ops(plan)}
    return DESCRIBED.model_copy(update={**told, "cuts": session.cut_sizes(made, plan)})


def converted(made: Workload, folder: Path) -> None:
    convert(conversion_of(made, planner.make_plan(made), ARRAY), ARRAY, folder)


def test_the_set_beside_the_artifact_is_found_whatever_its_folder_is_called(tmp_path: Path) -> None:
    made = workload()
    converted(made, tmp_path / "converted" / "of-monday")
    with tuned(tmp_path, made).make_loader() as loader:
        assert sum(len(x) for x, _ in loader.epoch(0)) == 8


def test_without_a_set_what_to_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no set of the 8 samples") as caught:
        tuned(tmp_path, workload(own=tmp_path / "own")).make_loader()
    assert caught.value.hint == f"Run `autopipe convert` for this workload, with --to array --out {tmp_path}/own/array"


def test_where_the_set_beside_the_artifact_is_another_the_workloads_own_is_taken(tmp_path: Path) -> None:
    made = workload(own=tmp_path / "own")
    converted(workload(times=2), tmp_path / "converted" / "array")
    converted(made, tmp_path / "own" / "array")
    with tuned(tmp_path, made).make_loader() as loader:
        assert sorted(float(number) for x, _ in loader.epoch(0) for number in x.ravel()) == list(range(16))


def test_a_set_of_other_data_is_named_and_not_used(tmp_path: Path) -> None:
    converted(workload(times=2), tmp_path / "converted" / "array")
    with pytest.raises(StorageError, match="was made from other data"):
        tuned(tmp_path, workload()).make_loader()


def test_whether_anything_is_left_to_convert_is_told_by_the_workloads_description(tmp_path: Path) -> None:
    array, made = PipelineConfig(loader=Threads(workers=1), keep="array"), workload()
    assert not fingerprint.is_beside(tmp_path, described(made), array)
    converted(made, tmp_path / "converted" / "array")
    assert fingerprint.is_beside(tmp_path, described(made), array)
    assert fingerprint.is_beside(tmp_path, described(made), array.model_copy(update={"keep": "array:0"}))
    assert not fingerprint.is_beside(tmp_path, described(made), array.model_copy(update={"keep": "none"}))
    assert not fingerprint.is_beside(tmp_path, described(workload(times=2)), array)
    scaled = dataclasses.replace(made, ops=[custom.Map(doubled)])
    assert not fingerprint.is_beside(tmp_path, described(scaled), array)
    shard, *_ = (tmp_path / "converted" / "array").glob("x-*.npy")
    shard.write_bytes(b"")
    assert not fingerprint.is_beside(tmp_path, described(made), array)
