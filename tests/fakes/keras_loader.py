"""A slow loader of another package, for searches in tests: a search knows it as it knows one that is installed."""

from __future__ import annotations

from typing import ClassVar, Literal

import pydantic

from autopipe.pipeline.config import LoaderConfig


class KerasLoader(LoaderConfig):
    """One with Keras's knobs. Nothing opens it."""

    kind: Literal["keras"] = "keras"
    work_factor: ClassVar[float] = 1.9
    skips_bad_samples: ClassVar[bool] = False
    workers: int = pydantic.Field(default=1, ge=1, le=1024)
    use_multiprocessing: bool = False
    max_queue_size: int = pydantic.Field(default=10, ge=1, le=1024)

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return 1 if self.workers == 1 else self.max_queue_size + 2
