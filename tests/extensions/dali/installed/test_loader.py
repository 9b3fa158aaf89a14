"""What is peculiar to `Dali`: which files DALI decodes and how near it comes, what goes wrong, and how it ends.

Not tested: decoding on a card.
"""

import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import cv2
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.extensions.dali.filler import DaliDecoder
from autopipe.extensions.dali.loader import Dali
from autopipe.measure import verify
from autopipe.measure.outcome import Report
from autopipe.reports import tables
from autopipe.workload.ops.decode import decode
from autopipe.workload.ops.sizes import resized
from autopipe.workload.sample import Batch, FieldKind
from tests.fakes import commands
from tests.fakes.commands import python
from tests.fakes.damage import corrupt, empty, truncate

DALI = Dali(num_threads=2)
LEVELS = 1  # of 256: by how much DALI's bilinear resize was seen to differ from OpenCV's


def workload(folder: Path, **changes: Any) -> ap.Workload:
    ops = [ap.Decode(strict=False), ap.Resize(16, 16), ap.RandomCrop(8, 8)]
    return ap.Workload(
        data=ap.Table(folder / "labels.csv"), **{"ops": ops, "batch_size": 4, "shuffle": False, **changes}
    )


def opened(work: ap.Workload, loader: Dali = DALI, **settings: Any) -> ap.Loader:
    return ap.make_loader(work, ap.PipelineConfig(loader=loader, **settings))


def copies(batches: Iterator[Batch]) -> list[NDArray[Any]]:
    return [x.copy() for x, _ in batches]


@pytest.fixture
def damaged(photos: Path, tmp_path: Path) -> Path:
    """A copy of the photos to spoil."""
    return Path(shutil.copytree(photos, tmp_path / "photos"))


@pytest.fixture
def photographs() -> list[bytes]:
    """JPEG files of photographic size with detail and noise, of each subsampling, and a grey one."""
    rng = np.random.default_rng(1)
    found = []
    for number, sampling in enumerate(("444", "422", "420", "440", "grey")):
        coarse = rng.integers(0, 256, (20 + number, 30, 3), np.uint8)
        image = cv2.resize(coarse, (497 + number, 371), interpolation=cv2.INTER_CUBIC)
        image = cv2.add(image, rng.integers(0, 24, image.shape, np.uint8))
        flags = [cv2.IMWRITE_JPEG_QUALITY, 90]
        if sampling == "grey":
            image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        else:
            flags += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{sampling}")]
        found.append(cv2.imencode(".jpg", image, flags)[1].tobytes())
    return found


@pytest.mark.parametrize(("size", "levels"), [(None, 0), ((224, 224), LEVELS), ((64, 512), LEVELS)])
def test_its_pixels_are_those_of_decode_and_near_those_of_resize(
    photographs: list[bytes], size: tuple[int, int] | None, levels: int
) -> None:
    decoder = DaliDecoder(DALI, 8, size)
    decoder.begin([np.frombuffer(each, np.uint8) for each in photographs])
    images = decoder.take()
    assert len(images) == len(photographs)
    for data, found in zip(photographs, images, strict=True):
        whole = decode(data, 3)
        expected = whole if size is None else resized(whole, size, "bilinear")
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert int(np.abs(expected.astype(int) - found).max()) <= levels


@pytest.mark.parametrize(("keep", "again"), [("none", 18), ("memory", 0)])
def test_it_decodes_each_jpeg_once_an_epoch_and_nothing_else(
    photos: Path, monkeypatch: pytest.MonkeyPatch, keep: str, again: int
) -> None:
    take, decoded = DaliDecoder.take, []

    def counted(decoder: DaliDecoder) -> list[NDArray[np.uint8]]:
        images = take(decoder)
        decoded.append(len(images))
        return images

    monkeypatch.setattr(DaliDecoder, "take", counted)
    with opened(workload(photos), keep=keep) as made:
        for images in (18, again):  # of 23 files
            decoded.clear()
            copies(made.batches(0, last=True))
            assert sum(decoded) == images


def test_verify_finds_its_batches_to_be_the_same_within_a_level(photos: Path) -> None:
    configs = [ap.PipelineConfig(loader=ap.Threads(workers=2)), ap.PipelineConfig(loader=DALI)]
    found = verify.verify(workload(photos), configs, samples=23, report=Mock(spec=Report))
    assert [(each.message, each.samples) for each in found.agreements] == [(None, 23), (None, 23)]
    assert tables.agrees(found)


# ---------------------------------------------------------------- what goes wrong


def _no_scan(path: Path) -> None:
    """Leave a header of which libjpeg-turbo reads the size, and nothing that could be decoded."""
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\xff\xda")] + b"\xff\xd9")


