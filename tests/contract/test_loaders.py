"""What every loader must do, whatever its knobs: hand over the batches that (workload, seed, epoch) alone fix.

What is expected is computed here from the ops, one sample at a time in the user's order, without any loader machinery.
A new loader, or storage, is one more entry in the tables below.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.errors import LoaderError
from autopipe.pipeline.assembly import build_loader, conversion_of
from autopipe.pipeline.config import STORAGES as STORAGES_BY_NAME
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Storage
from autopipe.workload import order as randomness
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.images import ImagePairs
from autopipe.workload.data.table import Table
from autopipe.workload.op import NUMPY
from autopipe.workload.ops import planner
from autopipe.workload.ops.colors import RandomBrightness, RandomContrast, RandomHue
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomErasing, RandomFlip
from autopipe.workload.ops.mix import CutMix, MixUp
from autopipe.workload.ops.on_parts import On
from autopipe.workload.ops.sizes import CenterCrop, Pad, RandomCrop, Resize
from autopipe.workload.ops.values import MaskToClass, Normalize, OneHot, Rescale
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec
from autopipe.workload.workload import Workload

LOADERS: dict[str, LoaderConfig] = {
    **{f"threads-{n}": Threads(workers=n, queue_size=2) for n in (1, 2, 5)},
    **{f"processes-{n}": Processes(workers=n, queue_size=2) for n in (1, 2, 5)},
    **{f"tfdata-{n}": TfData(num_parallel_calls=n, prefetch=2) for n in (1, 2, 5)},
    "tfdata-auto": TfData(),
    **{f"threads-2-ahead-{n}": Threads(workers=2, queue_size=2, read_ahead=n) for n in (1, 64)},
    **{f"processes-2-ahead-{n}": Processes(workers=2, queue_size=2, read_ahead=n) for n in (1, 64)},
    **{f"tfdata-2-ahead-{n}": TfData(num_parallel_calls=2, prefetch=2, read_ahead=n) for n in (1, 64)},
}
ONE_OF_EACH = ["threads-2", "processes-2", "tfdata-2", "tfdata-2-ahead-64"]
SETTINGS = {
    "files": {},
    "files, host, cached": {"finish": "host", "cache": "memory"},
    "files, cached": {"cache": "memory"},
    "tfrecord, host": {"storage": "tfrecord", "finish": "host"},
    "array": {"storage": "array"},
    "array, host, cached": {"storage": "array", "finish": "host", "cache": "memory"},
    "files, host, channels first": {"finish": "host", "channels": "first"},
}
# One of each loader in all settings; the others as they are by default, and in one more.
PAIRS = [
    (loader, settings)
    for number, loader in enumerate(LOADERS)
    for at, settings in enumerate(SETTINGS)
    if loader in ONE_OF_EACH or at in (0, 1 + number % (len(SETTINGS) - 1))
]
BATCH = 4


def jitter(image: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    jittered: NDArray[Any] = image ^ rng.integers(0, 8, image.shape, np.uint8)
    return jittered


def exact_workload(photos: Path, **changes: Any) -> Workload:
    """Return a workload of fixed and random ops of each kind, that move, resize, paint and colour."""
    ops = [
        Decode(),
        CenterCrop(36, 40),
        RandomCrop(30, 36),
        RandomFlip(vertical=True),
        RandomBrightness(0.2),
        RandomContrast(0.7, 1.3),
        RandomHue(0.3),
        Map(jitter, random=True),
        Resize(24, 32),
        RandomErasing(),
        OneHot(23),
        Rescale(1 / 255, 0.5),
    ]
    settings = {"ops": ops, "batch_size": BATCH, "seed": 7, **changes}
    return Workload(data=Table(photos / "labels.csv"), **settings)


def expected_batches(workload: Workload, epoch: int, shard: tuple[int, int] = (0, 1)) -> list[Batch]:
    """Return an epoch's finished batches, made one sample at a time."""
    made = planner.make_plan(workload)
    before = {step.stream: step.before for step in made.prefix + made.body + made.suffix}
    count = len(workload.data)
    order = randomness.epoch_order(workload.seed, epoch, count) if workload.shuffle else np.arange(count)
    samples = []
    for index in order[shard[0] :: shard[1]].tolist():
        sample = planner.normalise(workload.data.read(index))
        for stream, op in enumerate(workload.ops):
            random = randomness.uniforms(workload.seed, epoch, np.array([index]), stream, op.draws)[0]
            sample = op.apply(sample, before[stream], random)
        samples.append(sample)
    size = workload.batch_size
    groups = [samples[at : at + size] for at in range(0, len(samples), size)]
    if workload.drop_remainder:
        groups = [group for group in groups if len(group) == size]
    return [(np.stack([x for x, _ in group]), np.stack([y for _, y in group])) for group in groups]


