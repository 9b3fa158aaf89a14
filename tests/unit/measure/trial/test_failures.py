import errno
import faulthandler
import itertools
import re
import signal
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe import errors
from autopipe.errors import ConfigError
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.measure.trial import supervise
from autopipe.measure.trial.runner import failure_of, kind_of
from autopipe.measure.trial.supervise import VARIABLE, Deadlines, Watch, asked
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.planner import op_failure
from tests.fakes.facts import known


def kind(watch: Watch, now: float) -> FailureKind | None:
    failure = watch.failure(now)
    return None if failure is None else failure.kind


DEADLINES = Deadlines(open_seconds=10.0, measure_seconds=5.0, request_seconds=60.0)


def test_a_silence_up_to_the_deadline_of_its_phase_is_fine_and_beyond_it_is_hung() -> None:
    assert all(Deadlines().of(phase) > 0 for phase in Phase)
    watch = Watch(DEADLINES, Phase.OPEN, now=100.0)
    assert (kind(watch, 109.9), kind(watch, 110.0)) == (None, FailureKind.HUNG)
    watch.heard(109.0)
    assert kind(watch, 118.0) is None
    watch.enter(Phase.MEASURE, now=118.0)
    assert (kind(watch, 122.9), kind(watch, 123.0)) == (None, FailureKind.HUNG)
    assert "5 s in phase `measure`" in known(watch.failure(123.0)).message
    watch.enter(Phase.OPEN, now=120.0)
    watch.heard(120.5)
    assert watch.phase_seconds == {Phase.OPEN: 18.5, Phase.MEASURE: 2.0}


def test_a_silence_is_told_with_the_users_line_at_which_it_stands(tmp_path: Path) -> None:
    silent = known(Watch(DEADLINES, Phase.MEASURE, now=100.0).failure(200.0))
    with (tmp_path / "log").open("w") as log:
        faulthandler.dump_traceback(log)  # of this line
    failure = supervise._with_log(silent, (tmp_path / "log").read_text())
    assert re.search(r"test_failures\.py, line \d+, in test_a_.*: `faulthandler\.dump_tr.*`", failure.message)
    assert supervise._with_log(silent, "nothing of his").log_tail == "nothing of his"
    ended = supervise._with_log(supervise.dead(Phase.MEASURE, -6, 0, 0), (tmp_path / "log").read_text())
    assert "A thread stood at test_failures.py, line " in ended.message


def test_talking_for_ever_is_a_timeout() -> None:
    watch = Watch(DEADLINES, Phase.MEASURE, now=0.0)
    assert watch.left_seconds(4.0) == 1.0  # up to whichever comes first
    for now in range(1, 61):
        watch.heard(float(now))
    assert (watch.left_seconds(57.0), watch.left_seconds(99.0)) == (3.0, 0.0)
    assert kind(watch, 60.0) is FailureKind.TIMEOUT
    assert "phase `measure` after 60 s" in known(watch.failure(60.0)).message


def test_the_environment_allows_more_time_as_the_hint_says() -> None:
    hung = Watch(Deadlines(), Phase.BUILD, now=0.0).failure(1000.0)
    assert f"{VARIABLE}=4 " in str(known(hung).hint)
    more, usual = asked({VARIABLE: "4"}), Deadlines()
    assert (more.build_seconds, more.request_seconds) == (4 * usual.build_seconds, 4 * usual.request_seconds)
    assert asked({}) == asked({VARIABLE: " "}) == usual
    for text in ("0", "-1", "inf", "nan", "much"):
        with pytest.raises(ConfigError, match=VARIABLE):
            asked({VARIABLE: text})


GIB = 1 << 30
PLENTY, MUCH, KERNEL = (GIB, 0), (9 * GIB, 0), (GIB, 1)  # the most that it held, and kills for memory


