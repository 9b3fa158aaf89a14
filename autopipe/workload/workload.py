"""The workload: data, ops, batch size and model. A configuration (`autopipe.pipeline.config`) says how it is fed."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from autopipe.errors import WorkloadError, shortened
from autopipe.values import count_text
from autopipe.workload.data import source
from autopipe.workload.data.paths import located, require_text
from autopipe.workload.op import Op
from autopipe.workload.order import Blocks
from autopipe.workload.sample import Source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Data, ops, batch size and model. The sequence of batches is a function of the workload, its seed and the epoch.

    Attributes:
        data: one of autopipe's sources, or any object with `__len__` and `read(index)`.
        ops: the ops on each sample, in order.
        batch_size: samples a batch, over all devices together.
        model: a function without arguments that returns a compiled `keras.Model`, or such a model.
        seed: all randomness comes from it.
        shuffle: whether each epoch has an order of its own. `ap.Blocks()` shuffles blocks of neighbours: volumes are
            then unpacked once an epoch, not once a slice.
        drop_remainder: whether a last batch that is short is left out.
        on_bad_sample: "error" stops at a sample that cannot be read; "skip" puts another in its place, counts it and
            lists it, and fails the epoch only when more than 1 % are bad.
        bad_sample_log: the file (JSON lines) that lists skipped samples of a training; without it they cause a warning.
            A relative path starts at the working directory, because the file is written.
        converted: the folder or URL with converted samples, for configurations whose `keep` names a form. As with
            data, a relative path starts at the script that writes this.
        epochs: how many epochs the training will take, if known; one-time costs are judged by it.
        validation: the samples that each epoch validates on, in order and without chance. A trainer validates on them
            unless it is told others, and a tune measures whole epochs with them.
    """

    data: Source
    ops: Sequence[Op]
    batch_size: int
    model: Callable[[], Any] | Any = None
    seed: int = 0
    shuffle: bool | Blocks = True
    drop_remainder: bool = False
    on_bad_sample: Literal["error", "skip"] = "error"
    bad_sample_log: str = "autopipe_bad_samples.jsonl"
    converted: str = "converted"
    epochs: int | None = None
    validation: Source | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", _ops_of(self.data, self.ops))
        require_text(self.converted)
        if "://" not in os.fspath(self.converted):
            object.__setattr__(self, "converted", located(self.converted, warns=False))
        _require_samples("data", self.data)
        if self.validation is not None:
            _require_samples("validation", self.validation)
            source.require_same_classes(self.data, self.validation)
        if isinstance(self.batch_size, bool) or not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise WorkloadError(f"`batch_size` must be a whole number >= 1, but got batch_size={self.batch_size!r}.")
        try:
            object.__setattr__(self, "seed", operator.index(self.seed))  # also of NumPy's whole numbers, which overflow
        except TypeError:
            raise WorkloadError(f"`seed` must be a whole number, but got seed={self.seed!r}.") from None
        if self.on_bad_sample not in ("error", "skip"):
            raise WorkloadError(f'`on_bad_sample` must be "error" or "skip", but got {self.on_bad_sample!r}.')
        count = len(self.data)
        if self.batch_size > count:
            raise WorkloadError(
                f"`batch_size` must not exceed the data: batch_size={self.batch_size}, but there "
                f"{'is' if count == 1 else 'are'} {count_text(count, 'sample')}.",
                hint=f"Use a batch size of at most {count}.",
            )
        _ = self.blocks

    @property
    def blocks(self) -> tuple[Sequence[int], int] | None:
        """The first sample of each block, and how many blocks are mixed; None unless `shuffle` is `Blocks`. Raise
        WorkloadError if nothing says what a block is.
        """
        if not isinstance(self.shuffle, Blocks):
            return None
        if self.shuffle.size is not None:
            return range(0, len(self.data), self.shuffle.size), self.shuffle.mixed
        if (starts := getattr(self.data, "block_starts", None)) is None:
            raise WorkloadError(
                f"`shuffle` is {self.shuffle}, and {shortened(self.data)} has no blocks of its own, as ap.Windows has.",
                hint="Say how many neighbours are a block: shuffle=ap.Blocks(size=256).",
            )
        return starts, self.shuffle.mixed


def under_policy_of_here(workload: Workload) -> Workload:
    """Return the workload for another process, whose model is built under this one's dtype policy of Keras."""
    keras, model = sys.modules.get("keras"), workload.model
    if keras is None or not callable(model) or isinstance(model, keras.Model):
        return workload
    policy = keras.config.dtype_policy().name
    usual = policy == "float32"
    return workload if usual else dataclasses.replace(workload, model=functools.partial(_under_policy, policy, model))


def _under_policy(policy: str, model: Callable[[], Any]) -> Any:
    importlib.import_module("keras").config.set_dtype_policy(policy)
    return model()


def _ops_of(data: Any, ops: Any) -> tuple[Op, ...]:
    if not isinstance(ops, Iterable):
        hint = "Write ops=[...], also of a single one, and ops=[] for none."
        raise WorkloadError(f"`ops` must be a list of ops, but got {shortened(ops)}.", hint=hint)
    first, given = getattr(data, "first_op", None), tuple(ops)
    made = given if first is None else (first, *(op for op in given if type(op) is not type(first)))
    for op in made:
        if not isinstance(op, Op):
            is_class = isinstance(op, type) and issubclass(op, Op)
            hint = f"Write ap.{op.__name__}(...)." if is_class else "Wrap a function of your own as ap.Map(function)."
            raise WorkloadError(f"`ops` must hold ops, but got {shortened(op)}.", hint=hint)
        if op.target not in ("image", "mask", "both"):
            raise WorkloadError(f'`on` of {op.name} must be "image", "mask" or "both", but got {op.target!r}.')
    return tuple(op.followed_by(made[at:]) for at, op in enumerate(made, start=1))


def _require_samples(name: str, given: Any) -> None:
    if not isinstance(given, Source):
        raise WorkloadError(
            f"`{name}` must have `__len__` and `read(index)`, but got {shortened(given)}.",
            hint="Use ap.ImageFolder, ap.ImagePairs, ap.Table, ap.Arrays or ap.TFRecords, or write such a class. "
            "ap.wrap takes a tf.data.Dataset, or a dataset whose dataset[i] is a batch.",
        )
    if len(given) < 1:
        raise WorkloadError(f"`{name}` must hold at least one sample, but {shortened(given)} holds none.")
