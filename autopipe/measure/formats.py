"""The question of formats: images of a workload encoded anew in memory, what decoding them takes, and their error.

Nothing is written, and no model is built.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, ConfigError, WorkloadError
from autopipe.hardware import processes
from autopipe.measure.rows import Formats, ImageForm
from autopipe.measure.stats import median
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.data.paths import spread
from autopipe.workload.op import Plan
from autopipe.workload.ops import planner
from autopipe.workload.ops.decode import Decode
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from autopipe.workload.workload import Workload

AS_THEY_ARE: Final = "as they are"
_MOST_LOOKED_AT: Final = 48

Pixels: TypeAlias = NDArray[Any]


@processes.library_threads()
def formats(workload: Workload) -> Formats:
    """Encode some images of a workload in each form, and time the decoding of each on one core; skip bad samples. Raise
    ConfigError, WorkloadError or BadSampleError, which says why there is nothing to compare.
    """
    if isinstance(workload.data, WrappedData):
        raise ConfigError(
            "A wrapped dataset reads its own files, so autopipe cannot encode them anew.",
            hint="Make a workload of the files, with ap.ImageFolder say, and measure that.",
        )
    plan = planner.make_plan(dataclasses.replace(workload, on_bad_sample="skip"))
    processes.keep_freed_memory()
    if hasattr(workload.data, "rewritten"):
        return _of_windows(workload.data)
    parts, found = _parts(plan), list[list[ImageForm]]()
    began = time.monotonic()
    for count, index in enumerate(spread(len(workload.data), _MOST_LOOKED_AT)):
        if count >= 4 and time.monotonic() - began > 20.0:
            break
        with contextlib.suppress(BadSampleError, cv2.error):
            sample = planner.normalise(planner.read(workload.data, index), plan.source.structure)
            found.append([form for part in parts for form in part.forms(sample[part.place])])
    if not found:
        raise BadSampleError("none of the samples could be decoded to encode them anew.")
    means = (
        each[0].model_copy(update={name: fmean(getattr(form, name) for form in each) for name in _MEANS})
        for each in zip(*found, strict=True)
    )
    return Formats(samples=len(found), forms=tuple(means))


def _of_windows(data: Any) -> Formats:
    """Compare files that hold windows otherwise, which the source writes to a temporary folder: see `Windows`."""
    forms, rng, read_of_each = list[ImageForm](), np.random.default_rng(0), list[int]()
    with tempfile.TemporaryDirectory(prefix="autopipe-") as folder:
        for name, size, read in data.rewritten(Path(folder)):
            took = list[float]()
            for _ in range(_MOST_LOOKED_AT):
                if len(took) < 6 or sum(took) < 2.0:
                    with contextlib.suppress(BadSampleError):  # Zarr unpacks in threads of its own
                        took.append(timeit.timeit(functools.partial(read, rng), timer=time.process_time, number=1))
            if not (usual := took[2:] or took):  # the first ones open files
                raise BadSampleError("none of the windows that were looked at could be read.")
            read_of_each.append(len(took))
            form = {"seconds_per_image": max(fmean(usual), 1e-9), "bytes_per_image": size, "mean_error": 0}
            forms.append(ImageForm(part="window", name=name or AS_THEY_ARE, **form))
    return Formats(samples=min(read_of_each), forms=tuple(forms))


_MEANS = ("seconds_per_image", "bytes_per_image", "mean_error")
_ENCODED = Field(FieldKind.ENCODED, None, None)
_IMAGE = Field(FieldKind.IMAGE, None, np.dtype(np.uint8), 3)
_RAW, _PNG = "raw pixels", "PNG, fast"
# Of levels, strategies and filters the fastest to decode that still compress: photographs of 960x720 took 8.5 ms, with
# OpenCV's usual settings 13.1, and masks 0.9 and 2.7.
_FILTER = [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP] if hasattr(cv2, "IMWRITE_PNG_FILTER") else []  # 4.12
_ENCODERS = {
    **{f"JPEG {quality}": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, quality]) for quality in (95, 90)},
    _PNG: (".png", [cv2.IMWRITE_PNG_COMPRESSION, 1, *_FILTER]),
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A part of the samples that is an encoded image, and the op that decodes it and nothing else."""

    place: int
    label: str
    is_mask: bool
    decoder: Decode

    def forms(self, data: bytes) -> Iterator[ImageForm]:
        """Yield the forms of one image; raise BadSampleError or cv2.error if it cannot be decoded or encoded."""
        pixels = self._decoded(data)
        is_deep = self.is_mask or self.decoder.is_deep  # JPEG would change classes, and has 8 bits
        names = () if pixels.dtype.kind == "f" else (_PNG,) if is_deep else _ENCODERS
        written, files = pixels, {AS_THEY_ARE: data}
        if names and pixels.ndim == 3:
            written = pixels[..., 0] if pixels.shape[2] == 1 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
        for name in names:
            ending, settings = _ENCODERS[name]
            files[name] = cv2.imencode(ending, written, settings)[1].tobytes()
        images = {**{name: self._decoded(file) for name, file in files.items()}, _RAW: pixels}
        calls = {**{name: self._call(file, pixels) for name, file in files.items()}, _RAW: pixels.copy}
        for name, image in images.items():
            yield ImageForm(
                part=self.label,
                name=name,
                seconds_per_image=max(median(timeit.repeat(calls[name], timer=time.thread_time, number=1)[1:]), 1e-9),
                bytes_per_image=len(files[name]) if name in files else pixels.nbytes,
                mean_error=float(np.abs(image.astype(np.float32) - pixels).mean()),
            )

    def _decoded(self, data: bytes) -> Pixels:
        spec = SampleSpec(_IMAGE, _ENCODED) if self.is_mask else SampleSpec(_ENCODED, None)
        return np.asarray(self.decoder.apply((data, data), spec, np.empty(0))[self.is_mask])

    def _call(self, data: bytes, pixels: Pixels) -> Callable[[], object]:
        """Return the call that decodes as a loader does: by the native library, if it can."""
        field = dataclasses.replace(_ENCODED, kind=FieldKind.MASK) if self.is_mask else _ENCODED
        if (
            type(self.decoder) is Decode
            and native.why_not() is None
            and (code := self.decoder.instructions(field)) is not None
        ):
            program = native.Program([(each, 0) for each in code], pixels.shape, pixels.dtype)
            spans, out, numbers = native.bytes_at([data]), np.empty((1, *pixels.shape), pixels.dtype), np.empty((1, 0))
            if not program.fill(spans, numbers, out).any():
                return lambda: program.fill(spans, numbers, out)
        return lambda: self._decoded(data)


def _parts(plan: Plan) -> list[_Part]:
    found = list[_Part]()
    columns = list(zip(plan.source.labels, plan.source.columns, strict=True))
    for place, (label, field) in enumerate(columns):
        afters = ((step.op.acting, after) for step in plan.steps if (after := step.after.columns[place]) is not None)
        decoder, after = next((each for each in afters if each[1].dtype is not None), (None, None))  # bytes have none
        if field and field.kind is FieldKind.ENCODED and isinstance(decoder, Decode) and after:
            decoder = dataclasses.replace(decoder, reduce=False)
            found.append(_Part(place, label, after.kind is FieldKind.MASK, decoder))
    if not found:
        raise WorkloadError(
            f"Formats can be compared for image files that `Decode` decodes, but the samples are "
            f"{', '.join(f'`{label}` ({field.kind})' for label, field in columns if field)}, "
            f"and the ops are [{', '.join(step.op.name for step in plan.steps)}].",
            hint="Without --formats, `autopipe measure` shows what each op costs.",
        )
    return found
