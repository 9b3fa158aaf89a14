"""Windows of 256 from scenes of 6 bands, uint16, slices of volumes, and PNG files of 16 bits, beside what people write.

    python benchmarks/windows.py

Scenes of 2048x2048 are GeoTIFFs with tiles of 256 packed by deflate. Rows take turns; a round of each is an epoch in
batches of 8, without a model, after one that is not counted. A figure is the median of the rounds; a ratio the median
of the ratios within rounds. People's rows read some windows of the same grid, or at random positions of their own: by
rasterio in a PyDataset of Keras with 2 workers; by tf.data, which calls Python for each; and by tifffile's `asarray`,
which unpacks the whole scene. `--only whole`: scenes without tiles, of which each window unpacks all. Volumes are
.nii.gz of 64 slices of 256x256, int16; people's rows unpack one for each slice, by nibabel if it is installed, else by
gzip and NumPy. If TorchGeo and MONAI are installed, they read the same in the form of their tutorials: scenes with
coordinates by a sampler and a DataLoader of 2 workers that stay; volumes by `GridPatchDataset`, each read once, and a
`ShuffleBuffer` of four. `--only deep`: grey PNG files of 16 bits with masks, 640x512, halved, cropped and flipped;
beside it OpenCV in a pool of two threads, which make the next batches while one is taken. The load is printed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import gzip
import importlib.util
import os
import statistics
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import autopipe as ap

SIDE, SIZE, BATCH, BANDS = 2048, 256, 8, 6
PER_SCENE = (SIDE // SIZE) ** 2  # windows at random, as many as in the grid
DEPTH = 64  # slices of a volume
VOLUMES, UNLIKE = 84, 12  # together 672 MiB, more than a process keeps of what it has unpacked; the rest are links
DEEP = (256, 320, 224)  # of images of 16 bits: height and width, and the side of a crop
SOME, FEW = 128, 16  # windows of an epoch of people's rows, and of those that unpack whole scenes
Epoch = Callable[[int], Iterator[Any]]


def scenes(folder: Path, count: int, *, whole: bool = False) -> list[str]:
    """Write scenes whose bands are as smooth and as noisy as reflectances are: deflate halves them. Each is packed as a
    `whole`, or in tiles.
    """
    import tifffile

    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for number in range(count):
        smooth = np.cumsum(np.cumsum(rng.normal(0, 3, (SIDE, SIDE, BANDS)), 0), 1)
        low, high = smooth.min(), smooth.max()
        pixels = (2000 + (smooth - low) / (high - low) * 3000 + rng.normal(0, 20, smooth.shape)).astype(np.uint16)
        tifffile.imwrite(
            folder / f"{number}.tif",
            pixels,
            photometric="minisblack",
            planarconfig="contig",
            compression="zlib",
            predictor=True,
            metadata=None,
            **({"rowsperstrip": SIDE} if whole else {"tile": (256, 256)}),
        )
    return sorted(map(str, folder.glob("*.tif")))


def volumes(folder: Path, count: int) -> list[str]:
    """Write packed volumes, smooth and noisy as scans are, beside files of a NIfTI header and the voxels."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for number in range(count):
        if number >= UNLIKE:
            os.link(folder / f"{number % UNLIKE}.nii.gz", folder / f"{number}.nii.gz")
            continue
        smooth = np.cumsum(np.cumsum(rng.normal(0, 3, (DEPTH, SIZE, SIZE)), 1), 2)
        voxels = (2000 + smooth / np.abs(smooth).max() * 1500 + rng.normal(0, 20, smooth.shape)).astype("<i2")
        header = bytearray(352)
        struct.pack_into("<i", header, 0, 348)
        struct.pack_into("<8h", header, 40, 3, SIZE, SIZE, DEPTH, 1, 1, 1, 1)
        struct.pack_into("<2h", header, 70, 4, 16)
        struct.pack_into("<8f", header, 76, *[1.0] * 8)
        struct.pack_into("<3f", header, 108, 352, 1, 0)
        header[344:348] = b"n+1\0"
        (folder / f"{number}.nii.gz").write_bytes(gzip.compress(bytes(header) + voxels.tobytes(), 6))
    return sorted(map(str, folder.glob("*.nii.gz")))


