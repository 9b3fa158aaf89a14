"""A loader whose workers run on other cores than the training, as a plugin of another package may be.

It is known under its name only within the fixture `elsewhere` of tests/conftest.py: other tests list all loaders.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from autopipe.pipeline.config import LoaderConfig


class Elsewhere(LoaderConfig):
    """Has settings and no loader."""

    kind: Literal["elsewhere"]  # without a default: a class with one registers itself for the whole process
    works_elsewhere: ClassVar[bool] = True
    workers: int
    queue_size: int = 8

    def worker_count(self) -> int:
        return self.workers

    def threads(self, cores: int) -> int:
        return 0

    def buffered_batches(self) -> int:
        return self.queue_size + 2 * self.workers

    def shares_lock(self) -> bool:
        return self.workers == 1

    def works_alone(self) -> bool:
        return True