def test_a_death_is_named_and_blamed_on_memory_only_if_the_kernel_says_so() -> None:
    for status, memory, kind, words in (
        (-signal.SIGKILL, PLENTY, FailureKind.CRASHED, "SIGKILL"),
        (-signal.SIGKILL, MUCH, FailureKind.CRASHED, "9 GiB"),  # what it held is told
        (-signal.SIGKILL, KERNEL, FailureKind.OUT_OF_MEMORY, "SIGKILL"),  # only if the kernel says so
        (-signal.SIGSEGV, MUCH, FailureKind.CRASHED, "was ended by SIGSEGV"),
        (-250, PLENTY, FailureKind.CRASHED, "was ended by signal 250"),
        (3, KERNEL, FailureKind.CRASHED, "exited with status 3"),
        (None, PLENTY, FailureKind.CRASHED, "closed its channel"),
    ):
        failure = supervise.dead(Phase.MEASURE, status, *memory)
        assert (failure.kind, words in failure.message) == (kind, True)


def test_a_crash_while_the_kernel_killed_a_worker_is_out_of_memory() -> None:
    crashed, no_memory, bad = FailureKind.CRASHED, FailureKind.OUT_OF_MEMORY, FailureKind.BAD_DATA
    for kind, kills, expected in ((crashed, 1, no_memory), (crashed, 0, crashed), (bad, 1, bad)):
        failure = TrialFailure(kind=kind, phase=Phase.MEASURE, message="x")
        assert expected is supervise.blamed_on_memory(failure, kills).kind


class ResourceExhaustedError(Exception):
    """Named like TensorFlow's."""


KINDS: dict[FailureKind, list[tuple[BaseException, Phase]]] = {
    FailureKind.UNSUPPORTED: [
        (errors.ConfigError("x"), Phase.OPEN), (errors.MissingExtraError("x"), Phase.OPEN),
        (NotImplementedError("x"), Phase.MEASURE), (errors.LoaderError("/dev/shm is too small"), Phase.OPEN),
    ],
    FailureKind.CRASHED: [
        (errors.LoaderError("lost"), Phase.MEASURE), (errors.WorkerDiedError("x"), Phase.OPEN),
        (ValueError("x"), Phase.MEASURE), (SystemExit(1), Phase.MEASURE),
    ],
    FailureKind.BUILD: [
        (errors.ModelError("x"), Phase.MEASURE), (errors.WorkloadError("x"), Phase.BUILD),
        (ValueError("shapes"), Phase.WARM_UP),
    ],
    FailureKind.BAD_DATA: [
        (errors.BadSampleError("x"), Phase.BUILD), (errors.OpError("x"), Phase.MEASURE),
        (errors.DataError("no such folder"), Phase.IMPORT), (errors.WorkloadError("x"), Phase.MEASURE),
    ],
    FailureKind.IMPORT: [(errors.WorkloadError("x"), Phase.IMPORT), (ImportError("x"), Phase.IMPORT)],
    FailureKind.OUT_OF_MEMORY: [
        (MemoryError(), Phase.MEASURE), (MemoryError(), Phase.IMPORT), (OSError(errno.ENOMEM, "x"), Phase.OPEN),
        (ResourceExhaustedError("x"), Phase.WARM_UP),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), Phase.MEASURE),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_exception_has_its_kind(kind: FailureKind) -> None:
    assert [kind_of(error, phase) for error, phase in KINDS[kind]] == [kind] * len(KINDS[kind])


