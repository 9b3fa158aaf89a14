import dataclasses
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.artifact import factory
from autopipe.hardware import gpu, machine
from autopipe.measure import fingerprint
from autopipe.measure.facts import OpRecord
from autopipe.measure.fingerprint import MatchLevel
from tests.fakes.profiles import GIB, H200, artifact, digest, hardware, profile
from tests.fakes.sources import Made

SAME, NEAR, OTHER = MatchLevel.SAME, MatchLevel.NEAR, MatchLevel.OTHER
TENSORFLOW, JAX = {"keras_backend": "tensorflow"}, {"keras_backend": "jax"}
SMALLER = H200.model_copy(update={"memory_bytes": 80 * GIB})
DIGEST = "d4efea34c401ea0d"  # of one layer, which artifacts hold
NFS = "nfs4 over the network"


def test_what_counts_as_the_same_machine() -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], MatchLevel, list[str]]] = [
        ({}, {}, SAME, []),
        ({}, {"memory_bytes": int(7.8 * GIB)}, SAME, []),
        ({}, {"storage": "ext4"}, SAME, []),  # the other one is unknown
        ({}, {"keras_backend": "jax"}, SAME, []),  # the other one is unknown
        ({}, {"memory_bytes": 4 * GIB}, NEAR, ["memory: 8 GiB there, 4 GiB here"]),
        ({}, {"cores": 16}, NEAR, ["usable cores: 2 there, 16 here"]),
        ({"gpus": (H200, H200)}, {"gpus": (H200,)}, NEAR, ["GPUs: 2 there, 1 here"]),
        ({"gpus": (H200,)}, {"gpus": (SMALLER,)}, NEAR, ["GPU memory: 141 GiB there, 80 GiB here"]),
        ({"storage": "ext4"}, {"storage": NFS}, NEAR, [f"storage: ext4 there, {NFS} here"]),
        (TENSORFLOW, JAX, NEAR, ["Keras backend: tensorflow there, jax here"]),
        ({}, {"cpu_model": "Imaginary 1"}, OTHER, ["processor: Imaginary 9000 there, Imaginary 1 here"]),
        ({}, {"gpus": (H200,)}, OTHER, [f"GPU model: none there, {H200.name} here", "GPUs: 0 there, 1 here"]),
    ]
    for known, here, level, told in cases:
        match = fingerprint.compare_hardware(hardware(**known), hardware(**here))
        assert (match.level, [*map(str, match.differences)]) == (level, told)


def test_versions_are_listed_to_the_second_number_and_make_no_other_machine() -> None:
    newer = hardware(packages={"tensorflow": "2.22.0", "keras": "3.15.9", "optuna": "4.9.0"}, gpu_driver="570.1")
    match = fingerprint.compare_hardware(hardware(), newer)
    said = ["GPU driver: none there, 570.1 here", "tensorflow: 2.21 there, 2.22 here"]
    assert (match.level, [*map(str, match.software)]) == (SAME, said)


def test_what_counts_as_the_same_workload() -> None:
    known = digest(model="a")
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, []),
        ({"samples": 2400, "mean_bytes": 39000.0}, []),
        ({"samples": 20_000}, ["number of samples"]),
        ({"mean_bytes": 60_000.0}, ["mean size of a sample"]),
        ({"ops": "f" * 16, "op_list": (OpRecord(name="Decode"),), "batch_size": 64}, ["ops", "batch size"]),
        ({"model": "f" * 16}, ["model"]),
        ({"model": None}, []),  # which is not known on the other side
    ]
    for changes, fields in cases:
        here = digest(**{"model": "a"} | changes)
        assert [found.field for found in fingerprint.compare_workload(known, here)] == fields


def test_a_machine_becomes_a_fingerprint() -> None:
    versions = {"tensorflow": None, "keras": "3.15.0", "jax": "0.10.0", "optuna": "5.0.0"}
    found = machine.Machine(
        cpu=machine.Cpu(model="Imaginary 9000", cores=2, logical_cores=8),
        memory=machine.Memory(usable_bytes=8 * GIB, available_bytes=GIB),
        gpus=(gpu.Gpu(name="NVIDIA H200", memory_bytes=141 * GIB, driver="570.1"),) * 2,
        os="Ubuntu 24.04.1 LTS", kernel="Linux 6.8.0-45-generic", python="3.11.7", versions=versions,
    )  # fmt: skip
    expected = hardware(
        gpus=(H200, H200), gpu_driver="570.1", system="Ubuntu 24.04.1 LTS, Linux 6.8", storage="ext4",
        packages={"keras": "3.15.0", "jax": "0.10.0"},
    )  # fmt: skip
    assert expected == fingerprint.of_machine(found, "ext4")
    here = fingerprint.detect()
    assert (fingerprint.compare_hardware(here, fingerprint.detect()).level, here.cores >= 1) == (SAME, True)


