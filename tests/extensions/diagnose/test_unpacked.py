"""What reads of packed arrays unpack beside what they use, counted by line: the advice that is given ends it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import cv2
import h5py
import numpy as np
import PIL.Image
import pytest

from autopipe.extensions.diagnose.unpacked import Decoded, Unpacked, look_at_resizes
from tests.extensions.diagnose.conftest import only

COUNT, SIZE = 64, 256  # 16 samples are as many bytes as HDF5 holds of an array


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for owner in (h5py.Dataset, np.lib.npyio.NpzFile):
        monkeypatch.setattr(owner, "__getitem__", owner.__getitem__)  # it is given back
    monkeypatch.setattr(gzip.GzipFile, "close", gzip.GzipFile.close)
    monkeypatch.setattr(np, "load", np.load)
    found: list[str] = []
    for module in (h5py, np):
        Unpacked(lambda message, line: found.append(message)).look_at(module)
    return found


def images(path: Path, chunks: tuple[int, ...] | None) -> Any:
    with h5py.File(path, "w") as file:
        values = np.ones((COUNT, SIZE, SIZE), np.uint8)
        file.create_dataset("images", data=values, chunks=chunks, compression="gzip" if chunks else None)
    return h5py.File(path)["images"]


WHOLE, EACH, PLACES = (16, SIZE, SIZE), (1, SIZE, SIZE), [37 * at % COUNT for at in range(16)]


@pytest.mark.parametrize(
    ("chunks", "read", "advice"),
    [
        (WHOLE, lambda data: [data[at] for at in PLACES], EACH),
        (WHOLE, lambda data: [data[[at, at + 16, at + 32]] for at in range(16)], EACH),
        (WHOLE, lambda data: [data[np.arange(COUNT) == at] for at in PLACES], EACH),
        (WHOLE, lambda data: [data[4 * (5 * at % 16), 2:4, 2:4] for at in range(16)], (1, 2, 2)),
        (WHOLE, lambda data: [data[at] for at in range(COUNT)], None),  # samples in order
        (WHOLE, lambda data: [data[16 * at : 16 * at + 16] for at in (3, 1, 2, 0) * 4], None),
        (WHOLE, lambda data: [data[...] for _ in range(16)], None),
        ((4, SIZE, SIZE), lambda data: [data[5 * at % 16] for at in range(32)], None),  # four chunks, which HDF5 holds
        (None, lambda data: [data[at] for at in PLACES], None),  # not packed
    ],
)
def test_samples_that_are_picked_out_of_chunks_are_told_of_and_the_advice_ends_it(
    chunks: tuple[int, ...] | None,
    read: Callable[[Any], Any],
    advice: tuple[int, ...] | None,
    told: list[str],
    tmp_path: Path,
) -> None:
    read(images(tmp_path / "images.h5", chunks))
    only(told, f"chunks={advice}" if advice else None)
    if advice == EACH:
        assert "16 times" in told[0]
        read(images(tmp_path / "advised.h5", advice))
        assert len(told) == 1


def test_reads_that_cannot_be_counted_are_as_unwatched(told: list[str], tmp_path: Path) -> None:
    values = np.zeros(32, [("image", np.uint8, (4,)), ("label", np.int32)])
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("rows", data=values, chunks=(16,), compression="gzip")
        file["scalar"] = 3
        for _ in range(16):
            assert file["rows"]["label"].tolist() == [0] * 32
            assert file["rows"][0, "label"] == 0
            assert file["scalar"][()] == 3
    assert told == []


def test_an_npz_member_that_is_read_for_each_sample_is_told_of(told: list[str], tmp_path: Path) -> None:
    for at in range(16):  # files of one sample each
        np.savez_compressed(tmp_path / f"{at}.npz", image=np.zeros((2**20,), np.uint8))
        np.load(tmp_path / f"{at}.npz")["image"]
    np.savez_compressed(tmp_path / "images.npz", images=np.zeros((2**20,), np.uint8), labels=np.zeros(8))
    file = np.load(tmp_path / "images.npz")
    for at in range(16):
        file["images"][at], file["labels"][at % 8]
    only(told, "`images`, 1 MB")


@pytest.mark.parametrize(("files", "mode", "is_told"), [(2, None, True), (8, None, False), (2, "r", False)])
def test_npy_files_that_are_read_again_and_again_are_told_of(
    files: int, mode: Literal["r"] | None, is_told: bool, told: list[str], tmp_path: Path
) -> None:
    for at in range(files):
        np.save(tmp_path / f"{at}.npy", np.zeros((4, 2**18), np.uint8))
    for at in range(24):
        np.load(tmp_path / f"{at % files}.npy", mmap_mode=mode)[at % 4]
    assert ["2 files" in message and "mmap_mode" in message for message in told] == [True] * is_told


@pytest.mark.parametrize(
    ("each", "told_of"),  # all but a few, half as many, pairs, pairs that are ahead, all, a few
    [(3.4, True), (1.5, True), (2.0, False), (2.2, False), (1.0, False), (1.1, False)],
)
def test_images_that_are_decoded_and_not_trained_on_are_counted(
    each: float, told_of: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("imdecode", "imread"):
        monkeypatch.setattr(cv2, name, getattr(cv2, name))  # it is given back
    decoded, png = Decoded(), cv2.imencode(".png", np.zeros((2, 2), np.uint8))[1]
    decoded.look_at(cv2)
    for _ in range(round(each * 800)):
        cv2.imdecode(png, cv2.IMREAD_COLOR)
    only(decoded.dropped(800 - 8, 4), " images for each sample" if told_of else None)  # two batches are ahead


@pytest.mark.parametrize("module", [cv2, PIL.Image])
@pytest.mark.parametrize(
    ("classes", "by_nearest", "said"),
    [(5, False, "resizes an image of 5 values to "), (5, True, None), (2, False, None), (200, False, None)],
)
def test_masks_that_are_resized_with_interpolation_are_told_of(
    module: Any, classes: int, by_nearest: bool, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = cv2 if module is cv2 else module.Image
    monkeypatch.setattr(owner, "resize", owner.resize)  # it is given back
    told = list[str]()
    look_at_resizes(module, lambda message, line: told.append(message))
    mask = np.random.default_rng(0).integers(0, classes, (40, 40), np.uint8) * np.uint8(255 // classes)
    for _ in range(3):
        if module is cv2:
            cv2.resize(mask, (9, 9), interpolation=cv2.INTER_NEAREST if by_nearest else cv2.INTER_LINEAR)
            cv2.resize(np.dstack([mask] * 3), (9, 9))  # a photograph
        else:
            PIL.Image.fromarray(mask).resize((9, 9), 0 if by_nearest else None)
            PIL.Image.new("RGB", (9, 9)).resize((3, 3))
    only(told, said)


def test_slices_of_packed_volumes_that_are_unpacked_for_each_are_told_of(told: list[str], tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.nii.gz").write_bytes(gzip.compress(bytes(2**21), 1))
    for at in range(32):
        with gzip.open(tmp_path / f"{'abc'[at % 3]}.nii.gz") as file:
            assert file.read() == bytes(2**21)
    only(told, "has unpacked 3 files 8 times, `b.nii.gz` to 2 MB")