def deep_images(folder: Path, count: int) -> None:
    """Write grey images of 16 bits, as smooth and as noisy as those of a thermal camera, and masks of 5 classes."""
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        smooth = np.cumsum(np.cumsum(rng.normal(0, 3, (512, 640)), 0), 1)
        share = (smooth - smooth.min()) / np.ptp(smooth)
        pixels = (20_000 + 8000 * share + rng.normal(0, 20, share.shape)).astype(np.uint16)
        for name, array in (("images", pixels), ("masks", (share * 4.99).astype(np.uint8))):
            cv2.imwrite(str(folder / name / f"{number:04}.png"), array, [cv2.IMWRITE_PNG_COMPRESSION, 6])


def slices(files: list[str], epoch: int) -> list[tuple[str, int]]:
    found = [(file, number) for file in files for number in range(DEPTH)]
    return [found[number] for number in np.random.default_rng(epoch).permutation(len(found))]


def places(files: list[str], epoch: int, *, random: bool) -> list[tuple[str, int, int]]:
    """Return the windows of an epoch in a random order: some of each scene, or its grid."""
    rng = np.random.default_rng(epoch)
    grid = [(y, x) for y in range(0, SIDE, SIZE) for x in range(0, SIDE, SIZE)]
    found = [
        (file, *map(int, place))
        for file in files
        for place in (rng.integers(0, SIDE - SIZE + 1, (PER_SCENE, 2)) if random else grid)
    ]
    return [found[number] for number in rng.permutation(len(found))]


# -------------------- what people write


def by_rasterio(file: str, top: int, left: int) -> NDArray[Any]:
    import rasterio
    from rasterio.windows import Window

    with rasterio.open(file) as scene:
        return np.moveaxis(scene.read(window=Window(left, top, SIZE, SIZE)), 0, 2)


def by_tifffile(file: str, top: int, left: int) -> NDArray[Any]:
    import tifffile

    with tifffile.TiffFile(file) as scene:
        return scene.pages[0].asarray()[top : top + SIZE, left : left + SIZE]


def by_nibabel(file: str, number: int) -> NDArray[Any]:
    import nibabel

    return np.asanyarray(nibabel.load(file).dataobj)[:, :, number, None]


def by_gzip(file: str, number: int) -> NDArray[Any]:
    with gzip.open(file) as content:
        voxels = np.frombuffer(content.read(), "<i2", offset=352)
    return voxels.reshape(DEPTH, SIZE, SIZE)[number, :, :, None]


def finished(window: NDArray[Any]) -> NDArray[np.float32]:
    return (window.astype(np.float32) - 3000) / 1000


def py_dataset(wanted: Callable[[int], list[Any]], read: Any) -> Epoch:
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Dataset(keras.utils.PyDataset):
        def __init__(self, rows: list[Any]) -> None:
            super().__init__(workers=2)
            self.rows = rows

        def __len__(self) -> int:
            return len(self.rows) // BATCH

        def __getitem__(self, number: int) -> NDArray[Any]:
            return np.stack([finished(read(*row)) for row in self.rows[number * BATCH : (number + 1) * BATCH]])

    def epoch(number: int) -> Iterator[Any]:
        adapter = PyDatasetAdapter(Dataset(wanted(number)), shuffle=False)
        adapter.on_epoch_begin()
        yield from adapter.get_numpy_iterator()
        adapter.on_epoch_end()

    return epoch


def tf_data(wanted: Callable[[int], list[Any]], read: Any) -> Epoch:
    import tensorflow as tf

    def load(file: Any, top: Any, left: Any) -> Any:
        called = lambda file, top, left: finished(read(file.decode(), int(top), int(left)))  # noqa: E731
        return tf.ensure_shape(tf.numpy_function(called, (file, top, left), tf.float32), (SIZE, SIZE, BANDS))

    def epoch(number: int) -> Iterator[Any]:
        columns = tuple(map(list, zip(*wanted(number), strict=True)))
        made = tf.data.Dataset.from_tensor_slices(columns).map(load, tf.data.AUTOTUNE)
        return iter(made.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE).as_numpy_iterator())

    return epoch


