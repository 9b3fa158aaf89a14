"""Fills slots with samples whose images DALI has decoded, and the kernel has taken through all ops that are left.

A sample whose file DALI does not decode as `Decode` does, or cannot, goes through the kernel as everywhere, which also
names what is wrong with it. What DALI needs, and how it is run, is `decoder` beside it's.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError
from autopipe.extensions.dali.decoder import DaliDecoder
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.batching.slots import Slot
from autopipe.pipeline.job import Recipe
from autopipe.workload.ops import planner
from autopipe.workload.ops.decode import Decode, jpeg_header
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.plan import Step
from autopipe.workload.sample import FieldKind, Part, Sample, SampleSpec, Source


def unfit(steps: Sequence[Step]) -> str | None:
    """Return why DALI cannot do the first of these ops as the op itself does; None where it can."""
    if steps and steps[0].before.structure is not None:
        return "it decodes one image a sample, and samples have several parts"
    decode = steps[0].op if steps and steps[0].before.x.kind is FieldKind.ENCODED else None
    if not isinstance(decode, Decode):
        return "it decodes image files, and the first op on what is read is no ap.Decode() of such"
    reasons = {
        "it decodes to RGB, and Decode(channels=1) asks for grey": decode.channels != 3,
        'it leaves images as they are stored, and Decode(orientation="exif") does not': decode.orientation == "exif",
        "it decodes images whole, and Decode(reduce=...) does not": bool(decode.reduce),
        "it passes over damage inside a JPEG file, which only Decode(strict=False) does, too": decode.strict,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def resized_to(steps: Sequence[Step]) -> tuple[int, int] | None:
    """Return the (height, width) that images are resized to right after they are decoded, if DALI can do that."""
    following = next((step.op for step in steps[1:] if step.op.touches(step.before)[0]), None)
    if isinstance(following, Resize) and following.interpolation == "bilinear":
        return following.resizes_to
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _Begun:
    """A batch that was read: what the source returned of each sample, or raised, and which of them DALI decodes."""

    samples: dict[int, Sample | BaseException]
    decoding: list[int]


class DaliFiller:
    """Fills slots: reads the samples of batches to come, and makes each batch of what DALI gives."""

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
        self._begun: collections.deque[_Begun] = collections.deque()

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
            else:
                if self._is_for_dali(sample[0]):
                    files[index] = np.frombuffer(sample[0], np.uint8)
        self._begun.append(_Begun(samples, list(files)))
        self._decoder.begin(list(files.values()))

    def forget(self, indices: NDArray[np.int64]) -> None:
        self._begun.popleft()
        self._decoder.take()

    def fill(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        if not self._begun:  # where nothing is begun ahead
            self.begin(indices)
        begun = self._begun.popleft()
        decoded = zip(begun.decoding, self._decoder.take(), strict=False)
        self._source.at_hand = begun.samples
        self._source.images = dict(decoded)
        try:
            return self._kernel.fill(epoch, indices, slot.layout.arrays(slot.block, len(indices)))
        finally:
            self._source.at_hand, self._source.images = {}, {}

    def stop(self) -> None:
        """The thread ends by itself after the batch that it is at: it waits for nobody but DALI."""

    def _is_for_dali(self, data: Part) -> bool:
        """Whether DALI decodes such a file as `Decode` does, which else does so, and tells what is wrong with it."""
        try:
            return jpeg_header(data, self._max_pixels, strict=False) is not None
        except BadSampleError:
            return False


class _AtHand:
    """A source of which one batch is read already, and in part decoded. It looks like the source that it is of."""

    read_many = None

    def __init__(self, source: Source) -> None:
        self.source = source
        self.at_hand: dict[int, Sample | BaseException] = {}  # samples as the source returned them, or what it raised
        self.images: dict[int, NDArray[np.uint8]] = {}  # those that are decoded

    def __len__(self) -> int:
        return len(self.source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def read(self, index: int) -> Any:
        found = self.at_hand.get(index)
        if isinstance(found, BaseException):
            raise found
        if found is None:
            return self.source.read(index)
        return (self.images.get(index, found[0]), *found[1:])


def _completing(step: Step) -> Step:
    """Return the step of a `Decode` with an op that does what is left to do where the image is decoded already."""
    op = copy.copy(step.op)
    decoded = dataclasses.replace(step.before, x=dataclasses.replace(step.before.x, kind=FieldKind.IMAGE))

    def apply(sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        return step.op.apply(sample, decoded if isinstance(sample[0], np.ndarray) else spec, random, out)

    object.__setattr__(op, "apply", apply)  # ops are frozen
    return dataclasses.replace(step, op=op)
