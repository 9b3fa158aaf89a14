"""What `Decode(reduce=...)` gives: to the bit what OpenCV and TensorFlow give by their own reduced decoding."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.core.digests import ops_digest
from autopipe.core.op import Op
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.core.workload import Workload
from autopipe.errors import ConfigError
from autopipe.ops.decode import Decode, reduced
from autopipe.ops.geometry import RandomFlip
from autopipe.ops.sizes import Resize
from autopipe.ops.targets import MaskToClass

RNG = np.random.default_rng(0)
ENCODED = SampleSpec(Field(FieldKind.ENCODED, None, None), None)
IMAGE = SampleSpec(Field(FieldKind.IMAGE, None, np.dtype("uint8"), 3), None)
REDUCED = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}


def jpeg(height: int, width: int, extension: str = ".jpg") -> bytes:
    pixels = cv2.resize(RNG.integers(0, 256, (9, 11, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    return bytes(cv2.imencode(extension, pixels)[1])


def decoded(data: bytes, **settings: Any) -> np.ndarray[Any, Any]:
    pixels: np.ndarray[Any, Any] = Decode(**settings).apply((data, None), ENCODED, np.empty(0))[0]
    return pixels


@pytest.mark.parametrize(
    ("size", "least", "ratio"),
    [((161, 203), (20, 20), 8), ((161, 203), (21, 26), 8), ((161, 203), (22, 20), 4), ((161, 203), (20, 52), 2)],
)
def test_a_large_jpeg_is_reduced_as_far_as_it_stays_large_enough(
    size: tuple[int, int], least: tuple[int, int], ratio: int
) -> None:
    data = jpeg(*size)
    found = decoded(data, reduce=least)
    assert found.shape == (-(-size[0] // ratio), -(-size[1] // ratio), 3)
    np.testing.assert_array_equal(found[..., ::-1], cv2.imdecode(np.frombuffer(data, np.uint8), REDUCED[ratio]))


@pytest.mark.parametrize("least", [(82, 10), (161, 203), (500, 500)])
def test_one_that_is_not_twice_as_large_is_decoded_whole(least: tuple[int, int]) -> None:
    data = jpeg(161, 203)
    np.testing.assert_array_equal(decoded(data, reduce=least), decoded(data))


def test_other_formats_are_decoded_whole() -> None:
    assert decoded(jpeg(160, 200, ".png"), reduce=(20, 20)).shape == (160, 200, 3)


def test_it_is_written_where_there_is_room() -> None:
    data = jpeg(160, 200)
    out = np.zeros((20, 25, 3), np.uint8)
    assert Decode(reduce=(20, 20)).apply((data, None), ENCODED, np.empty(0), out)[0].base is not None
    np.testing.assert_array_equal(out, decoded(data, reduce=(20, 20)))


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("data", [jpeg(161, 203), jpeg(60, 203), jpeg(161, 203, ".png")], ids=["large", "low", "png"])
def test_the_plain_code_of_both_kinds_gives_the_same(data: bytes, channels: Any) -> None:
    import simplejpeg
    import tensorflow as tf

    op = Decode(channels, reduce=(40, 50))
    wanted, step = decoded(data, channels=channels, reduce=(40, 50)), Step(op, 0, ENCODED, IMAGE)
    names: dict[str, Any] = {"x": data, "cv2": cv2, "np": np, "simplejpeg": simplejpeg}
    exec("\n".join(op.plain_numpy(step)), names)  # code that this package writes
    np.testing.assert_array_equal(wanted, names["x"])
    if channels == 1 and data[:2] != b"\xff\xd8":
        return  # TensorFlow makes grey of a coloured PNG in another way, as without reducing
    lines = "\n".join(f"    {line}" for line in op.plain_tensorflow(step))
    scope: dict[str, Any] = {"tf": tf}
    exec(f"def load(x):\n{lines}\n    return x", scope)  # the same
    found = tf.function(scope["load"])(tf.constant(data)).numpy()
    assert found.shape == wanted.shape
    assert np.abs(found.astype(float) - wanted).mean() < 2  # its transform is a faster one, of fewer digits


class _Photos:
    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> bytes:
        return b""


def ops(*given: Op) -> tuple[Op, ...]:
    return tuple(Workload(data=_Photos(), ops=given, batch_size=2).ops)


def test_a_workload_reduces_to_the_size_of_the_resize_that_follows() -> None:
    found = ops(Decode(reduce=True), MaskToClass(((0, 0, 0),)), Resize(224, 192))
    assert found[0] == Decode(reduce=(224, 192))
    assert ops_digest(found[:1]) != ops_digest([Decode()])
    assert ops_digest(found[:1]) == ops_digest(ops(*found)[:1])


@pytest.mark.parametrize("rest", [(), (RandomFlip(), Resize(8, 8))], ids=["nothing", "flip"])
def test_without_a_resize_next_a_size_must_be_named(rest: tuple[Op, ...]) -> None:
    with pytest.raises(ConfigError, match="needs a resize"):
        ops(Decode(reduce=True), *rest)


@pytest.mark.parametrize("wrong", [(0, 4), (4,), (4, 4, 4), (1.5, 2)])
def test_what_is_no_size_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        Decode(reduce=wrong)


def test_decoding_by_itself_needs_a_size() -> None:
    with pytest.raises(ConfigError, match="reduce=True"):
        decoded(jpeg(9, 9), reduce=True)


def test_no_side_falls_below_the_least() -> None:
    for height in range(1, 90):
        for least in range(1, 30):
            side = reduced((height, height), (least, least))[0]
            assert side >= min(height, least)