def opencv_loop(folder: Path) -> Epoch:
    """A loop of OpenCV in a pool of two threads, one image a task, which is three batches ahead of its consumer."""
    images = sorted((folder / "images").iterdir())
    height, width, side = DEEP

    def load(number: int, seed: list[int]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        rng = np.random.default_rng(seed)
        image = cv2.imread(str(images[number]), cv2.IMREAD_UNCHANGED)
        mask = cv2.imread(str(folder / "masks" / images[number].name), cv2.IMREAD_UNCHANGED)
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        mask = cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST)
        top, left = int(rng.integers(height - side + 1)), int(rng.integers(width - side + 1))
        image, mask = (each[top : top + side, left : left + side] for each in (image, mask))
        if rng.random() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        return image[..., None].astype(np.float32) * np.float32(1 / 65535), mask

    def epoch(number: int) -> Iterator[Any]:
        order = np.random.default_rng(number).permutation(len(images)).tolist()
        batches, ahead = iter([order[at : at + BATCH] for at in range(0, len(order), BATCH)]), collections.deque[Any]()
        threads = cv2.getNumThreads()
        cv2.setNumThreads(1)
        with ThreadPoolExecutor(2) as pool:
            while True:
                while len(ahead) < 4 and (batch := next(batches, None)) is not None:
                    ahead.append([pool.submit(load, index, [number, index]) for index in batch])
                if not ahead:
                    break
                x, y = zip(*[each.result() for each in ahead.popleft()], strict=True)
                yield np.stack(x), np.stack(y)
        cv2.setNumThreads(threads)

    return epoch


def by_torchgeo(files: list[str], *, random: bool) -> Epoch:
    """Give the scenes places side by side on a map, which TorchGeo asks for, and read windows of them."""
    import rasterio
    from torch.utils.data import DataLoader
    from torchgeo.datasets import RasterDataset, stack_samples
    from torchgeo.samplers import GridGeoSampler, RandomGeoSampler, Units

    for number, file in enumerate(files):
        with rasterio.open(file, "r+") as scene:
            scene.crs = "EPSG:32632"
            scene.transform = rasterio.Affine(10, 0, 500_000 + 20 * SIDE * number, 0, -10, 5_000_000)

    data = RasterDataset(files)
    if random:
        sampler = RandomGeoSampler(data, SIZE, length=SOME, units=Units.PIXELS)
    else:
        sampler = GridGeoSampler(data, SIZE, stride=SIZE, units=Units.PIXELS)
    loader = DataLoader(
        data, BATCH, sampler=sampler, num_workers=2, collate_fn=stack_samples, persistent_workers=True, drop_last=True
    )

    def epoch(number: int) -> Iterator[Any]:
        for batch in loader:
            yield (batch["image"] - 3000) / 1000

    return epoch


def by_monai(files: list[str]) -> Epoch:
    from monai.data import DataLoader, Dataset, GridPatchDataset, PatchIter, ShuffleBuffer
    from monai.transforms import Compose, EnsureChannelFirst, LoadImage, NormalizeIntensity

    load = Compose([LoadImage(reader="NibabelReader", image_only=True), EnsureChannelFirst(channel_dim="no_channel")])
    normalise = NormalizeIntensity(subtrahend=3000, divisor=1000)
    patches = GridPatchDataset(Dataset(files, load), PatchIter((SIZE, SIZE, 1)), normalise, with_coordinates=False)
    buffer = ShuffleBuffer(patches, buffer_size=4 * DEPTH)
    loader = DataLoader(buffer, batch_size=BATCH, num_workers=2, persistent_workers=True)
    return lambda number: iter(loader)


# -------------------- rows


def autopipe(
    stack: contextlib.ExitStack,
    files: list[str],
    keep: str = "none",
    random: int | None = None,
    *,
    size: Any = SIZE,
    shuffle: Any = True,
) -> Epoch:
    data = ap.Windows(files, size=size, random=random)
    workload = ap.Workload(
        data=data,
        ops=[ap.Normalize(3000.0, 1000.0)],
        batch_size=BATCH,
        drop_remainder=True,
        shuffle=shuffle,
        converted=str(Path(files[0]).parent.with_name("converted")),
    )
    if keep == "array":
        ap.convert(workload, to="array")
    config = ap.PipelineConfig(loader=ap.Threads(workers=2), keep=keep, finish="host")
    return stack.enter_context(ap.make_loader(workload, config)).epoch


def rate(epoch: Epoch, number: int) -> float:
    """Return windows a second over an epoch."""
    start, count = time.perf_counter(), 0
    for batch in epoch(number):
        count += len(batch[0] if isinstance(batch, tuple) else batch)
    return count / (time.perf_counter() - start)


