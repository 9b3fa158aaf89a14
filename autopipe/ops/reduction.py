"""How far a large JPEG is reduced while it is decoded: the rule, and the same as plain code.

Halves, quarters and eighths are what libjpeg has fast code for, and what OpenCV and TensorFlow offer, too; all three
give the same pixels.
"""

from __future__ import annotations

from autopipe.core.plain_code import Lines

_RATIOS = (2, 4, 8)


def reduced(size: tuple[int, int], least: tuple[int, int]) -> tuple[int, int]:
    """Return the smallest (height, width) to which an image is reduced without falling below `least`."""
    sizes = [(-(-size[0] // ratio), -(-size[1] // ratio)) for ratio in reversed(_RATIOS)]
    return next((each for each in sizes if each[0] >= least[0] and each[1] >= least[1]), size)


def plain_numpy(part: str, least: tuple[int, int], channels: int) -> Lines:
    """Return the lines that decode a part."""
    height, width = least
    colour, axis = ("COLOR_RGB", "") if channels == 3 else ("GRAYSCALE", "[..., None]")
    return [
        "reduced = 0",
        f'if {part}[:2] == b"\\xff\\xd8":  # a JPEG',
        f"    sides = simplejpeg.decode_jpeg_header({part})[:2]",
        f"    halvings = sum(sides[0] > {height - 1} * r and sides[1] > {width - 1} * r for r in {_RATIOS})",
        "    reduced = (0, 16, 32, 64)[halvings]  # cv2.IMREAD_REDUCED_GRAYSCALE_2, _4, _8",
        f"flags = cv2.IMREAD_{colour} | cv2.IMREAD_IGNORE_ORIENTATION | reduced",
        f"{part} = cv2.imdecode(np.frombuffer({part}, np.uint8), flags){axis}",
    ]


def plain_tensorflow(part: str, least: tuple[int, int], channels: int) -> Lines:
    """Return the same in TensorFlow."""
    height, width = least
    return [
        f'is_jpeg = tf.strings.substr({part}, 0, 2) == b"\\xff\\xd8"',
        f"sides = tf.cond(is_jpeg, lambda: tf.io.extract_jpeg_shape({part})[:2], lambda: tf.zeros(2, tf.int32))",
        f"halvings = [tf.reduce_all(sides > [{height - 1} * r, {width - 1} * r]) for r in {_RATIOS}]",
        "decoded = [",
        f"    lambda r=r: tf.io.decode_jpeg({part}, channels={channels}, ratio=r)",
        f"    for r in {(1, *_RATIOS)}",
        "]",
        f"{part} = tf.switch_case(tf.reduce_sum(tf.cast(halvings, tf.int32)), decoded)",
    ]
