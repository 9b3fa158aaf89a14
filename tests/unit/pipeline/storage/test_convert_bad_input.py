"""What befalls real files while they are converted: an error names the file, and the finished part is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from autopipe.errors import AutopipeError, BadSampleError, StorageError
from autopipe.pipeline.assembly import conversion_of
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.storage.layout import open_set
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.workload import Workload

ARRAY = STORAGES["array"]
COUNT = 64  # 8 shards of 8


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        path = folder / f"class_{number // 32}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), rng.integers(0, 256, (20, 24, 3), np.uint8))
    return folder


def conversion(photos: Path) -> Conversion:
    workload = Workload(data=ImageFolder(photos), ops=[Decode(), Resize(8, 8)], batch_size=2)
    return conversion_of(workload, make_plan(workload), ARRAY)


def at(samples: int, act: Callable[[], object]) -> Callable[[int, int], None]:
    """Act once so many samples are done."""

    def on_progress(done: int, of: int) -> None:
        if done == samples:
            act()

    return on_progress


def last(photos: Path) -> Path:
    return photos / "class_1" / f"{COUNT - 1}.jpg"


def halve(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    "befalls", [Path.unlink, halve, lambda path: path.write_bytes(b"")], ids=["vanished", "cut short", "emptied"]
)
def test_a_file_that_is_spoilt_meanwhile_is_named(
    photos: Path, tmp_path: Path, befalls: Callable[[Path], None]
) -> None:
    made = conversion(photos)
    with pytest.raises(BadSampleError, match=r"sample 63\b.*63\.jpg"):
        convert(made, ARRAY, tmp_path / "set", on_progress=at(0, lambda: befalls(last(photos))))
    assert len(list((tmp_path / "set").glob("shard-*.json"))) == 7
    assert not list((tmp_path / "set").glob("*.part"))
    with pytest.raises(StorageError, match="begun and did not end"):
        open_set(tmp_path / "set", made, ARRAY)


def test_a_file_that_grew_after_it_was_read_makes_no_set(photos: Path, tmp_path: Path) -> None:
    made = conversion(photos)
    first = photos / "class_0" / "00.jpg"

    def grow() -> None:
        first.write_bytes(first.read_bytes() + b"more")

    with pytest.raises(StorageError, match=r"was made from other data \(sizes"):
        convert(made, ARRAY, tmp_path / "set", on_progress=at(32, grow))
    with pytest.raises(AutopipeError):
        open_set(tmp_path / "set", made, ARRAY)