def compare(title: str, rows: dict[str, Epoch], rounds: int) -> None:
    for epoch in rows.values():
        rate(epoch, 0)
    found: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(1, rounds + 1):
        for name, epoch in rows.items():
            found[name].append(rate(epoch, number))
    first = next(iter(found.values()))
    print(f"\n{title}, load {os.getloadavg()[0]:.1f}")
    for name, rates in found.items():
        ratios = sorted(ours / theirs for ours, theirs in zip(first, rates, strict=True))
        said = f"the first is {statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {name:44} {statistics.median(rates):8.1f} a second   {said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenes", type=int, default=6)
    parser.add_argument("--only", choices=("grid", "random", "whole", "volumes", "deep"))
    arguments = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    for module in ("torchgeo.datasets", "monai.data"):
        if importlib.util.find_spec(module.split(".")[0]):
            importlib.import_module(module)  # before TensorFlow: PyTorch after it ends the process
    warnings.filterwarnings("ignore", message="Dataset has no geotransform")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("grid", "random", "whole"):
            if arguments.only in (None, kind):
                files = scenes(Path(folder) / kind / "scenes", arguments.scenes, whole=kind == "whole")
                one_case(files, kind, rounds=arguments.rounds)
        if arguments.only in (None, "volumes"):
            of_volumes(volumes(Path(folder) / "volumes", VOLUMES), arguments.rounds)
        if arguments.only in (None, "deep"):
            deep_images(Path(folder) / "deep", 256)
            of_deep_images(Path(folder) / "deep", arguments.rounds)


def of_deep_images(folder: Path, rounds: int) -> None:
    height, width, side = DEEP
    workload = ap.Workload(
        data=ap.ImagePairs(folder / "images", folder / "masks"),
        ops=[
            ap.Decode(1, dtype="uint16"),
            ap.Resize(height, width),
            ap.RandomCrop(side, side),
            ap.RandomFlip(),
            ap.Rescale(1 / 65535),
        ],
        batch_size=BATCH,
    )
    config = ap.PipelineConfig(loader=ap.Threads(workers=2), finish="host")
    with ap.make_loader(workload, config) as loader:
        rows = {
            "autopipe, Threads(2)": loader.epoch,
            "OpenCV in a pool of 2 threads": opencv_loop(folder),
        }
        compare("PNG files of 16 bits with masks, 640x512", rows, rounds)


def of_volumes(files: list[str], rounds: int) -> None:
    name, read = ("nibabel", by_nibabel) if importlib.util.find_spec("nibabel") else ("gzip and NumPy", by_gzip)
    with contextlib.ExitStack() as stack:
        size, blocks = (1, None, None), ap.Blocks(mixed=4)
        rows = {
            "autopipe, Threads(2), Blocks(mixed=4)": autopipe(stack, files, size=size, shuffle=blocks),
            "autopipe, Threads(2), keep=memory": autopipe(stack, files, "memory", size=size),
            f"PyDataset, {name}, 2 threads": py_dataset(lambda epoch: slices(files, epoch)[:FEW], read),
        }
        if importlib.util.find_spec("monai"):
            rows["MONAI, GridPatchDataset, 2 workers"] = by_monai(files[:FEW])
        compare(f"slices of {len(files)} packed volumes", rows, rounds)


def one_case(files: list[str], kind: str, *, rounds: int) -> None:
    random = kind != "grid"
    with contextlib.ExitStack() as stack:
        count = PER_SCENE if random else None
        rows = {
            f"autopipe, Threads(2), keep={keep}": autopipe(stack, files, keep, count) for keep in ("array", "memory")
        }
        if kind != "whole":
            rows["autopipe, Threads(2)"] = autopipe(stack, files, random=count)
        all_of = functools.partial(places, files, random=random)
        some_of = lambda epoch: all_of(epoch)[: FEW if kind == "whole" else SOME]  # noqa: E731
        few_of = lambda epoch: all_of(epoch)[:FEW]  # noqa: E731
        rows |= {
            "PyDataset, rasterio, 2 threads": py_dataset(some_of, by_rasterio),
            "tf.data, numpy_function, rasterio": tf_data(some_of, by_rasterio),
            "PyDataset, tifffile's asarray, 2 threads": py_dataset(few_of, by_tifffile),
            "tf.data, numpy_function, tifffile's asarray": tf_data(few_of, by_tifffile),
        }
        if importlib.util.find_spec("torchgeo"):
            rows["TorchGeo, 2 workers"] = by_torchgeo(files, random=random)
        if kind == "whole":  # each window unpacks all of its scene
            rows = {name: row for name, row in rows.items() if "tf.data" not in name}
        titles = {"grid": "grid", "random": "random positions", "whole": "random positions, scenes packed as a whole"}
        compare(f"{titles[kind]}, {len(files)} scenes", rows, rounds)


if __name__ == "__main__":
    main()
