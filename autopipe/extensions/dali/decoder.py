"""JPEG files become images by a pipeline of NVIDIA DALI's, some batches ahead of the one that is wanted.

Files and images are all that is known here: what else a sample holds, and what is done where DALI cannot decode one, is
the loader's business.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from typing import Any, Literal

import numpy as np
import simplejpeg
from numpy.typing import NDArray

_log = logging.getLogger(__name__)
_ENCODED = "encoded"  # the pipeline's input


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DaliSettings:
    """What a pipeline is made with."""

    batch_size: int  # files a batch, at most
    num_threads: int  # threads of DALI's own
    prefetch_queue_depth: int  # batches under way, at most
    device: Literal["cpu", "gpu"]  # where files are decoded, and images resized
    size: tuple[int, int] | None  # the (height, width) that images are resized to; None: they stay as they are


class DaliDecoder:
    """Owns a pipeline, which ends with it. One thread uses it."""

    def __init__(self, settings: DaliSettings) -> None:
        """Start DALI.

        Raises:
            RuntimeError: DALI cannot start.
        """
        self._settings = settings
        self._running: collections.deque[tuple[list[NDArray[np.uint8]], bool]] = collections.deque()
        self._start()

    def begin(self, files: list[NDArray[np.uint8]]) -> None:
        """Begin a batch of files, of which there may be none."""
        self._running.append((files, self._run(files)))

    def take(self) -> list[NDArray[np.uint8]]:
        """Return the images of the batch that was begun first; none at all where DALI cannot decode one of them."""
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
        self._pipeline = _pipeline(self._settings)
        tiny = np.frombuffer(simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8)), np.uint8)
        depth = self._settings.prefetch_queue_depth  # as often runs the first call of `schedule_run`
        for _ in range(depth):
            self._pipeline.feed_input(_ENCODED, [tiny])
        self._pipeline.schedule_run()
        for _ in range(depth):
            self._outputs()

    def _run(self, files: list[NDArray[np.uint8]]) -> bool:
        """Return whether DALI has begun a batch; behind one that it has not, outputs would be taken for another's."""
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


def _pipeline(settings: DaliSettings) -> Any:
    from nvidia.dali import Pipeline, fn, types

    on_card = settings.device == "gpu"
    pipeline = Pipeline(
        batch_size=settings.batch_size,
        num_threads=settings.num_threads,
        device_id=0 if on_card else None,
        prefetch_queue_depth=settings.prefetch_queue_depth,
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
        if settings.size is not None:
            height, width = settings.size
            images = fn.resize(
                images, resize_y=height, resize_x=width, interp_type=types.INTERP_LINEAR, antialias=False
            )
        pipeline.set_outputs(images)
    return pipeline
