"""What every loader must do, whatever its knobs: hand over the batches that (workload, seed, epoch) alone fix."""

import contextlib
import dataclasses
import functools
import gc
import hashlib
import itertools
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe import testing
from autopipe.pipeline.assembly import conversion_of
from autopipe.pipeline.batching import kernel
from autopipe.pipeline.config import STORAGES, Kept, LoaderConfig
from autopipe.pipeline.storage.convert import convert
from autopipe.testing import copied, expected_batches, finished
from autopipe.workload import order as randomness
from autopipe.workload.op import NUMPY, Op
from autopipe.workload.ops import planner
from autopipe.workload.sample import Batch
from tests.fakes.commands import by_python
from tests.fakes.damage import damaged_files
from tests.fakes.sources import Made

pytestmark: Any = pytest.mark.usefixtures("forked_nurseries")  # of an extension, which has marks of its own, too
LOADERS: dict[str, LoaderConfig] = {
    **{f"threads-{n}": ap.Threads(workers=n, queue_size=2) for n in (1, 2, 5)},
    **{f"processes-{n}": ap.Processes(workers=n, queue_size=2) for n in (1, 2, 5)},
    **{f"tfdata-{n}": ap.TfData(num_parallel_calls=n, prefetch=2) for n in (1, 2, 5)},
    "tfdata-auto": ap.TfData(),
    **{f"threads-2-ahead-{n}": ap.Threads(workers=2, queue_size=2, read_ahead=n) for n in (1, 64)},
    **{f"processes-2-ahead-{n}": ap.Processes(workers=2, queue_size=2, read_ahead=n) for n in (1, 64)},
    **{f"tfdata-2-ahead-{n}": ap.TfData(num_parallel_calls=2, prefetch=2, read_ahead=n) for n in (1, 64)},
}
ONE_OF_EACH = ["threads-2", "processes-2", "tfdata-2", "tfdata-2-ahead-64"]
SETTINGS: dict[str, dict[str, Any]] = {
    "files": {},
    "files, host, cached": {"finish": "host", "keep": "memory"},
    "files, cached": {"keep": "memory"},
    "files, cached in part": {"keep": "memory:40%"},
    "files, encoded": {"keep": "encoded"},
    "tfrecord, host": {"keep": "tfrecord", "finish": "host"},
    "array": {"keep": "array"},
    "array, host, cached": {"finish": "host", "keep": "array+memory"},
    "files, host, channels first": {"finish": "host", "channels": "first"},
}
BATCH = 4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the contract on the loaders of the module that it stands in: here, or in an extension's tests.

    One of each in all settings, the others in two. What is not slow has the first in all, each setting in another.
    """
    loaders: dict[str, LoaderConfig] = metafunc.module.LOADERS
    settings: dict[str, dict[str, Any]] = metafunc.module.SETTINGS
    one_of_each: list[str] = metafunc.module.ONE_OF_EACH
    slow = pytest.mark.slow

    def is_quick(name: str, at: int) -> bool:
        if name not in one_of_each:
            return at == 0 and "ahead" not in name
        return (number := one_of_each.index(name)) == 0 or (at + number) % 3 == 0

    if "settings" in metafunc.fixturenames:
        pairs = [
            pytest.param(loader, chosen, id=f"{name}-{which}", marks=() if is_quick(name, at) else slow)
            for number, (name, loader) in enumerate(loaders.items())
            for at, (which, chosen) in enumerate(settings.items())
            if name in one_of_each or at in (0, 1 + number % (len(settings) - 1))
        ]
        metafunc.parametrize(("loader", "settings"), pairs)
    elif "loader" in metafunc.fixturenames:
        chosen = [pytest.param(loaders[name], marks=slow if "ahead" in name else ()) for name in one_of_each]
        metafunc.parametrize("loader", chosen, ids=one_of_each)


def exact_ops() -> list[Op]:
    """Return fixed and random ops of each kind, that move, resize, paint and colour.

    The module of a loader that cannot do all of them puts another function in this one's place.
    """
    return [
        ap.Decode(), ap.CenterCrop(36, 40), ap.RandomCrop(30, 36), ap.RandomFlip(vertical=True),
        ap.RandomBrightness(0.2), ap.RandomContrast(0.7, 1.3), ap.RandomHue(0.3),
        ap.Map(lambda image, rng: image ^ rng.integers(0, 8, image.shape, np.uint8), random=True),
        ap.Resize(24, 32), ap.RandomErasing(), ap.OneHot(23), ap.Rescale(1 / 255, 0.5),
    ]  # fmt: skip


def exact_workload(photos: Path, **changes: Any) -> ap.Workload:
    settings = {"ops": exact_ops(), "batch_size": BATCH, "seed": 7, **changes}
    return ap.Workload(data=ap.Table(photos / "labels.csv"), **settings)


def digest(batches: list[Batch]) -> str:
    found = hashlib.sha256()
    for batch in batches:
        for part in batch:
            if part is not None:
                found.update(f"{part.shape} {part.dtype}".encode() + np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


@contextlib.contextmanager
def opened(workload: ap.Workload, loader: LoaderConfig, **settings: Any) -> Iterator[ap.Loader]:
    """Open a loader; `settings` are the configuration's, and `shard`.

    A loader may refuse a workload of which it says beforehand that it cannot feed it.
    """
    shard = settings.pop("shard", (0, 1))
    why = loader.impossible(planner.make_plan(workload)).get(("loader", loader.kind))
    if why is not None:
        with pytest.raises(ap.ConfigError, match=re.escape(why)):
            ap.make_loader(workload, ap.PipelineConfig(loader=loader, **settings), shard=shard)
        pytest.skip(why)
    with ap.make_loader(workload, ap.PipelineConfig(loader=loader, **settings), shard=shard) as made:
        yield made


def assert_same(workload: ap.Workload, loader: LoaderConfig, epochs: Iterable[int] = (0, 1), **settings: Any) -> None:
    """Compare what a loader gives in some epochs with what is expected."""
    shard = settings.get("shard", (0, 1))
    with opened(workload, loader, **settings) as made:
        for epoch in epochs:
            assert digest(expected_batches(workload, epoch, shard)) == digest(finished(made, made.batches(epoch)))


@contextlib.contextmanager
def unless_it_always_decodes() -> Iterator[None]:
    try:
        yield
    except ap.ConfigError as error:
        assert "keeps them as they are read" in str(error)  # noqa: PT017


def converted(workload: ap.Workload, form: str, folder: Path) -> None:
    conversion = conversion_of(workload, planner.make_plan(workload), STORAGES[form])
    convert(conversion, STORAGES[form], folder, workers=1)


@pytest.fixture(scope="module")
def forms(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("forms")
    for form in ("tfrecord", "array"):
        converted(exact_workload(photos, converted=str(folder)), form, folder / form)
    return str(folder)


@functools.cache
def exact_digest(photos: Path, epoch: int, channels: str = "last", on_bad_sample: str = "error") -> str:
    batches = expected_batches(exact_workload(photos, on_bad_sample=on_bad_sample), epoch)
    return digest([(x.transpose(0, 3, 1, 2), y) for x, y in batches] if channels == "first" else batches)


def test_it_keeps_the_contract_of_loaders(photos: Path, loader: LoaderConfig) -> None:
    workload = exact_workload(photos)
    testing.check_loader(loader, workload, [{}])
    assert_same(dataclasses.replace(workload, shuffle=ap.Blocks(size=4, mixed=2)), loader, [0], shard=(1, 3))
    assert_same(dataclasses.replace(workload, shuffle=False, drop_remainder=True), loader, [3])


def test_the_batches_are_a_function_of_workload_seed_and_epoch(
    photos: Path, forms: str, loader: LoaderConfig, settings: Mapping[str, Any]
) -> None:
    with opened(exact_workload(photos, converted=forms), loader, **settings) as made:
        for epoch in (0, 1, 2):
            found = digest(finished(made, made.batches(epoch)))
            assert exact_digest(photos, epoch, settings.get("channels", "last")) == found


def deep(dtype: str, index: int) -> tuple[bytes, int]:
    numbers = np.random.default_rng(index)
    pixels = numbers.integers(0, 65536, (40 + numbers.integers(9), 44, 3)).astype(np.uint16)
    extension, plain = ".tif" if index % 2 or dtype == "float32" else ".png", (cv2.IMWRITE_TIFF_COMPRESSION, 1)
    file = cv2.imencode(extension, pixels if dtype == "uint16" else pixels / np.float32(65536), plain)[1]
    return file.tobytes(), index


@pytest.mark.parametrize("dtype", ["uint16", pytest.param("float32", marks=pytest.mark.slow)])
def test_images_of_sixteen_bits_and_of_floats_lose_none(tmp_path: Path, loader: LoaderConfig, dtype: str) -> None:
    others: dict[str, Any] = {"Decode": {"dtype": dtype}, "Rescale": {"scale": 1 / 65535 if dtype == "uint16" else 0.5}}
    ops = [dataclasses.replace(op, **others.get(op.name, {})) for op in exact_ops() if not isinstance(op, ap.Map)]
    data = Made(23, functools.partial(deep, dtype))
    workload = ap.Workload(data=data, ops=ops, batch_size=BATCH, seed=7, converted=str(tmp_path))
    converted(workload, "array", tmp_path / "array")
    assert np.unique(expected_batches(workload, 1)[0][0]).size > 2000  # 8 bits have 256
    for settings in ({}, {"keep": "memory"}, SETTINGS["array, host, cached"]):
        assert_same(workload, loader, **settings)


@pytest.mark.parametrize("keep", [pytest.param("memory", marks=pytest.mark.slow), "memory:40%", "encoded"])
def test_samples_of_any_size_are_kept(photos: Path, loader: LoaderConfig, keep: str) -> None:
    workload = exact_workload(photos, ops=[ap.Decode(), ap.RandomResizedCrop(24, 32), ap.RandomFlip()])
    assert not planner.make_plan(workload).cut(1).is_fixed
    with unless_it_always_decodes():
        assert_same(workload, loader, range(3), keep=keep)


@pytest.mark.parametrize("keep", ["memory", "encoded"])
def test_a_kept_sample_stays_as_it_was_first_read_when_its_file_changes(
    photos: Path, tmp_path: Path, loader: LoaderConfig, keep: str
) -> None:
    folder = Path(shutil.copytree(photos, tmp_path / "photos"))
    with unless_it_always_decodes(), opened(exact_workload(folder), loader, keep=keep) as made:
        assert exact_digest(photos, 0) == digest(finished(made, made.batches(0)))
        for file in (*folder.glob("*.jpg"), *folder.glob("*.png")):
            file.write_bytes(b"no image any more")
        assert exact_digest(photos, 1) == digest(finished(made, made.batches(1)))


@pytest.mark.parametrize("finish", ["device", "host"])
def test_samples_of_a_batch_are_mixed_alike_by_every_loader(photos: Path, loader: LoaderConfig, finish: str) -> None:
    single = [ap.Decode(), ap.CenterCrop(36, 40), ap.RandomFlip(), ap.OneHot(23)]
    workload = exact_workload(photos, ops=[*single, ap.CutMix(0.7), ap.MixUp(0.4), ap.Rescale(1 / 255)])
    with opened(workload, loader, finish=finish) as made:
        for epoch in (0, 1):
            order = randomness.epoch_order(7, epoch, 23)
            mixed = []
            for number, batch in enumerate(expected_batches(exact_workload(photos, ops=single), epoch)):
                for stream, op in enumerate(workload.ops[4:6], start=4):
                    indices = order[number * BATCH : (number + 1) * BATCH]
                    batch = op.mix(batch, randomness.uniforms(7, epoch, indices, stream, op.draws))
                mixed.append(workload.ops[6].finish(batch, None, NUMPY))  # type: ignore[arg-type]  # it does not look at the kinds
            assert digest(mixed) == digest(finished(made, made.batches(epoch)))


@pytest.mark.parametrize("shuffle", [True, ap.Blocks(size=4, mixed=2)], ids=["shuffled", "in blocks"])
def test_a_state_taken_in_mid_epoch_resumes_with_the_next_batch_also_with_other_settings(
    photos: Path, loader: LoaderConfig, shuffle: bool | ap.Blocks
) -> None:
    workload = exact_workload(photos, shuffle=shuffle)
    first, second = (expected_batches(workload, epoch) for epoch in (2, 3))
    with opened(workload, loader, finish="host", keep="memory") as made:
        assert digest(first[:2]) == digest(copied(itertools.islice(made.epoch(2), 2)))
        state = made.state_dict()
    with opened(workload, loader, keep="memory") as made:
        made.load_state_dict(state)
        for number, wanted in ((state["epoch"], first[2:]), (3, second)):
            assert digest(wanted) == digest(copied(made.epoch(number)))
        assert made.state_dict() == {**state, "epoch": 4, "batch": 0}
    with opened(workload, loader, channels="first") as made:
        assert digest([(first[0][0].transpose(0, 3, 1, 2), first[0][1])]) == digest([next(made.epoch(2))])
    other = dataclasses.replace(workload, shuffle=ap.Blocks(size=4) if shuffle is True else True)
    with opened(other, loader) as made, pytest.raises(ap.ConfigError):
        made.load_state_dict(state)


SMALL: dict[str, list[Any]] = {
    "ops": [ap.Decode(), ap.Pad(14, 14, value=9), ap.RandomCrop(10, 12), *exact_ops()[3:6], *exact_ops()[-2:]],
    "float": [ap.RandomFlip(), ap.RandomBrightness(0.1), ap.Normalize(0.5, 0.25)],
    "none": [],
}


@pytest.mark.parametrize(
    ("chosen", "ops"),
    [
        ({}, "ops"),
        ({"finish": "host"}, "float"),
        pytest.param({"keep": "memory"}, "ops", marks=pytest.mark.slow),
        ({"finish": "host", "keep": "memory:40%"}, "ops"),
        ({}, "none"),
    ],
    ids=str,
)
def test_small_samples_that_are_batched_at_once_are_the_same(
    tmp_path: Path, loader: LoaderConfig, chosen: Mapping[str, Any], ops: str
) -> None:
    numbers = np.random.default_rng(3)
    images = numbers.integers(0, 256, (23, 12, 12, 3), np.uint8)
    np.save(tmp_path / "x.npy", (images / 255).astype(np.float32) if ops == "float" else images)
    data = ap.Arrays(tmp_path / "x.npy", numbers.integers(0, 5, 23))  # in a file, as most are
    assert_same(ap.Workload(data=data, ops=SMALL[ops], batch_size=BATCH, seed=7), loader, **chosen)


@pytest.mark.parametrize("is_image", [True, False])
def test_samples_without_targets_and_single_numbers_will_do(loader: LoaderConfig, is_image: bool) -> None:
    images = Made(10, lambda index: np.full((6, 5, 3), index, np.uint8))
    data, ops = (images, [ap.RandomCrop(4, 4), ap.Rescale(1.0)]) if is_image else (Made(10, float), [])
    assert_same(ap.Workload(data=data, ops=ops, batch_size=BATCH), loader)


# -------------------- damaged files


@pytest.fixture(scope="module")
def spoiled(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of photographs, of which each tenth is damaged."""
    folder = Path(shutil.copytree(photos, tmp_path_factory.mktemp("spoiled") / "photos"))
    good = [line.split(",")[0] for line in (folder / "labels.csv").read_text().splitlines()[1:]]
    rows = ["path,label"]
    for ten, (name, content) in enumerate(damaged_files().items()):
        (folder / name).write_bytes(content)
        names = [*good[:7], name, *good[7:9]]
        rows += [f'"{each}",{(10 * ten + number) % 23}' for number, each in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def maker(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have samples made by the native library, or by Python, here and in processes."""
    with by_python() if request.param == "reference" else contextlib.nullcontext():
        yield request.param


@pytest.mark.filterwarnings("ignore:.*are named by several rows")  # the table names each file more than once
@pytest.mark.parametrize(
    ("maker", "keep"),
    [
        *(("native", keep) for keep in ("none", "memory:40%", "array+memory")),
        *(pytest.param("native", keep, marks=pytest.mark.slow) for keep in ("encoded", "tfrecord")),
        ("reference", "none"),
    ],
    indirect=["maker"],
)
def test_damaged_files_are_replaced_by_the_same_samples_in_every_configuration(
    spoiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: LoaderConfig, maker: str, keep: str
) -> None:
    monkeypatch.setattr(kernel, "_TOLERATED_SHARE", 0.1)
    if not loader.skips_bad_samples:
        pytest.skip("it replaces none")
    settings = {"on_bad_sample": "skip", "bad_sample_log": str(tmp_path / "log"), "converted": str(tmp_path)}
    workload = exact_workload(spoiled, **settings)
    if (kept := Kept.of(keep)).converts:
        converted(workload, kept.form, tmp_path)
    with opened(workload, loader, keep=keep) as made:
        for epoch in (0, 1):
            assert digest(finished(made, made.batches(epoch))) == exact_digest(spoiled, epoch, on_bad_sample="skip")
        counts: Any = made  # every loader that replaces samples has them
        assert counts.bad_samples == dict.fromkeys((0, 1), len(damaged_files()))


@pytest.mark.filterwarnings("ignore:.*are named by several rows")  # the table names each file more than once
@pytest.mark.parametrize(
    ("maker", "keep"),
    [("native", "memory"), ("reference", "none"), pytest.param("native", "none", marks=pytest.mark.slow)],
    indirect=["maker"],
)
def test_each_damaged_file_is_named_in_every_configuration(
    spoiled: Path, loader: LoaderConfig, maker: str, keep: str
) -> None:
    if loader.keeps_on_device:
        pytest.skip("it names the first as it opens")
    workload = exact_workload(spoiled, shuffle=False)
    bad = ap.verify_files(workload).bad
    assert [Path(each.name.split(" (row ")[0]).name for each in bad] == [*damaged_files()]
    with opened(workload, loader, keep=keep) as made:
        for each in bad:
            with pytest.raises(ap.BadSampleError) as caught:
                next(made.batches(0, each.index // BATCH))
            assert each.name in str(caught.value)
            assert each.reason in str(caught.value)


def of_parts(pairs: Path) -> Made:
    """Two photographs of each thing and some numbers; its mask, its kind and its weight."""
    data = ap.ImagePairs(pairs / "images", pairs / "masks")

    def made(index: int) -> Any:
        image, mask = data.read(index)
        other = data.read((index + 5) % len(data))[0]
        x = {"numbers": np.array([index, -1], np.float32), "one": image, "other": other}
        return x, (mask, index % 3), np.float32(index / 4)

    return Made(len(data), made)


@pytest.mark.parametrize("chosen", [{}, {"finish": "host", "keep": "tfrecord+memory"}, {"keep": "array+memory"}])
def test_samples_of_several_parts_are_the_same_from_every_loader_and_storage(
    pairs: Path, palette: Any, tmp_path: Path, loader: LoaderConfig, chosen: Mapping[str, Any]
) -> None:
    ops = [ap.Decode(), ap.On("y.0", ap.MaskToClass(palette)), ap.Resize(32, 40), ap.RandomCrop(24, 24)]
    ops += [ap.RandomFlip(), ap.On("other", ap.RandomBrightness(0.2)), ap.On("y.1", ap.OneHot(3)), ap.Rescale(1 / 255)]
    workload = ap.Workload(data=of_parts(pairs), ops=ops, batch_size=BATCH, seed=5, converted=str(tmp_path))
    if (kept := Kept.of(chosen.get("keep", "none"))).converts:
        converted(workload, kept.form, tmp_path)
    assert_same(workload, loader, **chosen)
    with opened(workload, loader, **chosen) as made:
        assert made.spec.labels == ("x.one", "y.0", "x.numbers", "x.other", "y.1", "sample_weight")
        x, y, weight = next(made.epoch(2))
        assert (set(x), len(y), len(weight)) == ({"one", "other", "numbers"}, 2, BATCH)


def aliases() -> dict[str, Callable[[Any], Any]]:
    """Return ways to refer to an array of a batch."""
    import jax
    import tensorflow as tf

    return {
        "views": lambda x: x[1:][:, ::2],
        "memoryview": memoryview,
        "numpy_function": lambda x: tf.numpy_function(lambda: x, [], tf.uint8),
        "tensor": tf.convert_to_tensor,
        "jax": jax.device_put,
    }


def test_no_batch_is_overwritten_while_something_refers_to_it(photos: Path, loader: LoaderConfig) -> None:
    ways = list(aliases().items())
    workload = exact_workload(photos, ops=[ap.Decode(), ap.CenterCrop(32, 32), ap.RandomFlip()])
    with opened(workload, loader) as made:
        kept: list[tuple[str, Any, Any]] = []
        for epoch in range(10):
            for number, (x, _) in enumerate(made.batches(epoch)):
                if number % 3 == 0:  # slots of the others are used again
                    name, way = ways[len(kept) % len(ways)]
                    kept.append((name, np.asarray(way(x.copy())).copy(), way(x)))
                del x
        gc.collect()
        for name, value, still_there in kept:
            np.testing.assert_array_equal(value, np.asarray(still_there), err_msg=name)
