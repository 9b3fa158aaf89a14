"""Fills slots: DALI decodes the images, and the kernel does all remaining ops.

A sample whose file DALI does not decode as `Decode` does, or cannot, goes through the kernel as in other loaders, which
also names its fault. Settings and checks of the user are in `loader`.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from autopipe.errors import BadSampleError
from autopipe.pipeline.batching.cache import MemoryCache, Slot
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.loader import Recipe
from autopipe.workload.data.source import Around
from autopipe.workload.op import Step
from autopipe.workload.ops import planner
from autopipe.workload.ops.decode import Decode, jpeg_header
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.sample import FieldKind, Sample, SampleSpec, Source

if TYPE_CHECKING:
    from autopipe.extensions.dali.loader import Dali

# -------------------- decoder: a pipeline of NVIDIA DALI's decodes JPEG files, some batches ahead
# Only files and images are known here; other parts of a sample, and failures, are the filler's business.


_log = logging.getLogger(__name__)
_ENCODED = "encoded"  # the pipeline's input


class DaliDecoder:
    """Owns a pipeline, for one thread, that resizes to (height, width) `size`. Raises RuntimeError if none starts."""

    def __init__(self, knobs: Dali, batch_size: int, size: tuple[int, int] | None) -> None:
        self._knobs, self._batch_size, self._size = knobs, batch_size, size
        self._running: collections.deque[tuple[list[NDArray[np.uint8]], bool]] = collections.deque()
        self._start()

    def begin(self, files: list[NDArray[np.uint8]]) -> None:
        self._running.append((files, self._run(files)))

    def take(self) -> list[NDArray[np.uint8]]:
        """Return the images of the oldest begun batch; empty if DALI cannot decode one of them."""
        files, is_running = self._running.popleft()
        if not files:
            return []
        try:
            if not is_running:
                raise RuntimeError("a batch before it failed")
            return self._outputs()
        except RuntimeError as error:  # a pipeline that has failed once is of no more use
            _log.warning("DALI could not decode a batch, which is made without it: %s", error)
            again, self._running = [each for each, _ in self._running], collections.deque()
            self._start()
            for each in again:
                self.begin(each)
            return []

    def _start(self) -> None:
        self._pipeline = _pipeline(self._knobs, self._batch_size, self._size)
        tiny = np.frombuffer(simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8)), np.uint8)
        depth = self._knobs.prefetch_queue_depth  # as often runs the first call of `schedule_run`
        for _ in range(depth):
            self._pipeline.feed_input(_ENCODED, [tiny])
        self._pipeline.schedule_run()
        for _ in range(depth):
            self._outputs()

    def _run(self, files: list[NDArray[np.uint8]]) -> bool:
        """Return True if DALI has begun a batch; after a failed one, outputs would be confused with another's."""
        if not files or not all(is_running for _, is_running in self._running):
            return not files
        try:
            self._pipeline.feed_input(_ENCODED, files)
            self._pipeline.schedule_run()
        except RuntimeError as error:
            _log.debug("DALI does not begin a batch: %s", error)
            return False
        return True

    def _outputs(self) -> list[NDArray[np.uint8]]:
        (images,) = self._pipeline.share_outputs()
        images = images.as_cpu()
        self._pipeline.release_outputs()
        return [np.asarray(images[place]) for place in range(len(images))]


def _pipeline(knobs: Dali, batch_size: int, size: tuple[int, int] | None) -> Any:
    from nvidia.dali import Pipeline, fn, types

    on_card = knobs.device == "gpu"
    pipeline = Pipeline(
        batch_size=batch_size,
        num_threads=knobs.num_threads,
        device_id=0 if on_card else None,
        prefetch_queue_depth=knobs.prefetch_queue_depth,
        exec_dynamic=True,  # outputs live as long as something refers to them
    )
    with pipeline:
        files = fn.external_source(name=_ENCODED, dtype=types.UINT8, ndim=1)
        images = fn.decoders.image(
            files,
            device="mixed" if on_card else "cpu",
            output_type=types.RGB,
            adjust_orientation=False,
            jpeg_fancy_upsampling=True,  # on a card, too
        )
        if size is not None:
            height, width = size
            images = fn.resize(
                images, resize_y=height, resize_x=width, interp_type=types.INTERP_LINEAR, antialias=False
            )
        pipeline.set_outputs(images)
    return pipeline