GRAPH = """Graph execution error:

Detected at node DecodeJpeg defined at (most recent call last):
<stack traces unavailable>
Unknown image file format. One of JPEG, PNG, GIF, BMP required.
\t [[{{node DecodeJpeg}}]]
\t [[IteratorGetNext]] [Op:__inference_multi_step_on_iterator_293]"""
REPEATED = """{{function_node __wrapped__IteratorGetNext}} ValueError: no such picture
Traceback (most recent call last):

  File "/own/train.py", line 6, in __getitem__
    return read(self.files[i])
           ^^^^

ValueError: no such picture


\t [[{{node PyFunc}}]] [Op:IteratorGetNext] name:"""


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (errors.ModelError("Rule.", hint="Do."), "Rule.", "Do."),
        (ValueError("bad shape"), "ValueError: bad shape", "`model` by hand"),
        (MemoryError(), "MemoryError", "fewer workers"),
        (ValueError("x" * 10_000), f"ValueError: {'x' * 1987}…", "`model` by hand"),  # 2,000 characters
        (ValueError(GRAPH), "ValueError: Unknown image file format. One of JPEG, PNG, GIF, BMP required.", ""),
        (RuntimeError(REPEATED), "RuntimeError: ValueError: no such picture\n"
         "  train.py, line 6, in __getitem__: return read(self.files[i])", ""),
    ],
    ids=["ours", "another", "without a message", "long", "of a graph", "with a traceback"],
)  # fmt: skip
def test_a_message_of_ours_is_kept_and_another_names_its_type_and_gets_a_hint(
    error: Exception, message: str, hint: str
) -> None:
    failure = failure_of(error, Phase.WARM_UP)
    assert (failure.message, hint in str(failure.hint)) == (message, True)


def raised_by_a_script(folder: Path, code: str) -> RuntimeError:
    """Return what the function `run` of a user's own file raises."""
    (file := folder / "train.py").write_text(code)
    module: dict[str, Any] = {}
    exec(compile(code, str(file), "exec"), module)
    with pytest.raises(RuntimeError) as raised:
        module["run"]()
    return raised.value


def test_what_the_users_code_raised_names_the_line_and_promises_nothing_that_is_not_shown(tmp_path: Path) -> None:
    cause = raised_by_a_script(tmp_path, "def run():\n    raise RuntimeError('no such colour')\n")
    error = op_failure(cause, Map(lambda x: x), Arrays(np.zeros((3, 2))), 2)
    error.__cause__ = cause
    failure, line = failure_of(error, Phase.OPEN), "  train.py, line 2, in run: raise RuntimeError('no such colour')"
    told, *lines = failure.message.splitlines()
    assert re.fullmatch(r"Map on sample 2 \(.* raised RuntimeError: no such colour", told)
    assert lines == [line]
    assert "function" in known(failure.hint)
    for word in ("above", "on_bad_sample"):  # which skips samples that cannot be read, and no others
        assert word not in known(failure.hint)
    told, *_, last = failure_of(cause, Phase.BUILD).message.splitlines()
    assert (told, last) == ("RuntimeError: no such colour", line)


def test_an_exception_is_called_as_code_calls_it_and_no_hint_speaks_of_a_sample_before_one_was_read() -> None:
    with pytest.raises(cv2.error) as raised:
        cv2.resize(np.zeros((0, 0)), (2, 2))
    assert failure_of(raised.value, Phase.BUILD).message.startswith("cv2.error: OpenCV")
    error = errors.DataError("`x` and `y` must be equally long")
    assert failure_of(error, Phase.IMPORT).hint is None
    assert "--files" in str(failure_of(error, Phase.FILL, "train.py:workload").hint)


def test_outputs_that_do_not_fit_y_are_of_the_model_whenever_that_shows() -> None:
    shapes = "Arguments `target` and `output` must have the same shape. Received: (8, 1), (8, 3)"
    hints = {
        "Received a label value of 4 which is outside the valid range of [0, 3).": "an output for each class",
        "y_true and y_pred have different structures.\ny_true: {'a': *}\ny_pred: *": "have the same parts",
        shapes: "sparse_categorical_crossentropy",
    }
    for phase, said in itertools.product((Phase.WARM_UP, Phase.FIRST_BATCH, Phase.MEASURE), hints):
        failure = failure_of(ValueError(said), phase)
        assert (failure.kind, hints[said] in str(failure.hint)) == (FailureKind.BUILD, True)
        of_masks = f"{said}  Label values: {'0 1 ' * 99} [[{{{{node Op}}}}]]"
        assert "Label values" not in failure_of(ValueError(of_masks), phase).message
