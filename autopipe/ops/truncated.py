"""Whether the file of an image is cut short, told by its last bytes."""

from __future__ import annotations

import contextlib
import struct

from autopipe.errors import BadSampleError
from autopipe.ops.header import jpeg_segments


def require_end(data: bytes) -> None:
    """Refuse a file that `is_truncated`.

    Raises:
        BadSampleError: with its length.
    """
    if is_truncated(data):
        raise BadSampleError(f"the image file is truncated: its end marker is missing after {len(data)} bytes.")


def is_truncated(data: bytes) -> bool:
    """Tell whether a JPEG or PNG lacks its end: OpenCV would fill the missing part with grey and say nothing."""
    if data[:2] == b"\xff\xd8":
        return data[-2:] != b"\xff\xd9" and not _has_end_after_scan(bytes(data))
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return data[-8:-4] != b"IEND" and bytes(data).rfind(b"IEND") < 0
    return False


def _has_end_after_scan(data: bytes) -> bool:
    """Look for the end marker behind the first scan, so that the one of an embedded thumbnail does not count."""
    with contextlib.suppress(IndexError, struct.error):
        for marker, at in jpeg_segments(data):
            if marker == 0xDA:  # start of scan: what follows is entropy-coded, where FF D9 cannot occur
                return data.find(b"\xff\xd9", at) >= 0
    return False
