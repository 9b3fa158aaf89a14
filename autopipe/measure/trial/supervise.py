"""The parent's side of a trial: sends requests to the child, watches over it, and always returns a value.

A crash, a hang or too much memory is an outcome, and no process is left. The rules for replacing a child are here, the
deadlines, and the words for a silence or a death; those for an exception are the child's.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Self, TypeVar

import pydantic

from autopipe import errors
from autopipe.errors import ConfigError, TrialError
from autopipe.hardware import machine, processes
from autopipe.measure import outcome
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import MEMORY_HINT, FailureKind, Options, Phase, TrialFailure, Verification
from autopipe.measure.trial.child import EVENT, Answer, Ask, Child, Done, Event, Launch, Log, PhaseBegan, Ready, Request
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.values import Value, figure_text

# -------------------- deadlines, and failures in words

VARIABLE: Final = "AUTOPIPE_PATIENCE"  # the environment variable that multiplies all deadlines


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds without a sign of life, by phase, and seconds for a whole request. They separate a dead trial from a slow
    one, so they are generous: a framework takes 8 s to import on an idle machine and a minute on a loaded one, and a
    segmentation batch can take 10 s. `request` is for a whole trial without the loading of the workload; `end` is the
    time to clean up after SIGTERM, before SIGKILL.
    """

    start_seconds: float = 60.0
    import_seconds: float = 180.0
    build_seconds: float = 180.0
    warm_up_seconds: float = 300.0
    open_seconds: float = 60.0
    first_batch_seconds: float = 90.0
    fill_seconds: float = 120.0
    measure_seconds: float = 90.0
    close_seconds: float = 30.0
    request_seconds: float = 1200.0
    end_seconds: float = 3.0

    def of(self, phase: Phase) -> float:
        seconds: float = getattr(self, f"{phase.value}_seconds")
        return seconds


def asked(environment: Mapping[str, str] = os.environ) -> Deadlines:
    """Return the deadlines, multiplied by the environment's factor; raises ConfigError unless that is 1 or more."""
    text = environment.get(VARIABLE, "").strip() or "1"
    try:
        times = float(text)
    except ValueError:
        times = math.nan
    if not 1 <= times < math.inf:
        raise ConfigError(
            f"`{VARIABLE}` must be a number of 1 or more, but got {text!r}.",
            hint=f"{VARIABLE}=4 allows a trial four times as long; unset it for the usual deadlines.",
        )
    usual = dataclasses.asdict(Deadlines())
    return Deadlines(**{name: each if name == "end_seconds" else times * each for name, each in usual.items()})


class Watch:
    """Follows one request, which is cut at `until`."""

    def __init__(self, deadlines: Deadlines, phase: Phase, now: float, until: float = math.inf) -> None:
        self.phase = phase  # the phase it is in
        self.phase_seconds: dict[Phase, float] = {}  # durations up to the last clock reading
        self._deadlines, self._until = deadlines, until
        self._ends = min(until, now + deadlines.request_seconds)
        self._began = self._heard = now

    def enter(self, phase: Phase, now: float) -> None:
        self.heard(now)
        self.phase = phase

    def heard(self, now: float) -> None:
        self.phase_seconds[self.phase] = self.phase_seconds.get(self.phase, 0.0) + now - self._heard
        self._heard = now

    def left_seconds(self, now: float) -> float:
        return max(0.0, min(self._heard + self._deadlines.of(self.phase), self._ends) - now)

    def failure(self, now: float) -> TrialFailure | None:
        """Return the failure of a request whose time is up: it was silent for too long, or reports and does not end."""
        seconds, phase = self._deadlines.of(self.phase), self.phase
        hung = now - self._heard >= seconds
        if not hung and now < self._ends:
            return None
        if now >= self._until:
            message = "The budget has no time left for this trial."
            return TrialFailure(kind=FailureKind.INTERRUPTED, phase=phase, message=message)
        if hung:
            kind, hint = FailureKind.HUNG, "The log's tail shows where each thread stood."
            said = (
                f"No sign of life for {figure_text(seconds)} s in phase `{phase}`, which is all that it may be silent."
            )
        else:
            kind, hint = FailureKind.TIMEOUT, "This configuration, or the machine, is very slow."
            seconds = now - self._began
            said = f"Still in phase `{phase}` after {figure_text(seconds)} s, which is all that a trial may take."
        return TrialFailure(kind=kind, phase=phase, message=said, hint=f"{hint} {_MORE}")


