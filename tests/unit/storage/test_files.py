from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autopipe.core.config import STORAGES
from autopipe.core.plan import Plan
from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.errors import StorageError

SPEC = SampleSpec(Field(FieldKind.IMAGE, (2, 2, 3), np.dtype(np.uint8)), None)
FILES = STORAGES["files"]


def test_files_keep_the_source_as_it_is() -> None:
    assert not FILES.converts
    assert FILES.cuts(Plan(SPEC, (), (), ())) == (0,)
    assert FILES.can_hold(SPEC)
    assert FILES.sample_bytes(SPEC, []) == 0


def test_there_is_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nothing to convert or open"):
        FILES.open(tmp_path, SPEC, [1])
