"""Foreign: an input pipeline that autopipe did not write, run unchanged in a process of its own, for comparison.

It is a configuration like others, so that a study records it and a confirmation runs it in turn. It is no loader: its
batches have an order of their own, so it cannot win. `autopipe.measure.feed` runs it.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NoReturn

from autopipe.errors import ConfigError
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.loader import LoadJob


class Foreign(LoaderConfig):
    """Plain code, or a function of the user's.

    Attributes:
        code: "tf.data", "keras", "fit" ..., a form of `autopipe eject --to`; or the user's own "FILE.py:function".
    """

    kind: Literal["foreign"] = "foreign"
    is_foreign: ClassVar[bool] = True
    code: str

    @property
    def is_own(self) -> bool:
        return ":" in self.code

    @property
    def whose(self) -> str:
        return f"yours: {self.code}" if self.is_own else f"plain code: autopipe eject --to {self.code}"

    def worker_count(self) -> int | None:
        return None

    def buffered_batches(self) -> int | None:
        return None

    def open(self, job: LoadJob) -> NoReturn:
        raise ConfigError(
            f"`{self.code}` is foreign code, which a tune compares with; it does not give the workload's batches.",
            hint="Use threads, processes or tfdata.",
        )
