"""Sessions that misbehave on request: what a trial's child can do to the process that supervises it.

Loaded in child processes by name, "trial_sessions:FakeSession". The option `fault` says what happens.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autopipe import errors
from autopipe.measure import outcome
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import Measurement, Options, Phase, Report, Resources
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate
from autopipe.workload.workload import Workload
from tests.fakes.facts import DESCRIBED, measurement

SLEEPER = [sys.executable, "-c", "import time; print('asleep', flush=True); time.sleep(600)"]


def for_ever() -> None:
    while True:
        time.sleep(60)


FAULTS: dict[str, Callable[[], object]] = {
    "hang": for_ever,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(7),
    "sys_exit": lambda: sys.exit("enough"),
    "bind": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "thread_that_stays": lambda: threading.Thread(target=for_ever, daemon=False).start(),
}


class FakeSession:
    """Measures nothing, and does one wrong thing first: one of `FAULTS`, or a method that has the options at hand."""

    options: Options
    report: Report

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.kept: list[Any] = []
        self.closing: Callable[[], None] = lambda: None

    def measure(self, config: PipelineConfig, options: Options, report: Report) -> Measurement:
        self.options, self.report = options, report
        report.phase(Phase.OPEN)
        report.phase(Phase.MEASURE)
        if "fault" in options:
            self.do(str(options["fault"]))
        report.progress(64, 100.0)
        report.phase(Phase.CLOSE)
        found = measurement(config, [100.0], batch_size=2)
        return found.model_copy(update={"ran": found.ran.model_copy(update={"processes": os.getpid()})})

    def describe(self, report: Report) -> Description:
        return DESCRIBED

    def ceiling(self, options: Options, report: Report) -> Ceiling:
        rate = Estimate(value=float(self.workload.batch_size), low=1.0, high=9.0)
        return Ceiling(model_images_per_second=rate, model_core_seconds_per_image=0.1)

    def verify(self, configs: Sequence[PipelineConfig], options: Options, report: Report) -> outcome.Verification:
        return outcome.Verification(agreements=())

    def close(self) -> None:
        self.closing()

    def write(self, text: str) -> None:
        Path(str(self.options["path"])).write_text(text)

    def do(self, fault: str) -> None:
        (FAULTS.get(fault) or getattr(self, f"_{fault}"))()

    def _abort(self) -> None:  # its name stands in the trace
        os.abort()

    def _raise(self) -> None:
        raise errors.OpError("Rule broken.", hint="Do this.")

    def _hang_and_ignore_sigterm(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for_ever()

    def _hang_in_close(self) -> None:
        self.closing = for_ever

    def _creep(self) -> None:
        while True:
            self.report.progress(1, 0.1)
            time.sleep(0.05)

    def _mark_close_then_hang(self) -> None:
        self.closing = lambda: self.write("closed")
        self.report.log("hanging")
        for_ever()

    def _leave_a_file_and_die(self) -> None:
        folder = self.options.get("folder")
        self.write(tempfile.mkdtemp(dir=None if folder is None else str(folder)))
        self.do("kill")

    def _terminate(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for_ever()

    def _allocate(self) -> None:
        while True:
            self.kept.append(b"x" * (16 << 20))
            self.report.progress(1, 1.0)
            time.sleep(0.01)

    def _grow(self) -> None:
        self.kept.append(b"x" * int(str(self.options["bytes"])))

    def _print_megabytes(self) -> None:
        for _ in range(200):
            sys.stdout.write("noise " * 5000 + "\n")
            os.write(2, b'{"event": "done"}\n')
        sys.stdout.write("last words\n")

    def _garbage(self) -> None:
        for fd in range(3, 1024):
            with contextlib.suppress(OSError):
                os.write(fd, b"this is not JSON\n")
        for_ever()

    def _close_all_files(self) -> None:
        os.closerange(3, 1024)
        for_ever()

    def _grandchild(self) -> None:
        """Leave a process that holds the channel open, in this group or in one of its own."""
        for fd in range(3, 1024):
            with contextlib.suppress(OSError):
                os.set_inheritable(fd, True)
        own = bool(self.options.get("own_session"))
        process = subprocess.Popen(SLEEPER, close_fds=False, start_new_session=own, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        self.kept.append(process)
        self.write(str(process.pid))
        if "then" in self.options:
            self.report.log("grandchild started")
            self.do(str(self.options["then"]))


class SmallSession(FakeSession):
    """Has room for a batch of 64, and a model that takes no odd one; the faster reading is that of the second round."""

    def ceiling(self, options: Options, report: Report) -> Ceiling:
        wanted = outcome.CeilingOptions.model_validate(options)
        size = wanted.samples or self.workload.batch_size
        if size > 64:
            raise MemoryError
        if size % 2:
            raise errors.ModelError("The model takes even batches only.")
        value, used = 10.0 * size + wanted.again, Resources(peak_rss_bytes=1000 * size) if wanted.resources else None
        rate = Estimate(value=value, low=value, high=value)
        return Ceiling(model_images_per_second=rate, model_core_seconds_per_image=0.0, resources=used)


class Refuses:
    def __init__(self, workload: Workload) -> None:
        raise errors.ModelError("The model must be compiled, but is not.", hint="Call compile().")


class WarningSession(FakeSession):
    """Warns of the data that it looks at, as the ops of a plan do."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        warnings.warn("4 of 4 images lie on their side.", errors.DataWarning, stacklevel=2)
