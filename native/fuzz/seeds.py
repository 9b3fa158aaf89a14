"""Writes the small images and the record that `fuzz` changes: `python native/fuzz/seeds.py FOLDER`."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import cv2
import numpy as np

from autopipe.workload.data.records import serialise

_ENTRIES = (
    b"\x0f\x01\x03\0\x01\0\0\0\x01\0\0\0",
    b"\x12\x01\x03\0\x01\0\0\0\x06\0\0\0",
)
_EXIF = b"Exif\0\0II*\0\x08\0\0\0\x02\0" + b"".join(_ENTRIES) + bytes(4)
_FULL = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]


def image(height: int, width: int) -> np.ndarray:
    """Return an image with some detail, (height, width, 3) uint8."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 3 + y, y * 2, x * y // 7], axis=-1).astype(np.uint8)


def chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG, without its checksum."""
    return len(data).to_bytes(4, "big") + name + data + bytes(4)


def palette(height: int, width: int) -> bytes:
    """Return a PNG of two bits a pixel and four colours."""
    packed = image(height, (width + 3) // 4)[..., 0]
    rows = np.concatenate([np.zeros((height, 1), np.uint8), packed], axis=1)
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x02\x03\0\0\0"
    chunks = [(b"IHDR", header), (b"PLTE", bytes(range(12))), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def main(folder: Path) -> None:
    """Write the images to a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(folder / "plain.jpg"), image(60, 80))
    cv2.imwrite(str(folder / "progressive.jpg"), image(33, 47), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])
    cv2.imwrite(str(folder / "full.jpg"), image(64, 64), _FULL)
    cv2.imwrite(str(folder / "grey.jpg"), image(40, 40)[..., 0])
    cv2.imwrite(str(folder / "flat.jpg"), image(1, 90))
    cv2.imwrite(str(folder / "rgb.png"), image(40, 50))
    cv2.imwrite(str(folder / "grey.png"), image(40, 50)[..., 0])
    cv2.imwrite(str(folder / "alpha.png"), np.dstack([image(30, 41), image(30, 41)[..., :1]]))
    cv2.imwrite(str(folder / "bits.png"), image(40, 51)[..., 0], [cv2.IMWRITE_PNG_BILEVEL, 1])
    deep = image(40, 50).astype(np.uint16) * 257 + 3
    cv2.imwrite(str(folder / "deep.png"), deep)
    cv2.imwrite(str(folder / "deep-grey.png"), deep[..., 0])
    cv2.imwrite(str(folder / "deep-alpha.png"), np.dstack([deep, deep[..., :1]])[:30, :41])
    (folder / "palette.png").write_bytes(palette(40, 50))
    plain = (folder / "plain.jpg").read_bytes()
    (folder / "record").write_bytes(serialise({"image/encoded": plain, "image/class/label": 300}) + bytes(4))
    marker = b"\xff\xe1" + (len(_EXIF) + 2).to_bytes(2, "big") + _EXIF
    (folder / "turned.jpg").write_bytes(plain[:2] + marker + plain[2:])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
