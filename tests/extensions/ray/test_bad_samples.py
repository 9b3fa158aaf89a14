"""Which samples that a node of a Ray cluster skipped are skipped; no cluster is needed. With one: nodes/."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from autopipe.errors import BadSampleError, LoaderError
from autopipe.extensions.ray.loader import _Filler
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.loader import Recipe
from autopipe.workload.op import Op
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.sizes import RandomCrop
from autopipe.workload.ops.values import MaskToClass
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload

BAD = 2


class Images:
    """Four images with masks; one image is smaller, in one mask a colour is in no palette."""

    x_kind = FieldKind.IMAGE
    y_kind = FieldKind.MASK

    def __init__(self, *, small: bool = False, strange: bool = False) -> None:
        self.small, self.strange = small, strange

    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> Any:
        size = 4 if self.small and index == BAD else 8
        image = np.full((size, size, 3), index, np.uint8)
        return image, np.full((size, size, 3), self.strange and index == BAD, np.uint8)


def refused_now_and_then(image: Any, rng: np.random.Generator) -> Any:
    if image[0, 0, 0] == BAD and rng.random() > 0.6:
        raise BadSampleError("this time it is bad")
    return image


def recipe(data: Images, ops: list[Op]) -> Recipe:
    plan = make_plan(Workload(data=data, ops=ops, batch_size=2, on_bad_sample="skip"))
    return Recipe(
        source=data,
        steps=plan.prefix + plan.body,
        fixed_steps=len(plan.prefix),
        fixed_spec=plan.cut(len(plan.prefix)),
        spec=plan.compact,
        seed=3,
        on_bad_sample="skip",
        cached=1.0,
    )


def taken(made: Recipe, epoch: int, bad: list[BadSample]) -> list[BadSample]:
    """Return what the training skips of what a node has skipped."""
    nowhere = cast("Any", None)
    return _Filler(nowhere, nowhere, made)._taken((None, bad), nowhere, epoch)


@pytest.mark.parametrize(
    ("data", "ops"),
    [
        (Images(small=True), [RandomCrop(6, 6)]),
        (Images(strange=True), [RandomFlip(), MaskToClass([(0, 0, 0)], unknown=None)]),
    ],
    ids=["by a random op", "behind a random op"],
)
def test_a_sample_that_random_ops_or_later_ones_refuse_is_skipped(data: Images, ops: list[Op]) -> None:
    made = recipe(data, ops)
    kernel = Kernel(made)
    bad = kernel.fill(0, np.arange(4), kernel.spec.empty(4))
    assert [sample.index for sample in bad] == [BAD]
    assert taken(made, 0, bad) == bad


def test_a_sample_is_made_again_as_in_its_epoch() -> None:
    made = recipe(Images(), [Map(refused_now_and_then, random=True)])
    kernel = Kernel(made)
    found = [bool(kernel.fill(epoch, np.array([BAD]), kernel.spec.empty(1))) for epoch in range(12)]
    assert set(found) == {True, False}
    claimed = BadSample(BAD, BAD + 1, "bad there")
    for epoch, is_bad in enumerate(found):
        if is_bad:
            assert taken(made, epoch, [claimed]) == [claimed]
        else:
            with pytest.raises(LoaderError, match=r"Sample 2 is bad on a node .* and good on this machine: bad there"):
                taken(made, epoch, [claimed])
