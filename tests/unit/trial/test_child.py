from __future__ import annotations

import errno
import os
import tempfile
from typing import Any, NoReturn

import pytest

from autopipe.errors import TrialError
from autopipe.trial.child import Child, Launch


def test_that_the_temporary_folder_is_full_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/autopipe-trial-1")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(TrialError, match=r"No space left on device: '/full/autopipe-trial-1'") as caught:
        Child(Launch(workload="train.py:workload"))
    assert "TMPDIR" in str(caught.value.hint)
