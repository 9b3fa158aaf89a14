"""The question of formats: images of a workload encoded anew in memory, what decoding them takes, and their error.

Nothing is written, and no model is built. Each form goes through the workload's own decoder, and through the resize or
the crop that follows it, as in a loader's worker. The figures decide here what is worth it; `autopipe.reports` says it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import cv2
import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, ConfigError, WorkloadError
from autopipe.hardware import processes
from autopipe.measure.lines import Line, Lines, Remedy
from autopipe.measure.stats import median
from autopipe.pipeline.wrap import WrappedData
from autopipe.values import Value, milliseconds_text
from autopipe.workload.data.paths import read_file, spread
from autopipe.workload.op import Op, Plan
from autopipe.workload.ops import planner
from autopipe.workload.ops.decode import Decode, decode
from autopipe.workload.ops.sizes import Cutting
from autopipe.workload.ops.values import MaskToClass
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from autopipe.workload.workload import Workload

AS_THEY_ARE: Final = "as they are"
WORTH: Final = 1.3
"""Times as fast as now, from which another form is worth a conversion."""
_CLOSE = 1.25  # times the fastest: the one with the smallest error is chosen of these
_MUCH_LESS = 0.8  # of the time: the decoder of worker processes is another one


class Form(Value):
    """One way to keep the images of a part, with means over the images that were looked at."""

    name: str
    is_file: bool  # encoded; else the pixels themselves, as a conversion keeps them
    seconds_per_image: float = pydantic.Field(gt=0)  # processor time of one core
    # the same in a worker process of its own, if that decodes it by another decoder; else None
    alone_seconds_per_image: float | None = pydantic.Field(default=None, gt=0)
    bytes_per_image: float = pydantic.Field(ge=0)
    mean_error: float = pydantic.Field(ge=0)  # absolute difference from today's pixels, in levels of 0 to 255
    psnr_decibels: float | None = None  # the peak signal-to-noise ratio; None: the same pixels


class PartForms(Value):
    """The forms of one part of the samples."""

    part: str  # its name in the samples
    is_mask: bool
    found: dict[str, int]  # images by their format, as they are
    timed: tuple[str, ...]  # the names of the ops that were timed
    forms: tuple[Form, ...] = pydantic.Field(min_length=1)  # the first one as they are
    left_out: dict[str, str]  # forms that cannot be offered, and the reason

    @property
    def now(self) -> Form:
        return self.forms[0]

    @property
    def worth(self) -> Form | None:
        """The encoded form that is clearly faster than today's, with the smallest error of the fastest; or None."""
        files = [form for form in self.forms[1:] if form.is_file]
        fast = [form for form in files if self.now.seconds_per_image >= WORTH * form.seconds_per_image]
        if not fast:
            return None
        least = min(form.seconds_per_image for form in fast)
        close = [form for form in fast if form.seconds_per_image <= _CLOSE * least]
        return min(close, key=lambda form: (form.mean_error, form.bytes_per_image))

    @property
    def decoded(self) -> Form | None:
        """The pixels themselves, after as many ops as were timed, if that is clearly faster than today; or None."""
        last = next((form for form in reversed(self.forms) if not form.is_file), None)
        if last is None or self.now.seconds_per_image < WORTH * last.seconds_per_image:
            return None
        return last


class Formats(Value):
    """The answer: all parts of the samples that are encoded images."""

    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=1)  # that were looked at
    parts: tuple[PartForms, ...] = pydantic.Field(min_length=1)


_SAMPLES = 48
_FEWEST = 4  # samples to look at, however long they take
_SECONDS = 20.0
_ROUNDS = 3  # in which the forms of an image are decoded by turns
_SLOW_SECONDS = 1.0  # of a core, to encode one image: longer, and all of them are not


