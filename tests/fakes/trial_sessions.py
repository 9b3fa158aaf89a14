"""Sessions that misbehave on request: what a trial's child can do to the process that supervises it.

Loaded in child processes by name, "trial_sessions:FakeSession". The option `fault` says what happens.
"""

from __future__ import annotations

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
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import Measurement, Options, Phase, Ran, Report, StepTime, Verification, Window
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate, JsonObject
from autopipe.workload.mode import Mode
from autopipe.workload.workload import Workload

SLEEPER = [sys.executable, "-c", "import time; print('asleep', flush=True); time.sleep(600)"]


def for_ever() -> None:
    while True:
        time.sleep(60)


class FakeSession:
    """Measures nothing, and does one wrong thing first."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.kept: list[Any] = []
        self.closing: Callable[[], None] = lambda: None

    def measure(self, config: PipelineConfig, options: Options, report: Report) -> Measurement:
        report.phase(Phase.OPEN)
        report.phase(Phase.MEASURE)
        fault = options.get("fault")
        if fault is not None:
            getattr(self, f"_{fault}")(options, report)
        report.progress(64, 100.0)
        report.phase(Phase.CLOSE)
        return measurement(config)

    def ceiling(self, options: Options, report: Report) -> Ceiling:
        rate = Estimate(value=float(self.workload.batch_size), low=1.0, high=9.0)
        return Ceiling(model_images_per_second=rate, model_core_seconds_per_image=0.1)

    def step_time(self, mode: Mode, options: Options, report: Report) -> StepTime:
        took = Estimate(value=0.02, low=0.01, high=0.03)
        return StepTime(mode=mode, batch_size=2, step_seconds=took, first_call_seconds=1.0, backend="none")

    def verify(self, configs: Sequence[PipelineConfig], options: Options, report: Report) -> Verification:
        return Verification(agreements=())

    def close(self) -> None:
        self.closing()

    def _hang(self, options: Options, report: Report) -> None:
        for_ever()

    def _hang_and_ignore_sigterm(self, options: Options, report: Report) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for_ever()

    def _hang_in_close(self, options: Options, report: Report) -> None:
        self.closing = for_ever

    def _creep(self, options: Options, report: Report) -> None:
        while True:
            report.progress(1, 0.1)
            time.sleep(0.05)

    def _mark_close_then_hang(self, options: Options, report: Report) -> None:
        def leave_a_mark() -> None:
            Path(str(options["path"])).write_text("closed")

        self.closing = leave_a_mark
        report.log("hanging")
        for_ever()

    def _abort(self, options: Options, report: Report) -> None:
        os.abort()

    def _exit(self, options: Options, report: Report) -> None:
        os._exit(7)

    def _sys_exit(self, options: Options, report: Report) -> None:
        sys.exit("enough")

    def _kill(self, options: Options, report: Report) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _leave_a_file_and_die(self, options: Options, report: Report) -> None:
        folder = options.get("folder")
        Path(str(options["path"])).write_text(tempfile.mkdtemp(dir=None if folder is None else str(folder)))
        os.kill(os.getpid(), signal.SIGKILL)

    def _terminate(self, options: Options, report: Report) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for_ever()

    def _raise(self, options: Options, report: Report) -> None:
        raise getattr(errors, str(options["error"]))("Rule broken.", hint="Do this.")

    def _allocate(self, options: Options, report: Report) -> None:
        while True:
            self.kept.append(b"x" * (16 << 20))
            report.progress(1, 1.0)
            time.sleep(0.01)

    def _grow(self, options: Options, report: Report) -> None:
        self.kept.append(b"x" * int(str(options["bytes"])))

    def _print_megabytes(self, options: Options, report: Report) -> None:
        for _ in range(200):
            sys.stdout.write("noise " * 5000 + "\n")
            os.write(2, b'{"event": "done"}\n')
        sys.stdout.write("last words\n")

    def _garbage(self, options: Options, report: Report) -> None:
        for fd in range(3, 1024):
            try:
                os.write(fd, b"this is not JSON\n")
            except OSError:
                continue
        for_ever()

    def _close_all_files(self, options: Options, report: Report) -> None:
        os.closerange(3, 1024)
        for_ever()

    def _grandchild(self, options: Options, report: Report) -> None:
        """Leave a process that holds the channel open, in this group or in one of its own."""
        for fd in range(3, 1024):
            try:
                os.set_inheritable(fd, True)
            except OSError:
                continue
        own = bool(options.get("own_session"))
        process = subprocess.Popen(SLEEPER, close_fds=False, start_new_session=own, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        self.kept.append(process)
        Path(str(options["path"])).write_text(str(process.pid))
        if "then" in options:
            report.log("grandchild started")
            getattr(self, f"_{options['then']}")(options, report)

    def _thread_that_stays(self, options: Options, report: Report) -> None:
        threading.Thread(target=for_ever, daemon=False).start()


class Refuses:
    """A session that cannot be made."""

    def __init__(self, workload: Workload) -> None:
        raise errors.ModelError("The model must be compiled, but is not.", hint="Call compile().")


def measurement(config: PipelineConfig) -> Measurement:
    canonical: JsonObject = config.model_dump(mode="json")
    return Measurement(
        config=canonical,
        config_key=config.key(),
        batch_size=2,
        windows=(Window(images=64, seconds=0.001),),
        images_per_second=Estimate(value=100.0, low=99.0, high=101.0),
        first_batch_seconds=0.1,
        stable=True,
        data_wait_share=0.0,
        page_cache="warm",
        ran=Ran(threads=1, processes=os.getpid(), devices=("CPU:0",), backend="none", versions={}),
    )


class WarningSession(FakeSession):
    """Warns of the data that it looks at, as the ops of a plan do."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        warnings.warn("4 of 4 images lie on their side.", errors.DataWarning, stacklevel=2)
