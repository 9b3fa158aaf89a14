"""Dali: NVIDIA DALI decodes JPEG files and resizes the images, on the CPU or on a card; the kernel does the rest.

Samples are read in our order and handed to DALI, some batches ahead. Its images replace the file's bytes in a sample,
which goes through all other ops as usual. So DALI decides only pixels: order, random numbers, targets and masks are
those of every other loader.
"""

from __future__ import annotations

import atexit
import contextlib
from typing import ClassVar, Literal

import pydantic

from autopipe.errors import ConfigError, LoaderError, extra_module
from autopipe.hardware import gpu, processes
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.kernel import refuse_skipping
from autopipe.pipeline.batching.streaming import Filler, StreamingLoader, require_memory
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.loader import Loader, LoadJob
from autopipe.workload.op import Plan

_NO_CARD = "no NVIDIA card is seen here"


class Dali(LoaderConfig):
    """DALI decodes, and does the bilinear `Resize` that follows; its pixels differ a little. Needs the extra `dali`.

    Attributes:
        num_threads: threads of DALI's own that decode and resize; one more of ours does all else.
        prefetch_queue_depth: batches that DALI has under way, and as many finished ones that may wait for the model.
        device: where it decodes and resizes. "gpu" is written after DALI's documentation and was never seen running.
    """

    kind: Literal["dali"] = "dali"
    needs: ClassVar[tuple[str, str] | None] = ("dali", "nvidia.dali")
    rank: ClassVar[int] = 60
    skips_bad_samples: ClassVar[bool] = False  # of damage inside a JPEG it does not tell
    num_threads: int = pydantic.Field(ge=1, le=1024)
    prefetch_queue_depth: int = pydantic.Field(default=2, ge=1, le=1024)
    device: Literal["cpu", "gpu"] = "cpu"

    @classmethod
    def impossible(cls, plan: Plan) -> dict[tuple[str, str], str]:
        from autopipe.extensions.dali import filler  # its ops import OpenCV, which settings alone need not

        found = {("keep", "encoded"): "it decodes samples before they can be kept"}
        if cls.missing() is None and not gpu.detect():
            found["dali.device", "gpu"] = _NO_CARD
        if (why := filler.unfit(plan.prefix + plan.body)) is not None:
            found["loader", "dali"] = why
        return found

    def pixels_differ(self) -> str | None:
        how = (
            "by one level of 256 at most, as far as was measured"
            if self.device == "cpu"
            else "by an amount that was never measured for decoding on a GPU"
        )
        return f"DALI decodes and resizes: pixels differ from those of the other loaders, {how}."

    def shares_lock(self) -> bool:
        return False  # one thread does what is done in Python

    def worker_count(self) -> int:
        return self.num_threads

    def buffered_batches(self) -> int:
        return self.prefetch_queue_depth + 1

    def reads_at_once(self) -> int:
        return 1

    def samples_ahead(self, batch_size: int) -> int:
        return self.prefetch_queue_depth * batch_size

    def open(self, job: LoadJob) -> Loader:
        from autopipe.extensions.dali import filler

        if (why := filler.unfit(job.recipe.steps)) is not None:
            raise ConfigError(
                f"The `{self.kind}` loader cannot feed this workload: {why}.",
                hint="Use the `threads` or `processes` loader.",
            )
        if job.recipe.cached and job.recipe.fixed_steps == 0:
            raise ConfigError(
                f"The `{self.kind}` loader decodes samples before they can be kept, but keep='encoded' keeps them as "
                "they are read.",
                hint="Use keep='memory', or the `threads` or `processes` loader.",
            )
        refuse_skipping(job, self.kind)
        recipe, depth = job.recipe, self.prefetch_queue_depth
        queue_size = job.setup.queue_size(depth)
        require_memory(job, queue_size + depth + 3, self.samples_ahead(job.order.batch_size))
        if self.device == "gpu" and not gpu.detect():
            raise LoaderError(f'`device="gpu"` of Dali needs a card, but {_NO_CARD}.', hint='Use device="cpu".')
        extra_module("dali", "nvidia.dali")
        try:
            decoder = filler.DaliDecoder(self, job.order.batch_size, filler.resized_to(recipe.steps))
        except RuntimeError as error:
            raise LoaderError(f"DALI could not start: {error}") from error
        made = filler.DaliFiller(recipe, MemoryCache.of(recipe), decoder)
        return _DaliLoader(job, made, queue_size, depth)


class _DaliLoader(StreamingLoader):
    """Ends at the interpreter's exit before DALI does, which would take its pipeline from the thread that uses it."""

    def __init__(self, job: LoadJob, filler: Filler, queue_size: int, depth: int) -> None:
        self._undo = contextlib.ExitStack()
        self._undo.enter_context(processes.library_threads())
        super().__init__(job, [filler], queue_size, ahead=depth - 1)
        atexit.register(self._shut_down)  # after DALI's own, so it is called before that

    def close(self) -> None:
        super().close()
        self._undo.close()
        atexit.unregister(self._shut_down)