def unfit(steps: Sequence[Step]) -> str | None:
    """Return why DALI cannot do the first of these ops as the op itself does; None if it can."""
    if steps and steps[0].before.structure is not None:
        return "it decodes one image a sample, and samples have several parts"
    decode = steps[0].op if steps and steps[0].before.x.kind is FieldKind.ENCODED else None
    if not isinstance(decode, Decode):
        return "it decodes image files, but the first op is not an ap.Decode() of image files"
    reasons = {
        "it decodes to RGB, and Decode(channels=1) asks for grey": decode.channels != 3,
        'it leaves images as they are stored, and Decode(orientation="exif") does not': decode.orientation == "exif",
        "it decodes images whole, and Decode(reduce=...) does not": bool(decode.reduce),
        f"it decodes to 8 bits, and Decode(dtype={decode.dtype!r}) does not": decode.is_deep,
        "it ignores damage inside a JPEG file, as only Decode(strict=False) does": decode.strict,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def resized_to(steps: Sequence[Step]) -> tuple[int, int] | None:
    """Return the (height, width) of a resize right after decoding, if DALI can do it."""
    following = next((step.op for step in steps[1:] if step.op.touches(step.before)[0]), None)
    if isinstance(following, Resize) and following.interpolation == "bilinear":
        return following.height, following.width
    return None


class DaliFiller:
    """Fills slots: reads the samples of batches to come, and makes each batch from DALI's images."""

    lost = 0  # it has no processes of its own

    def __init__(self, recipe: Recipe, cache: MemoryCache | None, decoder: DaliDecoder) -> None:
        first = recipe.steps[0]
        assert isinstance(first.op, Decode)
        self._max_pixels = first.op.max_pixels
        self._cache = cache
        self._decoder = decoder
        self._source = _AtHand(recipe.source)
        steps = (_completing(first), *recipe.steps[1:])
        self._kernel = Kernel(dataclasses.replace(recipe, source=self._source, steps=steps), cache)
        # Batches that were read: each sample or its error, and the numbers of those that DALI decodes.
        self._begun: collections.deque[tuple[dict[int, Sample | BaseException], list[int]]] = collections.deque()

    def begin(self, indices: NDArray[np.int64]) -> None:
        samples: dict[int, Sample | BaseException] = {}
        files = {}
        for index in indices.tolist():
            if self._cache is not None and self._cache.holds(index):
                continue
            try:
                sample = samples[index] = planner.normalise(self._source.source.read(index))
            except BaseException as error:  # noqa: BLE001  # the kernel raises it in the batch's place, with a name
                samples[index] = error
                continue
            with contextlib.suppress(BadSampleError):  # `Decode` names the fault
                if jpeg_header(sample[0], self._max_pixels, strict=False) is not None:  # DALI decodes it alike
                    files[index] = np.frombuffer(sample[0], np.uint8)
        self._begun.append((samples, list(files)))
        self._decoder.begin(list(files.values()))

    def forget(self, indices: NDArray[np.int64]) -> None:
        self._begun.popleft()
        self._decoder.take()

    def fill_slot(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        if not self._begun:  # if nothing is begun ahead
            self.begin(indices)
        self._source.at_hand, decoding = self._begun.popleft()
        self._source.images = dict(zip(decoding, self._decoder.take(), strict=False))
        try:
            return self._kernel.fill_slot(slot, epoch, indices)
        finally:
            self._source.at_hand, self._source.images = {}, {}

    def close(self) -> None:
        """The thread ends by itself after its present batch: it waits only for DALI."""


class _AtHand(Around):
    """A source with one batch that is read already, and in part decoded."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.at_hand: dict[int, Sample | BaseException] = {}  # samples as the source returned them, or its errors
        self.images: dict[int, NDArray[np.uint8]] = {}  # those that are decoded

    def read(self, index: int) -> Any:
        found = self.at_hand.get(index)
        if isinstance(found, BaseException):
            raise found
        if found is None:
            return self.source.read(index)
        return (self.images.get(index, found[0]), *found[1:])


def _completing(step: Step) -> Step:
    """Return the step of a `Decode` with an op that does the rest for a decoded image."""
    op = copy.copy(step.op)
    decoded = dataclasses.replace(step.before, x=dataclasses.replace(step.before.x, kind=FieldKind.IMAGE))

    def apply(sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        return step.op.apply(sample, decoded if isinstance(sample[0], np.ndarray) else spec, random)

    object.__setattr__(op, "apply", apply)  # ops are frozen
    return dataclasses.replace(step, op=op)
