from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe import errors
from autopipe.core.outcome import FailureKind, Phase
from autopipe.data.arrays import Arrays
from autopipe.ops.custom import Map
from autopipe.ops.reading import op_failure
from autopipe.trial.classify import failure_of, kind_of


class ResourceExhaustedError(Exception):
    """Named like TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "phase", "kind"),
    [
        (errors.ConfigError("x"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (errors.StorageError("x"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (errors.MissingExtraError("x"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (NotImplementedError("x"), Phase.MEASURE, FailureKind.UNSUPPORTED),
        (errors.LoaderError("/dev/shm is too small"), Phase.OPEN, FailureKind.UNSUPPORTED),
        (errors.LoaderError("lost"), Phase.MEASURE, FailureKind.CRASHED),
        (errors.WorkerDiedError("x"), Phase.OPEN, FailureKind.CRASHED),
        (errors.ModelError("x"), Phase.MEASURE, FailureKind.BUILD),
        (errors.BadSampleError("x"), Phase.BUILD, FailureKind.BAD_DATA),
        (errors.OpError("x"), Phase.MEASURE, FailureKind.BAD_DATA),
        (errors.DataError("no such folder"), Phase.IMPORT, FailureKind.BAD_DATA),
        (errors.WorkloadError("x"), Phase.IMPORT, FailureKind.IMPORT),
        (errors.WorkloadError("x"), Phase.BUILD, FailureKind.BUILD),
        (errors.WorkloadError("x"), Phase.MEASURE, FailureKind.BAD_DATA),
        (ImportError("x"), Phase.IMPORT, FailureKind.IMPORT),
        (ValueError("shapes"), Phase.WARM_UP, FailureKind.BUILD),
        (ValueError("x"), Phase.MEASURE, FailureKind.CRASHED),
        (MemoryError(), Phase.MEASURE, FailureKind.OUT_OF_MEMORY),
        (MemoryError(), Phase.IMPORT, FailureKind.OUT_OF_MEMORY),
        (OSError(errno.ENOMEM, "x"), Phase.OPEN, FailureKind.OUT_OF_MEMORY),
        (ResourceExhaustedError("x"), Phase.WARM_UP, FailureKind.OUT_OF_MEMORY),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), Phase.MEASURE, FailureKind.OUT_OF_MEMORY),
        (SystemExit(1), Phase.MEASURE, FailureKind.CRASHED),
    ],
)
def test_each_exception_has_its_kind(error: BaseException, phase: Phase, kind: FailureKind) -> None:
    assert kind is kind_of(error, phase)


def test_a_message_of_ours_is_kept_with_its_hint() -> None:
    failure = failure_of(errors.ModelError("Rule.", hint="Do."), Phase.BUILD)
    assert (failure.message, failure.hint) == ("Rule.", "Do.")


def test_another_message_names_its_type_and_gets_a_hint() -> None:
    failure = failure_of(ValueError("bad shape"), Phase.WARM_UP)
    assert failure.message == "ValueError: bad shape"
    assert failure.hint is not None


def test_an_exception_without_a_message_has_one() -> None:
    assert failure_of(MemoryError(), Phase.MEASURE).message == "MemoryError"


def test_a_long_message_is_cut() -> None:
    assert len(failure_of(ValueError("x" * 10_000), Phase.MEASURE).message) == 2000


GRAPH = """Graph execution error:

Detected at node DecodeJpeg defined at (most recent call last):
<stack traces unavailable>
Unknown image file format. One of JPEG, PNG, GIF, BMP required.
\t [[{{node DecodeJpeg}}]]
\t [[IteratorGetNext]] [Op:__inference_multi_step_on_iterator_293]"""


def test_of_tensorflows_graph_errors_the_line_that_tells_something_is_kept() -> None:
    failure = failure_of(ValueError(GRAPH), Phase.FIRST_BATCH)
    assert failure.message == "ValueError: Unknown image file format. One of JPEG, PNG, GIF, BMP required."


def raised_by_a_script(folder: Path, code: str) -> RuntimeError:
    """Return what the function `run` of a user's own file raises."""
    file = folder / "train.py"
    file.write_text(code)
    module: dict[str, Any] = {}
    exec(compile(code, str(file), "exec"), module)
    with pytest.raises(RuntimeError) as raised:
        module["run"]()
    return raised.value


def test_what_an_op_raised_names_the_line_and_promises_nothing_that_is_not_shown(tmp_path: Path) -> None:
    cause = raised_by_a_script(tmp_path, "def run():\n    raise RuntimeError('no such colour')\n")
    error = op_failure(cause, Map(lambda x: x), Arrays(np.zeros((3, 2))), 2)
    error.__cause__ = cause
    failure = failure_of(error, Phase.OPEN)
    told, line = failure.message.splitlines()
    assert told.startswith("Map on sample 2 (")
    assert told.endswith(" raised RuntimeError: no such colour")
    assert line == "  train.py, line 2, in run: raise RuntimeError('no such colour')"
    assert failure.hint is not None
    assert "above" not in failure.hint
    assert "function" in failure.hint
    assert "on_bad_sample" not in failure.hint  # which skips samples that cannot be read, and no others


def test_what_the_users_code_raised_names_the_line(tmp_path: Path) -> None:
    failure = failure_of(
        raised_by_a_script(tmp_path, "def run():\n    raise RuntimeError('no weights')\n"), Phase.BUILD
    )
    assert failure.message.splitlines()[0] == "RuntimeError: no weights"
    assert failure.message.splitlines()[-1] == ("  train.py, line 2, in run: raise RuntimeError('no weights')")


@pytest.mark.parametrize("phase", [Phase.WARM_UP, Phase.FIRST_BATCH, Phase.MEASURE])
def test_a_label_that_the_model_has_no_output_for_is_of_the_model_whenever_it_shows(phase: Phase) -> None:
    failure = failure_of(ValueError("Received a label value of 4 which is outside the valid range of [0, 3)."), phase)
    assert failure.kind is FailureKind.BUILD
    assert failure.hint is not None
    assert "an output for each class" in failure.hint
