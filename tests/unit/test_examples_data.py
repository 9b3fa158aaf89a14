"""The demo sets of the examples: real files of the stated shape, the same ones each time, without a network.

Not tested here: that the examples train, which is an integration test.
"""

from __future__ import annotations

import hashlib
import runpy
import socket
import tarfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a demo set must not be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def maker(example: str) -> Any:
    """Return the function of an example's make_demo.py that makes its demo set."""
    return runpy.run_path(str(EXAMPLES / example / "make_demo.py"))["make"]


def made(example: str, out: Path, **size: int) -> int:
    """Make a demo set, and another one elsewhere with the same bytes; return how many samples it has."""
    make, other = maker(example), out.with_name(f"other_{out.name}")
    count: int = make(out, **size)
    make(other, **size)
    assert digest(out) == digest(other)
    return count


def digest(path: Path) -> str:
    """Return a digest over the names and bytes of all files below `path`, or of `path` itself."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) or [path]
    lines = [f"{file.relative_to(path)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def read_rgb(path: Path) -> NDArray[Any]:
    picture = cv2.imread(str(path))
    assert picture is not None
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))


def test_photos_are_jpeg_files_of_about_500x375_in_eight_folders_and_replace_older_ones(tmp_path: Path) -> None:
    maker("photos")(tmp_path / "demo", per_class=2)
    assert made("photos", tmp_path / "demo", per_class=1) == 8
    files = sorted((tmp_path / "demo").glob("*/*.jpg"))
    assert len({file.parent.name for file in files}) == len(files) == 8
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["demo", "other_demo"]
    for file in files:
        height, width, channels = read_rgb(file).shape
        assert (330 <= height <= 420, 440 <= width <= 560, channels) == (True, True, 3)


def test_segmentation_masks_hold_only_colours_of_the_palette(tmp_path: Path) -> None:
    assert made("segmentation", tmp_path / "demo", count=1) == 1
    palette = np.loadtxt(tmp_path / "demo" / "palette.csv", delimiter=",", dtype=np.uint8)
    assert palette.shape == (32, 3)
    known = {tuple(colour) for colour in palette.tolist()}
    assert len(known) == 32
    image, mask = (read_rgb(tmp_path / "demo" / part / "0000.png") for part in ("images", "masks"))
    assert image.shape == mask.shape == (720, 960, 3)
    used = {tuple(colour) for colour in np.unique(mask.reshape(-1, 3), axis=0).tolist()}
    assert used <= known
    assert len(used) > 1


def test_scenes_have_six_bands_and_a_class_for_each_pixel(tmp_path: Path) -> None:
    assert made("scenes", tmp_path / "demo", count=1) == 1
    raster = pytest.importorskip("autopipe.extensions.raster.windows")
    image, mask = raster.Windows(
        tmp_path / "demo" / "scenes", [tmp_path / "demo" / "classes" / "00_classes.tif"], size=1024
    ).read(0)
    assert (image.shape, image.dtype, mask.shape, mask.dtype) == ((1024, 1024, 6), np.uint16, (1024, 1024), np.uint8)
    assert np.unique(mask).tolist() == [0, 1, 2, 3, 4]
    assert not image[0, 0].any()


def test_custom_source_archive_holds_jpeg_members_by_class(tmp_path: Path) -> None:
    assert made("custom_source", tmp_path / "photos.tar", per_class=2) == 8
    with tarfile.open(tmp_path / "photos.tar", "r:") as archive:
        names = archive.getnames()
        first = archive.extractfile(names[0])
        assert first is not None
        picture = cv2.imdecode(np.frombuffer(first.read(), np.uint8), cv2.IMREAD_COLOR)
    assert len({Path(name).parent.name for name in names}) == 4
    assert picture is not None
    assert picture.shape == (300, 300, 3)
