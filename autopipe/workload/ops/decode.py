"""Decode: from the bytes of an image file to pixels.

Every decoder gives RGB (or grey) in the file's own orientation: an alpha channel is dropped (libtiff multiplies the
colours of an 8-bit TIFF by it before), 16 bits become 8 unless they are asked for, and an EXIF rotation is left alone
unless asked for, as TensorFlow, PIL and Keras do. JPEG goes to libjpeg-turbo's own interface, which tells of damage
that OpenCV passes over and gives the same pixels. Whatever that does not know, and all other formats, go to OpenCV.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, ConfigError, PlainCodeError, warn_of_data
from autopipe.workload.op import Op, Step, Target
from autopipe.workload.ops import headers
from autopipe.workload.ops.headers import Size
from autopipe.workload.ops.pixels import check_choice, check_whole
from autopipe.workload.ops.sizes import Resize, check_size
from autopipe.workload.plain_code import Library, Lines, Variable, parts
from autopipe.workload.sample import Field, FieldKind, Sample, SampleSpec

MAX_PIXELS = 2**28
_FLAGS = {  # by channels; None is a mask, whose colours come as BGR
    3: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION,
    1: cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION,
    None: cv2.IMREAD_ANYCOLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION,
}
_FOUR_INKS = ("CMYK", "YCCK")  # OpenCV makes RGB of them, libjpeg-turbo does not
_RATIOS = (2, 4, 8)  # libjpeg, OpenCV and TensorFlow have fast code for these, and give the same pixels
_DEPTHS: Final = {"uint8": headers.BITS, "uint16": 16, "float32": 32}  # bits of a value in a file that holds it
_ALL_BANDS: Final = "ap.Windows(images, masks, size=(None, None)) reads all; so can read(i) of a source of your own."
_TURNED: Final = "are to be rotated, by their EXIF tags, and are taken as they are stored"
_DEEP: Final = "have more than 8 bits a value, of which only the upper 8 are kept"
_FIRST: Final = (
    "are TIFF files with more pages or bands, which are dropped; one of 8 bits is multiplied into the colours"
)
_LOSSY: Final = "have masks that are JPEG files, which change the numbers of classes near edges"
_INSTEAD: Final = {
    _TURNED: 'Say which is meant in a workload\'s file: ap.Decode(orientation="exif") or "ignore".',
    _DEEP: 'To keep all of them, ask for them: ap.Decode(dtype="uint16"), or "float32" of files with floats.',
    _FIRST: _ALL_BANDS,
    _LOSSY: 'Keep masks as PNG. Those of 0 and 255 can be cut: ap.Map(function, on="mask"), by `return y > 127`.',
}


@dataclasses.dataclass(frozen=True)
class Decode(Op):
    """Decode encoded images, shape (height, width, channels); a mask keeps the channels and the bits that its file has.

    Arrays pass unchanged, so a pipeline can start from either. An image whose EXIF tag says that it is to be rotated is
    left as it is stored, unless told otherwise, as by TensorFlow, PIL and Keras; `cv2.imread` and `cv2.imdecode` rotate
    it (docs/migrate.md).

    Attributes:
        channels: 3 for RGB, 1 for grey.
        strict: refuse a JPEG of which libjpeg says that it is corrupt. False takes its result, grey or shifted blocks,
            as OpenCV, PIL and TensorFlow do. A file that is cut short is refused in any case.
        max_pixels: the largest image, as height times width; its header is looked at before it is decoded.
        orientation: "exif" to rotate images and masks as their EXIF tags say, "ignore" to leave them as they are
            stored. None ignores the tags, too, and warns if one of the first samples has one. Bits, bands and pages
            that are dropped are warned of, too; `autopipe verify --files` counts all of these in all files.
        reduce: decode a large JPEG to a half, a quarter or an eighth of its height and width, whichever is the smallest
            that is not below this (height, width); True takes that of the resize that follows. libjpeg leaves out
            details that a smaller image does not need, so that it takes a part of the time, and smooths pixels that
            bilinear would skip: the result differs from a whole image that is resized. Other formats and masks are
            decoded whole.
        dtype: of images. "uint8" takes the upper 8 bits of files that have more. "uint16" and "float32" take files of
            just this depth, PNG and TIFF: nothing is scaled, so that no bit is lost and no two scales are mixed.

    Raises:
        BadSampleError: the bytes are empty, truncated, damaged, no image, too large a one, or of another depth.
    """

    on: ClassVar[Target] = "both"

    channels: Literal[1, 3] = 3
    strict: bool = dataclasses.field(default=True, kw_only=True)
    max_pixels: int = dataclasses.field(default=MAX_PIXELS, kw_only=True)
    orientation: Literal["exif", "ignore"] | None = dataclasses.field(default=None, kw_only=True)
    reduce: bool | tuple[int, int] = dataclasses.field(default=False, kw_only=True)
    dtype: Literal["uint8", "uint16", "float32"] = dataclasses.field(default="uint8", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.reduce, bool):
            check_size(self, *self._least)
        if self.channels not in (1, 3):
            raise ConfigError(f"`channels` of Decode must be 3 (RGB) or 1 (grey), but got channels={self.channels!r}.")
        check_whole(self, "max_pixels", self.max_pixels)
        check_choice(self, "orientation", ("exif", "ignore", None))
        check_choice(self, "dtype", _DEPTHS)
        if self.reduce and self.is_deep:
            raise ConfigError(
                f"`reduce` of Decode reduces JPEG files, which have 8 bits, but got dtype={self.dtype!r}.",
                hint="Leave `reduce` out, and put ap.Resize behind it.",
            )

    @property
    def is_deep(self) -> bool:
        return self.dtype != "uint8"

    @property
    def _least(self) -> Size:
        if not isinstance(self.reduce, Sequence) or len(self.reduce) != 2:
            raise ConfigError(
                f"`reduce` of Decode must be a size (height, width) in pixels by now, but got reduce={self.reduce!r}.",
                hint="In a workload, reduce=True takes the size of the resize that follows; elsewhere, name it.",
            )
        return self.reduce

    def followed_by(self, rest: Sequence[Op]) -> Op:
        if self.reduce is not True:
            return self
        following = next((op for op in rest if op.target != "mask"), None)
        if not isinstance(following, Resize):
            raise ConfigError(
                "`reduce=True` of Decode needs a resize as the next op on the image, "
                f"but there is {'none' if following is None else type(following).__name__}.",
                hint="Name the least size instead: ap.Decode(reduce=(448, 448)).",
            )
        return dataclasses.replace(self, reduce=(following.height, following.width))

    def kinds(self, spec: SampleSpec) -> tuple[FieldKind | None, ...]:
        decoded = zip(super().kinds(spec), (FieldKind.IMAGE, FieldKind.MASK), strict=True)
        return tuple(after if kind is FieldKind.ENCODED else kind for kind, after in decoded)

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        found = Counter(each for sample in samples for each in self.lost(sample, spec))
        for said, count in found.items():
            warn_of_data(f"{count} of {len(samples)} images that were looked at {said}. {_INSTEAD[said]}")

    def lost(self, sample: Sample, spec: SampleSpec) -> tuple[str, ...]:
        kinds = (field and field.kind for field in (spec.x, spec.y))
        encoded = [part for part, kind in zip(sample, kinds, strict=True) if kind is FieldKind.ENCODED]
        said = [_FIRST] * any(map(headers.leaves_out, encoded))
        if spec.y is not None and spec.y.kind is FieldKind.ENCODED and bytes(sample[1][:2]) == headers.JPEG:
            grey = cv2.imdecode(np.frombuffer(sample[1], np.uint8), cv2.IMREAD_GRAYSCALE)
            # Most pixels of a mask have few levels, and not those of an image that is a target.
            is_flat = grey is not None and float(np.sort(np.bincount(grey.ravel()))[-8:].sum()) > 0.75 * grey.size
            said += [_LOSSY] * is_flat
        if spec.x.kind is FieldKind.ENCODED:
            x = sample[0]
            said += [_TURNED] * (self.orientation is None and headers.orientation_of(x) != headers.UPRIGHT)
            said += [_DEEP] * (not self.is_deep and headers.bits_of(x) > headers.BITS)
        return tuple(said)

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        if field.dtype is not None:
            return ()
        if field.kind is FieldKind.MASK:
            return self._decoded(0, (0, 0), 0)
        if self.dtype == "float32":
            return None
        return self._decoded(self.channels, self._least if self.reduce else (0, 0), np.dtype(self.dtype).itemsize)

    def _decoded(self, channels: int, least: tuple[int, int], value_bytes: int) -> tuple[native.Instruction, ...]:
        whole = (channels, self.max_pixels, *least, self.orientation == "exif", value_bytes)
        return (native.Instruction("DECODE", whole, is_wide=value_bytes != 1),)

    is_progressive = staticmethod(headers.is_progressive)

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        x, y = sample
        if spec.x.kind is FieldKind.ENCODED:
            turned = headers.orientation_of(x) if self.orientation == "exif" else headers.UPRIGHT
            least = self._least if self.reduce else None
            least = least[::-1] if least is not None and turned >= 5 else least  # it lies on its side
            if self.is_deep:
                x = _decode_deep(x, self.channels, self.dtype, self.max_pixels)
            else:
                x = decode(x, self.channels, strict=self.strict, max_pixels=self.max_pixels, least=least)
            x = headers.upright(x, turned)
        if spec.y is not None and spec.y.kind is FieldKind.ENCODED:
            y = decode(y, None, strict=self.strict, max_pixels=self.max_pixels)
            y = headers.upright(y, headers.orientation_of(sample[1])) if self.orientation == "exif" else y
        return x, y

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        if self.orientation == "exif" and library == "tf":
            raise PlainCodeError("TensorFlow cannot rotate images as their EXIF tags say")
        if self.orientation == "exif" and self.reduce:
            raise PlainCodeError("no plain code both reduces images and rotates them as their EXIF tags say")
        for part in parts(step):
            if part.field.kind is not FieldKind.ENCODED or part.after.held == "jpeg":
                continue
            if part.after.kind is FieldKind.IMAGE and self.reduce:
                reduced = _plain_reduced if library == "np" else _plain_reduced_tensorflow
                yield from reduced(part, self._least, self.channels)
            else:
                yield from self._plain_numpy(part) if library == "np" else self._plain_tensorflow(part)

    def _plain_numpy(self, part: Variable) -> Iterator[str]:
        is_image = part.after.kind is FieldKind.IMAGE
        is_grey = self.channels == 1 if is_image else part.after.rank != 3
        if is_image and self.dtype == "float32":
            read = f"cv2.imdecode(np.frombuffer({part}, np.uint8), cv2.IMREAD_UNCHANGED)"
            yield f"{part} = np.atleast_3d({read})[..., :3]"
            grey, colour = f"cv2.cvtColor({part}, cv2.COLOR_BGR2GRAY)[..., None]", f"{part}[..., ::-1]"
            one, three = (part, grey) if is_grey else (f"np.repeat({part}, 3, axis=2)", colour)
            yield f"{part} = np.ascontiguousarray({three} if {part}.shape[2] == 3 else {one})"
            return
        is_deep = self.is_deep if is_image else _is_deep(part.after)
        colour = "COLOR" if is_deep else "COLOR_RGB"  # of which OpenCV's TIFF decoder knows nothing in 16 bits
        flags = f"cv2.IMREAD_{'GRAYSCALE' if is_grey else colour}"
        flags += " | cv2.IMREAD_ANYDEPTH" if is_deep else ""
        flags += "" if self.orientation == "exif" else " | cv2.IMREAD_IGNORE_ORIENTATION"
        axis = "[..., None]" if is_image and is_grey else ""
        yield f"{part} = cv2.imdecode(np.frombuffer({part}, np.uint8), {flags}){axis}"
        if is_deep and not is_grey:
            yield f"{part} = cv2.cvtColor({part}, cv2.COLOR_BGR2RGB)"

    def _plain_tensorflow(self, part: Variable) -> Iterator[str]:
        if part.after.kind is FieldKind.IMAGE and self.dtype == "float32":
            raise PlainCodeError("TensorFlow decodes no image files of float32")
        if part.after.kind is FieldKind.IMAGE and self.is_deep:
            yield f"{part} = tf.io.decode_png({part}, channels={self.channels}, dtype=tf.uint16)"
        elif part.after.kind is FieldKind.IMAGE:
            yield f"{part} = tf.io.decode_jpeg({part}, channels={self.channels})  # PNG, too"
        else:
            channels, axis = ("3", "") if part.after.rank == 3 else ("1", "[..., 0]")
            dtype = ", dtype=tf.uint16" if _is_deep(part.after) else ""
            yield f"{part} = tf.io.decode_png({part}, channels={channels}{dtype}){axis}"


def decode(
    data: bytes,
    channels: Literal[1, 3] | None,
    *,
    strict: bool = True,
    max_pixels: int = MAX_PIXELS,
    least: Size | None = None,
) -> NDArray[Any]:
    """Return an image's pixels, uint8 (height, width, channels); without `channels` a mask's. See `Decode`."""
    if (jpeg := jpeg_header(data, max_pixels, strict=strict)) is None:
        _require_readable(data, max_pixels)
        pixels = _imdecode(data, _FLAGS[channels], max_pixels)
        if channels is None and pixels.ndim == 3:
            return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        return pixels[..., None] if channels == 1 else pixels
    size, space = jpeg
    is_grey = channels == 1 or (channels is None and space == "Gray")
    size = size if least is None else reduced(size, least)
    pixels = _decode_jpeg(data, "GRAY" if is_grey else "RGB", size, strict=strict)
    return pixels[..., 0] if is_grey and channels is None else pixels


def _decode_deep(data: bytes, channels: int, dtype: str, max_pixels: int) -> NDArray[Any]:
    _require_readable(data, max_pixels)
    if headers.image_size(bytes(data)) is not None and headers.bits_of(data) != _DEPTHS[dtype]:
        raise _other_depth(f"{headers.bits_of(data)} bits", dtype)
    if dtype == "float32":  # of which the flags for colours and greys refuse each the other
        pixels = np.atleast_3d(_imdecode(data, cv2.IMREAD_UNCHANGED, max_pixels))[..., :3]
        if pixels.shape[2] != channels:
            pixels = np.repeat(pixels, 3, axis=2) if channels == 3 else cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
    else:
        colour = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR  # the TIFF decoder does not know RGB
        pixels = _imdecode(data, colour | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION, max_pixels)
    if pixels.dtype != dtype:
        raise _other_depth(str(pixels.dtype), dtype)
    return np.ascontiguousarray(pixels[..., ::-1]) if channels == 3 else np.atleast_3d(pixels)


def _other_depth(found: str, dtype: str) -> BadSampleError:
    return BadSampleError(
        f"an image must be of {dtype}, but its values are of {found}.",
        hint="Give files of one depth: other ones have another scale. ap.Decode(dtype=...) says which, and "
        'ap.Decode(), behind which ap.Cast("float32") may follow, takes 8 bits of all.',
    )


def _is_deep(mask: Field) -> bool:
    if mask.dtype not in (np.uint8, np.uint16):
        raise PlainCodeError(f"`Decode` writes plain code of masks in uint8 and uint16, but these are in {mask.dtype}")
    return bool(mask.dtype == np.uint16)


def _require_readable(data: bytes, max_pixels: int) -> None:
    _require_bytes(data)
    if len(data) == 0:
        raise BadSampleError("the image file is empty (0 bytes).")
    headers.require_end(data)
    headers.require_size(headers.image_size(bytes(data)), max_pixels)


def _require_bytes(data: object) -> None:
    if not isinstance(data, bytes | memoryview):
        raise BadSampleError(f"an encoded image must be bytes, but got {type(data).__name__}.")


def jpeg_header(data: bytes, max_pixels: int, *, strict: bool) -> tuple[Size, str] | None:
    """Return the size and colour space of a JPEG; None if OpenCV must decode it. Raise BadSampleError."""
    _require_bytes(data)
    if data[:2] != headers.JPEG:
        return None
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except (ValueError, KeyError):  # damaged, or of a rare kind: OpenCV finds out
        return None
    size = int(height), int(width)
    headers.require_size(size, max_pixels)
    if not strict:
        headers.require_end(data)
    if space in _FOUR_INKS:
        _decode_jpeg(data, "CMYK", size, strict=strict)
        return None
    return size, str(space)


def _decode_jpeg(data: bytes, space: str, size: Size, *, strict: bool) -> NDArray[np.uint8]:
    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
            data, space, strict=strict, min_height=size[0], min_width=size[1]
        )
    except (ValueError, KeyError) as error:
        headers.require_end(data)  # a file that is cut short is not taken with strict=False either
        hint = "Replace or remove the file; in a workload's file, Decode(strict=False) takes it as it is."
        said = f"the JPEG is damaged: {str(error).rstrip('.')} ({len(data)} bytes)."
        raise BadSampleError(said, hint=hint if strict else None) from None
    return pixels


def _imdecode(data: bytes, flags: int, max_pixels: int) -> NDArray[Any]:
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise BadSampleError(f"OpenCV cannot decode the image: {str(error).strip()}") from None
    if pixels is None and (bands := headers.bands_of(data)) > 4:
        raise BadSampleError(f"the TIFF file has {bands} bands, and `Decode` takes at most 4.", hint=_ALL_BANDS)
    if pixels is None and (bits := headers.bits_of(bytes(data))) > 16 and not flags & cv2.IMREAD_ANYDEPTH:
        said = f"the file has {bits} bits a value, of which `Decode` makes no 8."
        raise BadSampleError(said, hint='Keep them: ap.Decode(1, dtype="float32"), or 3 for RGB.')
    if pixels is None:
        hint = None if headers.image_size(bytes(data)) else "Raw pixels are read by ap.wrap(function)."
        said = f"OpenCV cannot decode the image ({len(data)} bytes that start with {bytes(data[:8])!r})."
        raise BadSampleError(said, hint=hint)
    headers.require_size((pixels.shape[0], pixels.shape[1]), max_pixels)  # of a format whose header is not known here
    return pixels


def reduced(size: Size, least: Size) -> Size:
    """Return the smallest (height, width) to which an image is reduced without falling below `least`."""
    sizes = [(-(-size[0] // ratio), -(-size[1] // ratio)) for ratio in reversed(_RATIOS)]
    return next((each for each in sizes if each[0] >= least[0] and each[1] >= least[1]), size)


def _plain_reduced(part: str, least: tuple[int, int], channels: int) -> Lines:
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


def _plain_reduced_tensorflow(part: str, least: tuple[int, int], channels: int) -> Lines:
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