def formats(
    workload: Workload,
    *,
    samples: int = _SAMPLES,
    seconds: float = _SECONDS,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Formats:
    """Encode at most so many images in each form, and time the decoding of each on one core, for about `seconds`.

    Bad samples are skipped. `on_progress` is called with the number of samples done and the total.

    Raises:
        ConfigError: the data are a wrapped dataset.
        WorkloadError: no part of the samples is an encoded image, or one is not decoded by `Decode`.
        BadSampleError: not one sample can be used.
    """
    if isinstance(workload.data, WrappedData):
        raise ConfigError(
            "A wrapped dataset reads its own files, so autopipe cannot encode them anew.",
            hint="Make a workload of the files, with ap.ImageFolder say, and measure that.",
        )
    plan = planner.make_plan(dataclasses.replace(workload, on_bad_sample="skip"))
    tallies = [_Tally(part) for part in _parts(plan)]
    processes.set_library_threads()
    processes.keep_freed_memory()
    chosen = spread(len(workload.data), samples)
    rng, began, used = np.random.default_rng(workload.seed), time.monotonic(), 0
    for done, index in enumerate(chosen, 1):
        try:
            sample = planner.normalise(planner.read(workload.data, index), plan.source.structure)
            for tally in tallies:
                tally.add(sample[tally.part.place], rng)
            used += 1
        except BadSampleError:
            continue
        on_progress(done, len(chosen))
        if used >= _FEWEST and time.monotonic() - began > seconds:
            break
    if not used:
        raise BadSampleError(f"none of {len(chosen)} samples could be decoded to encode them anew.")
    return Formats(samples=used, parts=tuple(tally.result() for tally in tallies))


# -------------------- the parts of a sample, and what is timed of each

_ENCODED = Field(FieldKind.ENCODED, None, None)
_IMAGE = Field(FieldKind.IMAGE, None, np.dtype(np.uint8), 3)
_NONE = np.empty(0)
_FORMATS = {b"\xff\xd8": "JPEG", b"\x89PNG": "PNG", b"BM": "BMP", b"II": "TIFF", b"MM": "TIFF", b"RIFF": "WebP",
            b"GIF8": "GIF"}  # fmt: skip

Pixels: TypeAlias = NDArray[Any]


def format_name(data: bytes) -> str:
    """Return the name of an image file's format, by its first bytes."""
    return next((name for signature, name in _FORMATS.items() if bytes(data[:4]).startswith(signature)), "another")


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A part of the samples that is an encoded image: the op that decodes it, and the one that is timed with it."""

    place: int
    label: str
    is_mask: bool
    decoder: Decode
    resize: Op | None  # the same in every epoch
    crop: Op | None  # for which a JPEG is decoded in part

    @property
    def timed(self) -> tuple[str, ...]:
        return tuple(op.name for op in (self.decoder, self.resize, self.crop) if op is not None)

    def whole(self, data: bytes) -> Pixels:
        return self._after(dataclasses.replace(self.decoder, reduce=False), data, _ENCODED)

    def resized(self, pixels: Pixels) -> Pixels:
        return pixels if self.resize is None else self._after(self.resize, pixels, self._field(pixels))

    def worker(self, kept: bytes | Pixels, numbers: NDArray[np.float64]) -> Callable[[], object]:
        """Return the call that a worker makes for one kept image."""
        if isinstance(kept, np.ndarray):
            if self.crop is not None:
                crop = self.crop
                return lambda: crop.apply((kept, None), SampleSpec(_IMAGE, None), numbers)
            sizes = None if self.resize is None else self.resize.resizes_to
            return kept.copy if sizes in (None, kept.shape[:2]) else lambda: self.resized(kept)
        if self.crop is not None:
            encoded, image = SampleSpec(_ENCODED, None), SampleSpec(_IMAGE, None)
            decoder, crop = self.decoder, self.crop
            return lambda: crop.apply(decoder.apply((kept, None), encoded, _NONE), image, numbers)
        return lambda: self.resized(self._after(self.decoder, kept, _ENCODED))

    def _field(self, pixels: Pixels) -> Field:
        return Field(FieldKind.MASK, pixels.shape, pixels.dtype, pixels.ndim) if self.is_mask else _IMAGE

    def _after(self, op: Op, part: bytes | Pixels, field: Field) -> Pixels:
        """Return the part after an op that is given nothing else; a mask goes with an image that is done already."""
        if not self.is_mask:
            image: Pixels = op.apply((part, None), SampleSpec(field, None), _NONE)[0]
            return image
        size = (1, 1) if self.resize is None or self.resize.resizes_to is None else self.resize.resizes_to
        mask: Pixels = op.apply((np.zeros((*size, 3), np.uint8), part), SampleSpec(_IMAGE, field), _NONE)[1]
        return mask


def _parts(plan: Plan) -> list[_Part]:
    columns = list(enumerate(zip(plan.source.labels, plan.source.columns, strict=True)))
    found = [
        _part(plan, place, label)
        for place, (label, field) in columns
        if field is not None and field.kind is FieldKind.ENCODED
    ]
    if found:
        return found
    arrays = ", ".join(f"`{label}` ({field.kind})" for _, (label, field) in columns if field is not None)
    raise WorkloadError(
        f"Formats can be compared for image files only, but the samples are read as {arrays}.",
        hint="Arrays need no decoding. Without --formats, `autopipe measure` shows what each op costs.",
    )


def _part(plan: Plan, place: int, label: str) -> _Part:
    after = [step.after.columns[place] for step in plan.steps]
    at, decoded = next(  # bytes have no dtype
        (number, field) for number, field in enumerate(after) if field is not None and field.dtype is not None
    )
    decoder = _inner(plan.steps[at].op)
    if not isinstance(decoder, Decode):
        raise WorkloadError(
            f"Formats can be compared for images that `Decode` decodes, but `{label}` is decoded by `{decoder.name}`.",
            hint="Put ap.Decode() first in `ops`.",
        )
    following = next((each for each in plan.steps[at + 1 :] if each.op.touches(each.before)[place]), None)
    resize = crop = None
    if following is not None and following in plan.prefix and _inner(following.op).resizes_to is not None:
        resize = _inner(following.op)
    elif len(plan.steps) > at + 1 and isinstance(plan.steps[at + 1].op, Cutting):
        crop = plan.steps[at + 1].op
    return _Part(place, label, decoded.kind is FieldKind.MASK, decoder, resize, crop)


def _inner(op: Op) -> Op:
    """Return the op itself, of one that is placed on some parts of a sample."""
    inner = getattr(op, "op", op)
    assert isinstance(inner, Op)
    return inner


# -------------------- the forms of an image


class _Encoder(NamedTuple):
    name: str
    ending: str
    settings: tuple[int, ...]
    is_lossless: bool = True

    def encoded(self, pixels: Pixels) -> bytes:
        """Return the file of RGB or grey pixels; raise cv2.error if OpenCV cannot write it."""
        if pixels.ndim == 3:
            pixels = pixels[..., 0] if pixels.shape[2] == 1 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
        return cv2.imencode(self.ending, pixels, list(self.settings))[1].tobytes()


def _jpeg(quality: int) -> _Encoder:
    return _Encoder(f"JPEG {quality}", ".jpg", (cv2.IMWRITE_JPEG_QUALITY, quality), is_lossless=False)


# Of levels, strategies and filters the fastest to decode that still compress: photographs of 960x720 took 8.5 ms, with
# OpenCV's usual settings 13.1, and masks 0.9 and 2.7.
_FILTER = (cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP) if hasattr(cv2, "IMWRITE_PNG_FILTER") else ()  # 4.12
_PNG = _Encoder("PNG, fast", ".png", (cv2.IMWRITE_PNG_COMPRESSION, 1, *_FILTER))
_WEBP = _Encoder("WebP, lossless", ".webp", (cv2.IMWRITE_WEBP_QUALITY, 101))  # above 100 it loses nothing
_ENCODERS = (_jpeg(95), _jpeg(90), _PNG, *([_WEBP] if cv2.haveImageWriter(_WEBP.ending) else []))
_RAW = "raw pixels"


class _Reading(NamedTuple):
    """What one image in one form takes."""

    seconds: float
    alone_seconds: float
    bytes: int
    error: float  # mean absolute difference
    squared: float  # mean squared difference
    is_file: bool


class _Tally:
    """The forms of one part, image after image."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self._found: Counter[str] = Counter()
        self._left_out: dict[str, str] = {}
        self._readings: dict[str, list[_Reading]] = {}

    def add(self, data: bytes, rng: np.random.Generator) -> None:
        """Encode, decode and time one image; raise BadSampleError if it cannot be decoded."""
        part = self.part
        pixels = part.whole(data)
        kept: dict[str, tuple[bytes | Pixels, float, float]] = {AS_THEY_ARE: (data, 0.0, 0.0)}
        for name, form, wanted in self._forms(pixels):
            back = form if isinstance(form, np.ndarray) else part.whole(form)
            if (reason := self._refused(name, back, wanted)) is not None:
                self._left_out[name] = reason
            else:
                kept[name] = (form, *_difference(back, wanted))
        numbers = rng.random(0 if part.crop is None else part.crop.draws)
        calls = {name: part.worker(form, numbers) for name, (form, *_) in kept.items()}
        took, alone = _by_turns(calls), {}
        if part.decoder.alone_differs:
            files = {name: call for name, call in calls.items() if _is_png(kept[name][0])}
            with processes.claimed():
                alone = _by_turns(files)
        for name, (form, error, squared) in kept.items():
            size = form.nbytes if isinstance(form, np.ndarray) else len(form)
            reading = _Reading(took[name], alone.get(name, took[name]), size, error, squared, isinstance(form, bytes))
            self._readings.setdefault(name, []).append(reading)
        self._found[format_name(data)] += 1

    def result(self) -> PartForms:
        rows = {name: each for name, each in self._readings.items() if name not in self._left_out}
        if self.part.resize is not None:
            small, large = (fmean(each.bytes for each in rows[name]) for name in (self._scaled(_RAW), _RAW))
            if small >= large:  # there is nothing to scale down
                rows = {name: each for name, each in rows.items() if not name.endswith(self._scaled(""))}
        return PartForms(
            part=self.part.label,
            is_mask=self.part.is_mask,
            found=dict(self._found.most_common()),
            timed=self.part.timed,
            forms=tuple(_form(name, each) for name, each in rows.items()),
            left_out=self._left_out,
        )

    def _scaled(self, name: str) -> str:
        """Return the name of a form of the images as the workload's first resize leaves them."""
        size = None if self.part.resize is None else self.part.resize.resizes_to
        return name if size is None else f"{name} at {size[0]}x{size[1]}"

    def _forms(self, pixels: Pixels) -> Iterator[tuple[str, bytes | Pixels, Pixels]]:
        """Yield each form by its name, and the pixels that it should give back."""
        encoders = [each for each in _ENCODERS if each.is_lossless or not self.part.is_mask]
        for encoder in encoders:
            yield from self._encoded(encoder, encoder.name, pixels)
        yield _RAW, pixels, pixels
        if self.part.resize is not None:
            small = np.ascontiguousarray(self.part.resized(pixels))
            yield from self._encoded(encoders[0], self._scaled(encoders[0].name), small)
            yield self._scaled(_RAW), small, small

    def _encoded(self, encoder: _Encoder, name: str, pixels: Pixels) -> Iterator[tuple[str, bytes, Pixels]]:
        if name in self._left_out:
            return
        began = time.thread_time()
        try:
            encoded = encoder.encoded(pixels)
        except cv2.error as error:
            self._left_out[name] = f"OpenCV cannot write it: {str(error).strip().splitlines()[-1]}"
            return
        took = time.thread_time() - began
        if took > _SLOW_SECONDS:
            self._left_out[name] = f"writing one takes {milliseconds_text(took)}"
            return
        yield name, encoded, pixels

    def _refused(self, name: str, back: Pixels, wanted: Pixels) -> str | None:
        if (back.shape, back.dtype) != (wanted.shape, wanted.dtype):
            return f"it is decoded to {back.dtype} {back.shape}, not to {wanted.dtype} {wanted.shape}"
        if self.part.is_mask and not np.array_equal(back, wanted):
            return "it does not give the same values back"
        return None


def _is_png(kept: bytes | Pixels) -> bool:
    return not isinstance(kept, np.ndarray) and format_name(kept) == _FORMATS[b"\x89PNG"]


def _difference(back: Pixels, wanted: Pixels) -> tuple[float, float]:
    """Return the mean absolute and the mean squared difference."""
    if back is wanted:
        return 0.0, 0.0
    difference = cv2.absdiff(back, wanted).astype(np.float32)
    return float(difference.mean()), float(np.square(difference).mean())


def _by_turns(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the processor seconds of each call: the median of some rounds, after one that does not count."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 + _ROUNDS):
        for name, call in calls.items():
            began = time.thread_time()
            call()
            took[name].append(time.thread_time() - began)
    return {name: median(each[1:]) for name, each in took.items()}


def _form(name: str, readings: list[_Reading]) -> Form:
    seconds, alone, size, error, squared, _ = (fmean(column) for column in zip(*readings, strict=True))
    return Form(
        name=name,
        is_file=readings[0].is_file,
        seconds_per_image=max(seconds, 1e-9),
        alone_seconds_per_image=alone if alone < _MUCH_LESS * seconds else None,
        bytes_per_image=size,
        mean_error=error,
        psnr_decibels=None if squared == 0 else 10 * math.log10(255**2 / squared),
    )


# -------------------- lines of the user's own

_COLOURS_OF_A_MASK = 32  # at most; JPEG would change them


def with_trials(found: Lines, shape: Sequence[int | None] | None, images: float) -> Lines:
    """Time what stands ready for the first line that decodes images, and for the first that finds colours of a mask.

    The one is timed anew, on a few of its files, if it shows them. The other took what was seen of it, while `images`
    were made; 0 if that is not known. `shape` is that of a trained image; None if it is not known.
    """
    first = {line.remedy: line for line in reversed(found.lines)}
    tried: dict[Remedy, dict[str, float]] = {}
    if (line := first.get(Remedy.DECODE)) is not None:
        tried[Remedy.DECODE] = _reads(line, shape)
    if (line := first.get(Remedy.MASK_TO_CLASS)) is not None and line.mask is not None:
        seen = (each for each in found.lines if (each.file, each.line) == (line.file, line.line))
        own = {"the line about": sum(each.processor_seconds for each in seen) / images} if images else {}
        colours = np.arange(3 * _COLOURS_OF_A_MASK, dtype=np.uint8).reshape(-1, 3)
        op, mask = MaskToClass(colours.tolist()), np.resize(colours, (*line.mask, 3))
        calls = {"ap.MaskToClass()": lambda: op.pixels(mask, FieldKind.MASK, np.empty(0), None)}
        tried[Remedy.MASK_TO_CLASS] = {**own, **_by_turns(calls)}
    return found.model_copy(update={"tried": tried})


def _reads(line: Line, shape: Sequence[int | None] | None) -> dict[str, float]:
    size = None if shape is None or len(shape) != 3 or None in shape else (shape[0], shape[1])
    took: dict[str, list[float]] = {}
    for path in line.images:
        with contextlib.suppress(BadSampleError, ImportError, OSError):
            for name, seconds in _by_turns(_calls(line, os.fsencode(path), size)).items():
                took.setdefault(name, []).append(seconds)
    most = max(map(len, took.values()), default=0)
    return {name: fmean(each) for name, each in took.items() if len(each) == most}


def _calls(line: Line, file: bytes, size: Any) -> dict[str, Callable[[], object]]:
    data = read_file(file)
    is_jpeg, pixels = format_name(data) == "JPEG", decode(data, 3)
    theirs = cv2.imread if line.reader == "cv2.imread" else _by_pillow
    calls: dict[str, Callable[[], object]] = {
        str(line.reader): lambda: theirs(os.fsdecode(file)),
        "ap.Decode()": lambda: decode(read_file(file), 3),
    }
    if is_jpeg and size is not None:
        calls["ap.Decode(reduce=True) before a resize"] = lambda: decode(read_file(file), 3, least=size)
    is_mask = len(np.unique(pixels[::3, ::3].reshape(-1, 3), axis=0)) <= _COLOURS_OF_A_MASK
    for encoder in () if is_jpeg else (_PNG,) if is_mask else (_PNG, _jpeg(95)):
        calls[f"ap.Decode() of {encoder.name}"] = functools.partial(decode, encoder.encoded(pixels), 3)
    return calls


def _by_pillow(path: str) -> Pixels:
    from PIL import Image  # which the user's own line uses

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))