def _with_log(failure: TrialFailure, tail: str) -> TrialFailure:
    """Return a failure with the end of the log, and with the user's line at which one that hung, or crashed, stands."""
    line = errors.waits_at(tail) if failure.kind in (FailureKind.HUNG, FailureKind.CRASHED) else None
    if line is None or failure.kind is FailureKind.CRASHED:
        said = "" if line is None else f" A thread stood at {line}."
        return failure.model_copy(update={"message": failure.message + said, "log_tail": tail})
    hint = f"If that line waits for a lock or a queue, look for what should serve it. {_MORE}"
    return failure.model_copy(update={"message": f"{failure.message} It stands at {line}.", "hint": hint})


_MORE = f"If it is only slow: {VARIABLE}=4 in the environment allows four times as long."


def dead(phase: Phase, status: int | None, held_bytes: int, oom_kills: int) -> TrialFailure:
    """Describe a process that ended, or closed its channel (`status` None), without an answer."""
    killed = status == -signal.SIGKILL
    held = f"; the trial's processes held {machine.size_text(held_bytes)}" if killed and held_bytes else ""
    if killed and oom_kills > 0:
        message = f"The kernel killed the trial's process (SIGKILL) in phase `{phase}` because memory was short{held}."
        return TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=phase, message=message, hint=MEMORY_HINT)
    message = f"The trial's process {_ending(status)} in phase `{phase}` without an answer{held}."
    hint = _SIGNAL_HINTS.get(status or 0, "The log's tail may show why.")
    return TrialFailure(kind=FailureKind.CRASHED, phase=phase, message=message, hint=hint)


def blamed_on_memory(failure: TrialFailure, oom_kills: int) -> TrialFailure:
    """Turn a crash into out of memory, if the kernel has just killed a process (a worker, say) for that."""
    if failure.kind is not FailureKind.CRASHED or oom_kills == 0:
        return failure
    return failure.model_copy(update={"kind": FailureKind.OUT_OF_MEMORY, "hint": MEMORY_HINT})


_SIGNAL_HINTS = {
    -signal.SIGKILL: "Something outside killed it: a person, a job scheduler, or a memory limit not seen from here.",
    -signal.SIGTERM: "Something outside ended it: a person or a job scheduler.",
    -signal.SIGSEGV: "A native library crashed; the log's tail shows the Python line that called it.",
    -signal.SIGABRT: "A native library gave up; the log's tail shows why, and the Python line that called it.",
}


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its channel"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


_DISCARDED = "partially cached contents of the dataset"  # TensorFlow's warning of it
_NO_CACHE = (
    "TensorFlow throws away the content of a `cache()` in each epoch, because no epoch reads all that it caches. Leave "
    "samples out before it: write `take(n).cache()` in place of `cache().take(n)`."
)

_Answer = TypeVar("_Answer", bound=Value)