def test_the_storage_of_samples_is_looked_up_where_they_lie(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    assert fingerprint.storage_of(ap.Arrays(np.zeros((4, 2)))) == "memory"
    assert fingerprint.storage_of(ap.Arrays(tmp_path / "x.npy")) not in ("memory", "unknown")


def test_a_workload_digest_sees_data_ops_and_batch_size() -> None:
    def of(count: int, scale: float = 1.0, batch_size: int = 2) -> str:
        data = ap.Arrays(np.zeros((count, 2), np.float32))
        return str(fingerprint.workload_digest(ap.Workload(data=data, ops=[ap.Rescale(scale)], batch_size=batch_size)))

    assert (of(4), len({of(4), of(5), of(4, scale=2.0), of(4, batch_size=1)})) == (of(4), 4)


@pytest.mark.parametrize("error", [ap.BadSampleError("`last.jpg` is empty (0 bytes)."), FileNotFoundError("last.jpg")])
def test_a_sample_that_is_skipped_in_a_training_has_no_size(error: Exception) -> None:
    def read(index: int) -> Any:
        if index == 99:
            raise error
        return np.zeros(3, np.uint8), index

    skipping = ap.Workload(data=Made(100, read), ops=[], batch_size=2, on_bad_sample="skip")
    assert fingerprint.workload_digest(skipping).sizes == (3 + 8,) * 15
    with pytest.raises(ap.BadSampleError, match=r"sample 99.*last\.jpg"):
        fingerprint.workload_digest(dataclasses.replace(skipping, on_bad_sample="error"))
    whole = fingerprint.workload_digest(dataclasses.replace(skipping, data=Made(99, read)))
    assert (whole.sizes, whole.mean_bytes) == ((3 + 8,) * 16, 11.0)


class _Layer(types.SimpleNamespace):
    """What `model_digest` looks at of a Keras layer."""


class _Model(types.SimpleNamespace):
    """The same of a model."""


def _model(*units: int, name: str = "dense", weights: float = 0.0, **known: Any) -> Any:
    parts = {"name": name, "seed": id(known), "activation": np.tanh}
    layers = [_Layer(units=count, weights=[np.full((3, count), weights)], **parts) for count in units]
    return _Model(input_shape=(None, 3), _flatten_layers=lambda: layers, layers=layers, **known)


def test_a_model_digest_is_of_the_structure_without_names_weights_and_seeds() -> None:
    steps = [ap.SimulatedAccelerator(0.005), ap.SimulatedAccelerator(0.02), ap.SimulatedAccelerator(0.02, 400)]
    others = [_model(5), _model(4, 4), _model(), *(_model(stands_for=step) for step in steps)]
    first, *different = (fingerprint.model_digest(each) for each in (_model(4), *others))
    assert first == fingerprint.model_digest(_model(4, name="dense_1", weights=1.0)) == DIGEST
    assert len({first, *different}) == 7


DATA = ap.Arrays(np.zeros((8, 6, 6, 3), np.uint8))
OPS: tuple[ap.Op, ...] = (ap.Resize(4, 4), ap.RandomFlip(), ap.Rescale(1 / 255))


def _half(x: Any) -> Any:
    return x // 2


def _third(x: Any) -> Any:
    return x // 3


_third.__qualname__ = "_half"


def workload(ops: Sequence[ap.Op] = OPS, batch_size: int = 2) -> ap.Workload:
    return ap.Workload(data=DATA, ops=ops, batch_size=batch_size)


def test_changed_ops_are_told_in_words() -> None:
    resize, flip, rescale = OPS
    cases: list[tuple[tuple[ap.Op, ...], str]] = [
        ((resize, rescale), "RandomFlip was removed"),
        ((resize, flip, ap.RandomBrightness(0.1), rescale), "RandomBrightness was added"),
        ((ap.Resize(5, 4), flip, rescale), "Resize changed: height was 4 and is 5"),
        ((flip, resize, rescale), "in another order"),
        ((resize, ap.RandomCrop(2, 2), rescale), "RandomFlip was removed, RandomCrop was added"),
    ]
    for ops, said in cases:
        assert said in fingerprint.of_ops(fingerprint.ops_of(workload()), fingerprint.ops_of(workload(ops)))


def test_a_function_with_other_code_is_named_and_one_of_a_script_that_is_run_is_the_same_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, now = (fingerprint.ops_of(workload([ap.Map(function)])) for function in (_half, _third))
    assert fingerprint.of_ops(before, now) == "Map changed: the code of _half"
    known = fingerprint.workload_digest(workload([ap.Map(_half)]))
    monkeypatch.setattr(_half, "__module__", "__main__")
    here = workload([ap.Map(_half)])
    assert fingerprint.changed_since(known, here) == ()
    assert fingerprint.compare_workload(known, fingerprint.workload_digest(here)) == ()


@dataclasses.dataclass(frozen=True)
class Long(ap.Rescale):
    note: str = ""


def _tuned(folder: Path, now: ap.Workload) -> factory.Tuned:
    known = profile(workload=fingerprint.workload_digest(workload()))
    return factory.load(files.write(artifact(known), folder / "autopipe.json"), here=hardware(), workload=now)


def test_it_is_told_when_a_loader_is_made_but_not_of_the_same_workload(tmp_path: Path) -> None:
    now = workload((OPS[0], OPS[2]), batch_size=4)
    expected = r"changed since it was tuned: RandomFlip was removed, the batch size was 2 and is 4\..*retune"
    with pytest.warns(factory.ProfileWarning, match=expected) as caught:
        _tuned(tmp_path, now).make_loader().close()
    assert str(tmp_path / "autopipe.json") in str(caught[0].message)
    assert caught[0].filename == __file__
    _tuned(tmp_path, workload()).make_loader().close()  # a warning would be an error


def test_a_check_speaks_in_words_in_which_a_long_setting_is_short_and_still_differs() -> None:
    known = fingerprint.workload_digest(workload(), model="a" * 16)
    here = fingerprint.workload_digest(workload(OPS[:1]), model="b" * 16)
    said = [str(each) for each in fingerprint.compare_workload(known, here)]
    assert said == ["RandomFlip was removed, Rescale was removed", "the model's structure is another than it was"]
    long = [fingerprint.ops_of(workload([Long(1.0, note="x" * 500 + end)]))[0].settings["note"] for end in "ab"]
    assert (max(map(len, long)) < 150, len({*long})) == (True, 2)