@pytest.mark.parametrize("keep", ["none", "memory"])
@pytest.mark.parametrize("spoil", [truncate, empty, corrupt, _no_scan, Path.unlink])
def test_a_bad_file_is_named_in_its_batchs_place(damaged: Path, spoil: Callable[[Path], None], keep: str) -> None:
    work = workload(damaged)
    with opened(workload(damaged)) as good:
        expected = copies(good.batches(0))
    with opened(work, keep=keep) as made:
        spoil(damaged / "9.jpg")
        batches = made.batches(0)
        found = [next(batches)[0].copy() for _ in range(2)]
        with pytest.raises(ap.BadSampleError, match=r"sample 9\b.*9\.jpg"):
            next(batches)
        found += copies(made.batches(0, 3))  # what follows is made as if nothing had been
    np.testing.assert_array_equal(np.concatenate(expected[:2] + expected[3:]), np.concatenate(found))


def test_a_batch_that_dali_cannot_decode_is_made_without_it(
    photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(workload(photos)) as made:
        expected = copies(made.batches(0))
    fed, batch = DaliDecoder.begin, 0

    def spoilt(decoder: DaliDecoder, files: list[NDArray[np.uint8]]) -> None:
        nonlocal batch
        batch += 1
        fed(decoder, [np.zeros(50, np.uint8), *files[1:]] if batch == 3 else files)

    monkeypatch.setattr(DaliDecoder, "begin", spoilt)
    with (
        caplog.at_level(logging.WARNING),
        opened(workload(photos), Dali(num_threads=2, prefetch_queue_depth=4)) as made,
    ):
        found = copies(made.batches(0))
    assert [record.message for record in caplog.records if "made without it" in record.message]
    for want, have in zip(expected, found, strict=True):
        assert int(np.abs(want.astype(int) - have).max()) <= LEVELS
    assert [number for number, (a, b) in enumerate(zip(expected, found, strict=True)) if (a != b).any()] in ([], [2])


class Raises:
    """A source whose read of one sample raises, and of which all others are JPEG files."""

    x_kind, y_kind = FieldKind.ENCODED, FieldKind.LABEL

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self._file = cv2.imencode(".jpg", np.zeros((20, 20, 3), np.uint8))[1].tobytes()

    def __len__(self) -> int:
        return 23

    def read(self, index: int) -> tuple[bytes, int]:
        if index == 9:
            raise self._error
        return self._file, index


@pytest.mark.parametrize("error", [OSError("the disk is gone"), SystemExit(3), StopIteration(3)])
def test_what_a_read_raises_comes_in_its_batchs_place(error: BaseException) -> None:
    ops = [ap.Decode(strict=False), ap.Resize(16, 16)]
    work = ap.Workload(data=Raises(error), ops=ops, batch_size=4, shuffle=False)
    with opened(work, Dali(num_threads=2, prefetch_queue_depth=4)) as made:
        batches = made.batches(0)
        assert [next(batches)[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(ap.DataError, match=rf"sample 9\b.*{type(error).__name__}"):
            next(batches)
        assert next(made.batches(0, 3))[1].tolist() == [12, 13, 14, 15]


# ---------------------------------------------------------------- how it ends


def test_close_ends_its_threads_and_dalis(photos: Path) -> None:
    opened(workload(photos)).close()  # what DALI keeps for the next pipeline, and OpenCV, is there now
    before = psutil.Process().num_threads()
    made = opened(workload(photos), Dali(num_threads=5))
    next(made.batches(0))
    assert psutil.Process().num_threads() > before
    made.close()
    made.close()
    assert psutil.Process().num_threads() <= before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("autopipe-")]


# DALI itself hangs where a forked child ends by itself and not as those of multiprocessing do.
ENDS = {
    "never closed": ("pass", 0),
    "exception": ("raise ValueError('in the consumer')", 1),
    "exit": ("sys.exit(3)", 3),
    "dropped": ("del batches, loader", 0),
    "fork": ("child = os.fork() or os._exit(0); os.waitpid(child, 0); print(sum(len(y) for _, y in batches))", 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_process_ends_however_the_loader_does(photos: Path, tmp_path: Path, end: str) -> None:
    statement, status = ENDS[end]
    script = tmp_path / "consumer.py"
    script.write_text(commands.script(photos, DALI, statement, decode="ap.Decode(strict=False)"))
    done = python("-W", "ignore", script, backend="tensorflow")
    assert (done.returncode, done.stdout.splitlines()) == (status, ["", *(["19"] if end == "fork" else [])]), (
        done.stderr
    )
    assert done.stderr.count("Traceback") == (1 if end == "exception" else 0), done.stderr


@pytest.mark.slow
def test_epoch_after_epoch_memory_and_threads_stay_as_they_were(photos: Path) -> None:
    process = psutil.Process()
    with opened(workload(photos, batch_size=12)) as made:

        def after(epochs: range) -> tuple[int, int, int]:
            for epoch in epochs:
                for _ in made.batches(epoch):
                    pass
            return process.memory_info().rss, process.num_fds(), process.num_threads()

        early, late = after(range(100)), after(range(100, 300))
    assert late[0] - early[0] < 12 << 20
    assert late[1] <= early[1] + 2
    assert late[2] <= early[2]