@dataclasses.dataclass(eq=False)
class TrialRunner:
    """Measures configurations in a child process, one at a time: `TrialRunner(Launch(workload=...)).measure(config)`. A
    context manager; nothing is started before the first request. Every request returns an outcome. Ctrl-C, and
    exceptions of `on_event`, pass through after the child and all it started have been killed. A child that has grown
    too large is replaced, and so is one that a trial has bound to fewer cores.
    """

    launch: Launch
    _: dataclasses.KW_ONLY
    deadlines: Deadlines = dataclasses.field(default_factory=asked)
    growth_bytes: int | None = None  # since the first trial of a child; None: a gigabyte, or an eighth of what is free
    # for the child and all it starts; None: their memory at the time of a request, and 90 % of the free memory then
    memory_limit_bytes: int | None = None
    on_event: Callable[[Event], None] = lambda event: None  # gets each phase, progress and log line
    until: float = math.inf  # the `time.monotonic` reading at which any request is cut
    _child: Child | None = None
    _limit_bytes: int = 0
    _loading: bool = False  # begun, and not waited for
    _cores: set[int] = dataclasses.field(default_factory=set)  # that the workload and the model leave to a child

    def __post_init__(self) -> None:
        if self.growth_bytes is None:  # compiling many steps as one call takes a gigabyte
            self.growth_bytes = max(1 << 30, machine.detect_memory().available_bytes // 8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def start(self) -> TrialFailure | None:
        return self._prepare(None)[0]

    def begin(self) -> None:
        """Start the child, which loads the workload in the background; the next request waits for that."""
        if self._child is None:
            if self.launch.server is not None:
                self.launch.server.wait(self.deadlines.start_seconds)
            with processes.uninterrupted():
                self._child, self._loading = Child(self.launch), True
            self._child.send(self._child.load)

    def describe(self) -> Description | TrialFailure:
        # Its model is built: a process that ran it cannot split its CPU.
        return _expected(Description, self._request(Ask(request="describe"), ModelSetup())[0])

    def measure(self, config: PipelineConfig, options: Options | None = None) -> outcome.Measurement | TrialFailure:
        began = time.monotonic()
        request = Ask(request="measure", configs=(config,), options=dict(options or {}))
        found, phase_seconds = self._request(request, config.model_setup)
        answer = _expected(outcome.Measurement, found)
        if isinstance(answer, TrialFailure):
            return answer.model_copy(update={"config": config.model_dump(mode="json"), "config_key": config.key()})
        assert self._child is not None  # it has answered
        # A trial itself leaves two epochs before their end: that of the step that compiles, and the last one. If no
        # epoch is known to have ended, two caches may each have been left twice.
        left = 4 if answer.epoch_restart_seconds is None else 2
        if self._child.log.count(_DISCARDED) > left:
            self.on_event(Log(text=_NO_CACHE, of_data=True))
        overhead = max(0.0, time.monotonic() - began - answer.measured_seconds)
        return answer.model_copy(update={"phase_seconds": phase_seconds, "overhead_seconds": overhead})

    def loader(self, config: PipelineConfig, options: Options) -> outcome.LoaderRate | TrialFailure:
        """Run a loader without a model, in the process that is there."""
        request = Ask(request="loader", configs=(config,), options=dict(options))
        return _expected(outcome.LoaderRate, self._request(request, None)[0])

    def epoch(self, config: PipelineConfig, options: Options) -> outcome.EpochTime | TrialFailure:
        request = Ask(request="epoch", configs=(config,), options=dict(options))
        return _expected(outcome.EpochTime, self._request(request, config.model_setup)[0])

    def ceiling(self, setup: ModelSetup, options: Options | None = None) -> Ceiling | TrialFailure:
        request = Ask(request="ceiling", options={**setup._asdict(), **(options or {})})
        return _expected(Ceiling, self._request(request, setup)[0])

    def verify(self, configs: Sequence[PipelineConfig], options: Options | None = None) -> Verification | TrialFailure:
        request = Ask(request="verify", configs=tuple(configs), options=dict(options or {}))
        return _expected(Verification, self._request(request, None)[0])

    def close(self) -> None:
        """End the child and all it started; a child that still loads is not asked to close. Safe to call twice. It has
        no longer for that than requests have from now on.
        """
        least, most = self.deadlines.end_seconds, self.deadlines.close_seconds
        most = max(least, min(most, self.until - time.monotonic()))
        self._end(least if self._loading else most, politely=not self._loading)

    def _request(self, request: Ask, setup: ModelSetup | None) -> tuple[Answer, dict[Phase, float]]:
        """Return the answer, and the seconds by phase; by None, the model's setup has no part in it."""
        keeps = any(config.loader.keeps_freed_memory for config in request.configs)
        loads = request.request in ("measure", "loader", "epoch")
        if loads and self._child is not None and self._child.keeps and not keeps:
            self.close()  # no process can be told to return freed memory again
        failure, preparing = self._prepare(setup)
        if failure is not None:
            return failure, preparing
        child = self._child
        assert child is not None  # prepared
        child.keeps = child.keeps or keeps
        if loads and request.configs[0].kept.converts:
            try:
                folder = child.folder_for_sets()
            except OSError as error:
                message = f"A trial with converted samples needs a folder for them, but there can be none: {error}"
                hint = "Choose a folder that can be written to: --out in a shell, the working directory in Python."
                kind = FailureKind.UNSUPPORTED
                return TrialFailure(kind=kind, phase=Phase.OPEN, message=message, hint=hint), preparing
            if folder is not None:
                request = request.model_copy(update={"options": {**request.options, "folder": folder}})
        answer, watch = self._ask(child, request, Phase.BUILD)
        if not isinstance(answer, TrialFailure):
            child.last_bytes = child.memory_bytes()
            if request.request != "describe":  # the model has trained: what it takes is no growth
                child.first_bytes = child.first_bytes or child.last_bytes
            child.cores = machine.allowed(child.pid)
            if request.request in ("describe", "ceiling"):
                self._cores = child.cores
        # Both can have a build phase: the session when it is made, and again for new settings.
        phases = preparing.keys() | watch.phase_seconds.keys()
        return answer, {at: preparing.get(at, 0.0) + watch.phase_seconds.get(at, 0.0) for at in Phase if at in phases}

    def _prepare(self, setup: ModelSetup | None) -> tuple[TrialFailure | None, dict[Phase, float]]:
        """Make sure that a child is ready for the next request; returns the time of that, by phase."""
        settings = None if setup is None else (setup.devices, setup.channels)  # that hold for a whole process
        if self._child is not None and not self._loading and not self._must_replace(self._child, settings):
            self._child.settings = self._child.settings if settings is None else settings
            return None, {}
        if not self._loading:
            self.close()
            self.begin()
        assert self._child is not None  # it has begun
        self._child.settings, forked = settings, self._child.is_forked
        answer, watch = self._ask(self._child, None, Phase.START, request_seconds=math.inf)
        self._loading = False
        late = isinstance(answer, Ready) and answer.too_late
        # By what the server had imported before, perhaps: torchvision's LLVM aborts behind TensorFlow's.
        crashed = forked and isinstance(answer, TrialFailure) and answer.kind is FailureKind.CRASHED
        if (late or crashed) and self.launch.server is not None:
            self.launch.server.close()  # from now on, processes are started
            self.close()
            return self._prepare(setup)
        return (answer if isinstance(answer, TrialFailure) else None), watch.phase_seconds

    def _must_replace(self, child: Child, settings: Hashable) -> bool:
        return (
            not child.is_alive()
            or (None not in (settings, child.settings) and settings != child.settings)
            or 0 < child.first_bytes < child.last_bytes - (self.growth_bytes or 0)
            or set() < child.cores < self._cores  # a configuration has bound it, and the next one need not
        )

    def _ask(
        self, child: Child, request: Request | None, phase: Phase, *, request_seconds: float | None = None
    ) -> tuple[Answer, Watch]:
        """Send a request, unless it was sent, and wait for its answer. After a failure there is no child."""
        deadlines = self.deadlines
        if request_seconds is not None:
            deadlines = dataclasses.replace(deadlines, request_seconds=request_seconds)
        watch = Watch(deadlines, phase, time.monotonic(), self.until)
        try:
            free = machine.detect_memory().available_bytes  # others may have come or gone since it started
            self._limit_bytes = self.memory_limit_bytes or child.memory_bytes() + int(0.9 * free)
            oom_kills = machine.oom_kills()
            child.log.mark()
            if request is not None:
                child.send(request)
            answer = self._wait(child, watch, oom_kills)
            watch.heard(time.monotonic())
            if isinstance(answer, TrialFailure):
                answer = _with_log(answer, child.log.tail())
                self._end(self.deadlines.end_seconds)
        except BaseException:
            self._end(self.deadlines.end_seconds)
            raise
        return answer, watch

    def _wait(self, child: Child, watch: Watch, oom_kills: int) -> Answer:
        peak_bytes, looked = 0, -math.inf
        while True:
            now = time.monotonic()
            if now - looked >= 0.5:  # a look at 100 processes takes a millisecond
                peak_bytes, looked = max(peak_bytes, child.memory_bytes(self._limit_bytes)), now
                child.log.cut()
            try:
                lines = child.receive(min(0.25, watch.left_seconds(now)))
            except EOFError:
                return dead(watch.phase, child.exit_status(), peak_bytes, machine.oom_kills() - oom_kills)
            for line in lines:
                answer = self._heard(line, watch)
                if isinstance(answer, TrialFailure):
                    return blamed_on_memory(answer, machine.oom_kills() - oom_kills)
                if answer is not None:
                    return answer
            if peak_bytes > self._limit_bytes:  # before the kernel has to end it
                kind, most, held = FailureKind.OUT_OF_MEMORY, *map(machine.size_text, (self._limit_bytes, peak_bytes))
                message = f"The trial's processes may hold {most} together, but held {held}."
                return TrialFailure(kind=kind, phase=watch.phase, message=message, hint=MEMORY_HINT)
            if (failure := watch.failure(time.monotonic())) is not None:
                if failure.kind is not FailureKind.INTERRUPTED and watch.phase is not Phase.START:
                    child.dump_stacks()  # in its first phase, the signal would end it
                return failure

    def _heard(self, line: bytes, watch: Watch) -> Answer | None:
        try:
            event = EVENT.validate_json(line)
        except pydantic.ValidationError:
            message = f"The trial's process must write JSON lines to its channel, but wrote {line[:80]!r}."
            hint = "The workload's code, or a library, writes to a file descriptor that is not its own."
            return TrialFailure(kind=FailureKind.CRASHED, phase=watch.phase, message=message, hint=hint)
        if isinstance(event, Done):
            return event.answer
        watch.enter(event.phase if isinstance(event, PhaseBegan) else watch.phase, time.monotonic())
        self.on_event(event)
        return None

    def _end(self, grace_seconds: float, *, politely: bool = False) -> None:
        if self._child is not None:
            try:
                self._child.end(grace_seconds, politely=politely)
            finally:
                self._child, self._loading = None, False


def _expected(kind: type[_Answer], answer: Answer) -> _Answer | TrialFailure:
    if isinstance(answer, (kind, TrialFailure)):
        return answer
    raise TrialError(f"A trial must answer what it was asked for, but its answer has the status {answer.status!r}.")
