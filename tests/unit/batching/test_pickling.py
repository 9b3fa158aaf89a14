"""What goes to workers by value, so that they need not import the user's own modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.batching.pickling import pickled, unpickled
from autopipe.core.op import Op
from autopipe.core.workload import Workload
from autopipe.ops.custom import Map
from autopipe.ops.on_parts import On
from autopipe.ops.planner import make_plan
from autopipe.storage.conversion import Conversion

MODULE = """
import dataclasses
from autopipe.core.op import Op

def doubled(x):
    return x * 2

@dataclasses.dataclass(frozen=True)
class Doubled(Op):
    def apply(self, sample, spec, random, out=None):
        return sample[0] * 2, sample[1]
"""


class Alone:
    """Four tiny images."""

    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> Any:
        return np.full((2, 2, 3), index, np.uint8)


class Pairs(Alone):
    """Four samples of two images."""

    def read(self, index: int) -> Any:
        image = super().read(index)
        return {"left": image, "right": image}, index


@pytest.mark.parametrize("made", ["function", "class"])
@pytest.mark.parametrize(("source", "part"), [(Alone, None), (Pairs, None), (Pairs, "left")])
def test_ops_of_a_module_that_workers_cannot_import_go_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, source: type[Alone], part: str | None
) -> None:
    file = tmp_path / "only_of_the_training.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(file.stem)
    op: Op = Map(module.doubled) if made == "function" else module.Doubled()
    workload = Workload(data=source(), ops=[op if part is None else On(part, op)], batch_size=2)
    packed = pickled(Conversion.of(workload, make_plan(workload), 1), "Processes")

    file.unlink()
    monkeypatch.delitem(sys.modules, file.stem)
    importlib.invalidate_caches()
    image, *_ = unpickled(packed).sample(3)
    assert np.all(image == 6)