def digest(batches: list[Batch]) -> str:
    """Return one digest of all that batches hold."""
    found = hashlib.sha256()
    for batch in batches:
        for part in batch:
            if part is not None:
                found.update(f"{part.shape} {part.dtype}".encode() + np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def finished(loader: Loader, batches: Iterator[Batch]) -> list[Batch]:
    """Return copies of batches, finished where the loader leaves that to the device."""
    return [tuple(map(np.array, loader.finish.batch(batch, NUMPY))) for batch in batches]


@contextlib.contextmanager
def opened(workload: Workload, loader: str, **settings: Any) -> Iterator[Loader]:
    """Open a loader; `settings` are the configuration's, and `shard`."""
    shard = settings.pop("shard", (0, 1))
    with build_loader(workload, PipelineConfig(loader=LOADERS[loader], **settings), shard=shard) as made:
        yield made


@pytest.fixture(scope="module")
def forms(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the exact workload in each stored form."""
    folder = tmp_path_factory.mktemp("forms")
    workload = exact_workload(photos, converted=str(folder))
    for name in ("tfrecord", "array"):
        storage: Storage = STORAGES_BY_NAME[name]
        convert(conversion_of(workload, planner.make_plan(workload), storage), storage, folder / name, workers=1)
    return str(folder)


@functools.cache
def exact_digest(photos: Path, epoch: int, channels: str = "last") -> str:
    batches = expected_batches(exact_workload(photos), epoch)
    return digest([(x.transpose(0, 3, 1, 2), y) for x, y in batches] if channels == "first" else batches)


def test_what_is_expected_holds_each_sample_once_an_epoch_in_a_new_order(photos: Path) -> None:
    workload = exact_workload(photos, ops=[Decode(), CenterCrop(24, 32)])
    orders = [[int(label) for _, y in expected_batches(workload, epoch) for label in y] for epoch in range(4)]
    assert [list(range(23))] * 4 == [sorted(order) for order in orders]
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize(("loader", "settings"), PAIRS)
def test_the_batches_are_a_function_of_workload_seed_and_epoch(
    photos: Path, forms: str, loader: str, settings: str
) -> None:
    workload, chosen = exact_workload(photos, converted=forms), SETTINGS[settings]
    with opened(workload, loader, **chosen) as made:
        for epoch in (0, 1, 2):
            found = digest(finished(made, made.batches(epoch)))
            assert exact_digest(photos, epoch, chosen.get("channels", "last")) == found


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_a_cache_of_a_part_of_the_samples_changes_no_batch(photos: Path, loader: str) -> None:
    with opened(exact_workload(photos), loader, cache="memory", cache_fraction=0.4) as made:
        for epoch in (0, 1):
            assert exact_digest(photos, epoch) == digest(finished(made, made.batches(epoch)))


@pytest.mark.parametrize("finish", ["device", "host"])
@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_samples_of_a_batch_are_mixed_alike_by_every_loader(photos: Path, loader: str, finish: str) -> None:
    single = [Decode(), CenterCrop(36, 40), RandomFlip(), OneHot(23)]
    workload = exact_workload(photos, ops=[*single, CutMix(0.7), MixUp(0.4), Rescale(1 / 255)])
    with opened(workload, loader, finish=finish) as made:
        for epoch in (0, 1):
            order = randomness.epoch_order(7, epoch, 23)
            mixed = []
            for number, batch in enumerate(expected_batches(exact_workload(photos, ops=single), epoch)):
                for stream, op in enumerate(workload.ops[4:6], start=4):
                    indices = order[number * BATCH : (number + 1) * BATCH]
                    batch = op.apply_many(batch, None, randomness.uniforms(7, epoch, indices, stream, op.draws))  # type: ignore[arg-type]  # it does not look at the kinds
                mixed.append(workload.ops[6].finish(batch, None, NUMPY))  # type: ignore[arg-type]  # nor does this
            assert digest(mixed) == digest(finished(made, made.batches(epoch)))


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_samples_come_in_their_own_order_and_a_short_last_batch_is_dropped_if_told(photos: Path, loader: str) -> None:
    workload = exact_workload(photos, shuffle=False, drop_remainder=True)
    with opened(workload, loader) as made:
        assert len(made) == 5
        assert digest(expected_batches(workload, 3)) == digest(finished(made, made.batches(3)))


@pytest.mark.parametrize(("loader", "cache"), [*zip(ONE_OF_EACH, ("memory", "none", "memory", "none"), strict=True)])
def test_a_state_taken_in_mid_epoch_resumes_with_the_next_batch(photos: Path, loader: str, cache: str) -> None:
    workload = exact_workload(photos)
    expected = expected_batches(workload, 2)
    with opened(workload, loader, finish="host", cache=cache) as made:
        epoch = made.epoch(2)
        for _ in range(2):
            next(epoch)
        state = made.state_dict()
    with opened(workload, loader, finish="host", cache=cache) as made:
        made.load_state_dict(state)
        assert digest(expected[2:]) == digest(finished(made, made.epoch(state["epoch"])))
        assert exact_digest(photos, 3) == digest(finished(made, made.epoch(3)))
        assert made.state_dict() == {**state, "epoch": 4, "batch": 0}


@pytest.mark.parametrize("channels", ["last", "first"])
@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_an_epoch_that_the_device_is_to_finish_comes_finished(photos: Path, loader: str, channels: str) -> None:
    workload = exact_workload(photos)
    expected = expected_batches(workload, 2)
    if channels == "first":
        expected = [(x.transpose(0, 3, 1, 2), y) for x, y in expected]
    with opened(workload, loader, channels=channels) as made:
        first = next(made.epoch(2))
        assert not any(isinstance(part, np.ndarray) for part in first)  # arrays of the backend
        made.load_state_dict({**made.state_dict(), "batch": 2})
        assert digest(expected[2:]) == digest([tuple(map(np.array, batch)) for batch in made.epoch(2)])
        again = made.epoch(2)
    with pytest.raises(LoaderError):
        list(again)


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_an_epoch_left_in_the_middle_disturbs_no_other(photos: Path, loader: str) -> None:
    workload = exact_workload(photos)
    with opened(workload, loader) as made:
        for epoch in (0, 5, 0):
            batches = made.batches(epoch)
            next(batches)
            del batches
        assert exact_digest(photos, 1) == digest(finished(made, made.batches(1)))


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_two_loaders_that_are_read_in_turns_do_not_disturb_each_other(photos: Path, loader: str) -> None:
    workloads = [exact_workload(photos), exact_workload(photos, seed=5)]
    with opened(workloads[0], loader) as one, opened(workloads[1], loader) as other:
        for epoch in (0, 1):
            read: tuple[list[Batch], list[Batch]] = ([], [])
            for batches in zip(one.batches(epoch), other.batches(epoch), strict=True):
                for kept, made, batch in zip(read, (one, other), batches, strict=True):
                    kept.extend(finished(made, iter([batch])))
            assert [digest(expected_batches(workload, epoch)) for workload in workloads] == [*map(digest, read)]


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_shards_are_disjoint_and_cover_the_epoch(photos: Path, loader: str) -> None:
    workload = exact_workload(photos)
    seen: list[int] = []
    for part in range(3):
        with opened(workload, loader, shard=(part, 3)) as made:
            batches = finished(made, made.batches(1))
            assert digest(expected_batches(workload, 1, (part, 3))) == digest(batches)
            seen += [int(label) for _, y in batches for label in np.argmax(y, axis=1)]
    assert list(range(23)) == sorted(seen)


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_masks_follow_their_images_exactly(pairs: Path, palette: tuple[tuple[int, int, int], ...], loader: str) -> None:
    ops = [
        Decode(),
        MaskToClass(palette),
        Resize(32, 40),
        RandomCrop(24, 24),
        RandomFlip(),
        OneHot(4),
        Rescale(1 / 255),
    ]
    workload = Workload(data=ImagePairs(pairs / "images", pairs / "masks"), ops=ops, batch_size=3, seed=1)
    with opened(workload, loader, cache="memory") as made:
        assert digest(expected_batches(workload, 0)) == digest(finished(made, made.batches(0)))


SMALL = {
    "ops": [Decode(), Pad(14, 14, value=9), RandomCrop(10, 12), RandomFlip(vertical=True), RandomBrightness(0.2),
            RandomContrast(0.7, 1.3), OneHot(23), Rescale(1 / 255, 0.5)],
    "float": [RandomFlip(), RandomBrightness(0.1), Normalize(0.5, 0.25)],
    "none": [],
}  # fmt: skip


def small_arrays(folder: Path, *, floating: bool) -> Arrays:
    """Arrays of which the images lie in a file, as most do."""
    generator = np.random.default_rng(3)
    images = generator.integers(0, 256, (23, 12, 12, 3), np.uint8)
    np.save(folder / "x.npy", (images / 255).astype(np.float32) if floating else images)
    return Arrays(folder / "x.npy", generator.integers(0, 5, 23))


@pytest.mark.parametrize(
    ("loader", "settings", "ops"),
    [
        *((loader, {"finish": finish}, "ops") for loader in ONE_OF_EACH for finish in ("host", "device")),
        *((loader, {"cache": "memory"}, "ops") for loader in ONE_OF_EACH),
        ("threads-2", {"cache_fraction": 0.4}, "ops"),
        ("threads-2-ahead-64", {}, "ops"),
        ("threads-2", {"finish": "host"}, "float"),
        ("threads-2", {}, "none"),
    ],
    ids=str,
)
def test_small_samples_that_are_batched_at_once_are_the_same(
    tmp_path: Path, loader: str, settings: dict[str, Any], ops: str
) -> None:
    data = small_arrays(tmp_path, floating=ops == "float")
    workload = Workload(data=data, ops=SMALL[ops], batch_size=BATCH, seed=7)
    if "cache_fraction" in settings:
        settings = {**settings, "cache": "memory"}
    with opened(workload, loader, **settings) as made:
        for epoch in (0, 1, 2):
            assert digest(expected_batches(workload, epoch)) == digest(finished(made, made.batches(epoch)))


@pytest.mark.parametrize("loader", ["threads-2", "tfdata-2"])
def test_small_samples_in_another_storage_form_are_the_same(photos: Path, tmp_path: Path, loader: str) -> None:
    workload = exact_workload(photos, ops=SMALL["ops"][:1] + SMALL["ops"][2:], converted=str(tmp_path))
    workload = dataclasses.replace(workload, ops=(Decode(), Resize(16, 16), *workload.ops[1:]))
    storage: Storage = STORAGES_BY_NAME["array"]
    conversion = conversion_of(workload, planner.make_plan(workload), storage)
    convert(conversion, storage, tmp_path, workers=1)
    with opened(workload, loader, storage="array") as made:
        for epoch in (0, 1):
            assert digest(expected_batches(workload, epoch)) == digest(finished(made, made.batches(epoch)))


class Plain:
    """A user's own source, which names no files and has no target."""

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> NDArray[np.uint8]:
        return np.full((6, 5, 3), index, np.uint8)


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_a_source_of_arrays_without_targets_will_do(loader: str) -> None:
    workload = Workload(data=Plain(), ops=[RandomCrop(4, 4), Rescale(1.0)], batch_size=BATCH)
    with opened(workload, loader) as made:
        batches = [(x, y) for x, y in made.batches(0)]
    assert [y for _, y in batches] == [None] * 3
    assert list(range(10)) == sorted(int(row[0, 0, 0]) for x, _ in batches for row in x)


class Numbers:
    """A source whose samples are single numbers."""

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> tuple[float, int]:
        return float(index), index


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_samples_that_are_single_numbers_will_do(loader: str) -> None:
    with opened(Workload(data=Numbers(), ops=[], batch_size=BATCH), loader) as made:
        batches = list(made.batches(0))
        found = np.concatenate([x.copy() for x, _ in batches])
    assert sorted(found.tolist()) == [float(number) for number in range(10)]


class Parts:
    """Two photographs of each thing and some numbers; its mask, its kind and its weight."""

    def __init__(self, pairs: Path) -> None:
        self._pairs = ImagePairs(pairs / "images", pairs / "masks")

    def __len__(self) -> int:
        return len(self._pairs)

    def read(self, index: int) -> Any:
        image, mask = self._pairs.read(index)
        numbers = np.array([index, -1], np.float32)
        x = {"numbers": numbers, "one": image, "other": self._pairs.read((index + 5) % len(self))[0]}
        return x, (mask, index % 3), np.float32(index / 4)


def expected_parts(workload: Workload, palette: Any, epoch: int) -> list[Any]:
    """Return an epoch's batches of `Parts`, by ops that know nothing of several parts."""
    decode, _, resize, crop, flip, brighter, _, rescale = workload.ops
    image_and_mask = [decode, MaskToClass(palette), resize, crop, flip]
    samples = []
    for index in randomness.epoch_order(workload.seed, epoch, len(workload.data)).tolist():
        (numbers, one, other), (mask, kind), weight = [
            list(part.values()) if isinstance(part, dict) else part for part in workload.data.read(index)
        ]
        made = []
        for x, y in ((one, mask), (other, mask)):
            for stream, op in enumerate(image_and_mask):
                drawn = randomness.uniforms(workload.seed, epoch, np.array([index]), stream, op.draws)[0]
                x, y = op.apply((x, y), ENCODED if stream == 0 else DECODED, drawn)
            made.append((x, y))
        drawn = randomness.uniforms(workload.seed, epoch, np.array([index]), 5, 1)[0]
        other = brighter.op.apply((made[1][0], None), DECODED, drawn)[0]  # type: ignore[attr-defined]  # it is On
        images = [rescale.finish((image[None], None), DECODED, NUMPY)[0][0] for image in (made[0][0], other)]
        samples.append((images[0], made[0][1], numbers, images[1], np.eye(3, dtype=np.float32)[kind], weight))
    return [
        tuple(np.stack(parts) for parts in zip(*samples[at : at + BATCH], strict=True))
        for at in range(0, len(samples), BATCH)
    ]


ENCODED = SampleSpec(Field(FieldKind.ENCODED, None, None), Field(FieldKind.ENCODED, None, None))
DECODED = SampleSpec(Field(FieldKind.IMAGE, None, np.dtype("uint8")), Field(FieldKind.MASK, None, np.dtype("uint8")))


def workload_of_parts(pairs: Path, palette: Any, **settings: Any) -> Workload:
    ops = [Decode(), On("y.0", MaskToClass(palette)), Resize(32, 40), RandomCrop(24, 24), RandomFlip(),
           On("other", RandomBrightness(0.2)), On("y.1", OneHot(3)), Rescale(1 / 255)]  # fmt: skip
    return Workload(data=Parts(pairs), ops=ops, batch_size=BATCH, seed=5, **settings)


@pytest.mark.parametrize(
    ("loader", "settings"),
    [
        *((loader, {}) for loader in ONE_OF_EACH),
        *((loader, {"finish": "host", "cache": "memory"}) for loader in ONE_OF_EACH),
        ("threads-2", {"storage": "tfrecord"}),
        ("threads-2", {"storage": "array", "cache": "memory"}),
    ],
    ids=str,
)
def test_samples_of_several_parts_are_the_same_from_every_loader_and_storage(
    pairs: Path, palette: Any, tmp_path: Path, loader: str, settings: dict[str, Any]
) -> None:
    workload = workload_of_parts(pairs, palette, converted=str(tmp_path))
    if "storage" in settings:
        storage: Storage = STORAGES_BY_NAME[settings["storage"]]
        convert(conversion_of(workload, planner.make_plan(workload), storage), storage, tmp_path, workers=1)
    with opened(workload, loader, **settings) as made:
        assert made.spec.labels == ("x.one", "y.0", "x.numbers", "x.other", "y.1", "sample_weight")
        for epoch in (0, 1):
            found = [tuple(map(np.array, made.finish.batch(batch, NUMPY))) for batch in made.batches(epoch)]
            assert digest(expected_parts(workload, palette, epoch)) == digest(found)
        x, y, weight = next(made.epoch(2))
        assert (set(x), len(y), len(weight)) == ({"one", "other", "numbers"}, 2, BATCH)


def _views(x: NDArray[Any]) -> Any:
    return x[1:][:, ::2]


def _numpy_function(x: NDArray[Any]) -> Any:
    import tensorflow as tf

    return tf.numpy_function(lambda: x, [], tf.uint8)


def _tensor(x: NDArray[Any]) -> Any:
    import tensorflow as tf

    return tf.convert_to_tensor(x)


def _jax(x: NDArray[Any]) -> Any:
    import jax

    return jax.device_put(x)


def _memoryview(x: Any) -> Any:
    return memoryview(x)


ALIASES: dict[str, Callable[[NDArray[Any]], Any]] = {
    "views": _views,
    "memoryview": _memoryview,
    "numpy_function": _numpy_function,
    "tensor": _tensor,
    "jax": _jax,
}


@pytest.mark.parametrize(
    ("loader", "alias"), [*(("threads-2", alias) for alias in ALIASES), ("processes-2", "numpy_function")]
)
def test_no_batch_is_overwritten_while_something_refers_to_it(photos: Path, loader: str, alias: str) -> None:
    workload = exact_workload(photos, ops=[Decode(), CenterCrop(32, 32), RandomFlip()])
    make = ALIASES[alias]
    with opened(workload, loader) as made:
        kept = []
        for epoch in range(6):
            for number, (x, _) in enumerate(made.batches(epoch)):
                if number % 3 == 0:  # slots of the others are used again
                    kept.append((np.asarray(make(x.copy())).copy(), make(x)))
                del x
        gc.collect()
        for value, still_there in kept:
            np.testing.assert_array_equal(value, np.asarray(still_there))


@pytest.mark.parametrize("loader", ONE_OF_EACH)
def test_a_closed_loader_says_so_and_its_batch_outlives_it(photos: Path, loader: str) -> None:
    with opened(exact_workload(photos), loader) as made:
        batches = made.batches(0)
        x, _ = next(batches)
        kept = x.copy()
        made.close()
    np.testing.assert_array_equal(kept, x)
    for read in (batches, made.batches(1)):
        with pytest.raises(LoaderError, match="closed"):
            next(read)
