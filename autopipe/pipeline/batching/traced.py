"""Time lines: the notes of a process (`TraceLog`), a recipe and a stream that take notes, and the merged trace's file.

Quick and frequent spans are noted now and then only: noting takes less than 0.5 % of the time of the noted work, in
each thread, and as much again for batches in flight.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from autopipe.errors import ConfigError
from autopipe.hardware import disk
from autopipe.pipeline.batching.indexed import Indexed
from autopipe.pipeline.batching.stream import BatchStream, Task
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loader import Recipe
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Step
from autopipe.workload.order import BatchOrder
from autopipe.workload.sample import Source

# -------------------- trace: notes of several processes to one trace, in the format that Perfetto and Chrome open


Event = dict[str, Any]

_UNITS = {"displayTimeUnit": "ms"}


def read(lines: Iterable[str]) -> list[Event]:
    """Return the events of one process's notes, without a last line that was cut by a kill."""
    events = []
    for line in lines:
        with contextlib.suppress(ValueError):
            events.append(json.loads(line))
    return events


def merged(notes: Mapping[str, Iterable[Event]], most: int | None = None) -> dict[str, Any]:
    """Return one trace of all notes: in order, from time 0 on, and with the stages of each flight as events.

    Args:
        notes: events by their subject, such as "trial 3: threads(workers=2)"; one process may be in several.
        most: the largest number of events of each; the first ones are kept.
    """
    kept: list[Event] = []
    for number, (name, events) in enumerate(notes.items()):
        ordered = sorted(events, key=lambda event: (event["ph"] != "M", event["ts"]))[:most]
        whole = _whole(ordered, number)
        kept += [*whole, *_spanned(name, whole)]
    first = min((event["ts"] for event in kept if event["ph"] != "M"), default=0.0)
    for event in kept:
        event["ts"] = 0.0 if event["ph"] == "M" else round(event["ts"] - first, 1)
    kept.sort(key=lambda event: (event["ph"] != "M", event["ts"], -event.get("dur", 0.0)))
    return {"traceEvents": [*_names(kept), *kept], **_UNITS}


def _spanned(name: str, events: list[Event]) -> list[Event]:
    times = [event["ts"] for event in events if event["ph"] != "M"]
    if not times:
        return []
    end = max(event["ts"] + event.get("dur", 0.0) for event in events)
    return [{"ph": "X", "name": name, "ts": min(times), "dur": round(end - min(times), 1), "pid": 0, "tid": 0}]


def _names(events: list[Event]) -> list[Event]:
    train = {event["pid"] for event in events if event["name"] == "step"}
    names = {pid: "training" if pid in train else "worker process" for pid in {event["pid"] for event in events}}
    names[0] = "trials"
    return [
        {"ph": "M", "name": "process_name", "ts": 0.0, "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in sorted(names.items())
    ]


def _whole(events: list[Event], number: int) -> list[Event]:
    """Return the events with flights in their stages; `number` keeps flights of trials apart."""
    whole = []
    for event in events:
        if "stages" not in event:
            whole.append(dict(event))
            continue
        flight = {name: value for name, value in event.items() if name != "stages"}
        flight["id"] = f"{number}/{flight['id']}"
        whole += [{**flight, "ph": phase, "ts": at} for phase, at in zip("bne", event["stages"], strict=True)]
    return whole


# -------------------- trace log: each process appends to a file of its own in one folder
# In the trace event format of Chrome, one event a line, in microseconds of the clock that all processes of a machine
# share. Without tracing, no object of this section exists, so it costs nothing.


_FLUSH_EVENTS = 256
_FLUSH_SECONDS = 0.2  # workers are killed when a loader closes: no more than this is lost of them
MOST_EVENTS = 100_000
"""In one process; a browser shows a few hundred thousand."""


class TraceLog:
    """Takes notes in this process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._lanes = threading.local()
        self._pending: list[str] = []
        self._written = 0.0
        self._left = MOST_EVENTS
        self._file: int | None = None

    def span(self, name: str, began: float, ended: float) -> None:
        self._note(f'"ph":"X","name":"{name}","ts":{began * 1e6:.1f},"dur":{(ended - began) * 1e6:.1f}')

    def instant(self, name: str) -> None:
        self._note(f'"ph":"i","s":"p","name":"{name}","ts":{time.monotonic() * 1e6:.1f}')

    def count(self, name: str, value: int) -> None:
        self._note(f'"ph":"C","name":"{name}","ts":{time.monotonic() * 1e6:.1f},"args":{{"{name}":{value}}}')

    def flight(self, name: str, identity: str, stages: tuple[float, float, float]) -> None:
        """Note work that no thread holds for all of its time: when it was begun, made, and taken."""
        times = ",".join(f"{at * 1e6:.1f}" for at in stages)
        what = f'"ph":"b","cat":"{name}","id":"{identity}","name":"{name}"'
        self._note(f'{what},"ts":{stages[0] * 1e6:.1f},"stages":[{times}]')

    def flush(self) -> None:
        with self._lock:
            self._write(time.monotonic())

    def _note(self, event: str) -> None:
        lane = getattr(self._lanes, "text", None)
        if lane is None:
            lane = self._lanes.text = self._new_lane()
        with self._lock:
            if self._left <= 0:
                return
            self._left -= 1
            self._pending.append(f"{{{event},{lane}}}\n")
            now = time.monotonic()
            if len(self._pending) >= _FLUSH_EVENTS or now - self._written > _FLUSH_SECONDS:
                self._write(now)

    def _new_lane(self) -> str:
        """Return this thread's name in events, and note it."""
        lane = f'"pid":{os.getpid()},"tid":{threading.get_native_id()}'
        name = json.dumps({"name": threading.current_thread().name})
        with self._lock:
            self._pending.append(f'{{"ph":"M","name":"thread_name","ts":0,"args":{name},{lane}}}\n')
        return lane

    def _write(self, now: float) -> None:
        if self._pending:
            try:
                if self._file is None:
                    path = Path(self._folder) / f"{os.getpid()}-{id(self)}.jsonl"
                    self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.write(self._file, "".join(self._pending).encode())
            except OSError:  # no room for more: the noted work goes on
                self._left = 0
            self._pending.clear()
        self._written = now

    def __del__(self) -> None:
        self._write(0.0)
        if self._file is not None:
            os.close(self._file)


# -------------------- traced


T = TypeVar("T")

NOTE_SECONDS: Final = 4e-6
"""What a note takes, or less."""
_SHARE: Final = 0.005  # of the time of the noted work
_FLIGHT_SECONDS: Final = 3 * NOTE_SECONDS / _SHARE  # from one noted batch to the next: a flight is three notes


class Spans(threading.local):
    """Notes spans of one name: each if they take long, else now and then, in each thread for itself."""

    def __init__(self, log: TraceLog, name: str) -> None:
        self._log = log
        self._name = name
        self._left = 0

    def due(self) -> bool:
        if self._left > 0:
            self._left -= 1
            return False
        return True

    def note(self, began: float, ended: float) -> None:
        self._log.span(self._name, began, ended)
        self._left = int(NOTE_SECONDS / (_SHARE * max(ended - began, 1e-7)))


def traced(recipe: Recipe) -> Recipe:
    """Return the recipe with its reads and ops noted, if tracing is on."""
    if recipe.trace is None or isinstance(recipe.source, Indexed):
        return recipe
    log = TraceLog(recipe.trace)
    steps = tuple(_traced_step(step, log) for step in recipe.steps)
    return dataclasses.replace(recipe, source=_TracedSource(recipe.source, log), steps=steps)


def _traced_step(step: Step, log: TraceLog) -> Step:
    op = copy.copy(step.op)

    for half in ("apply", "apply_many"):
        object.__setattr__(op, half, noted(getattr(op, half), op.name, log))  # ops are frozen
    return dataclasses.replace(step, op=op)


class _TracedSource(data_source.Around):
    def __init__(self, source: Source, log: TraceLog) -> None:
        super().__init__(source)
        self.read = noted(source.read, "read", log)
        many = data_source.batch_half(source)
        self.read_many = None if many is None else noted(many, "read", log)


def noted(
    function: Callable[..., Any], name: str, log: TraceLog, clock: Callable[[], float] = time.monotonic
) -> Callable[..., Any]:
    """Return the function with its calls noted."""
    spans = Spans(log, name)

    def timed(*arguments: Any) -> Any:
        if not spans.due():
            return function(*arguments)
        began = clock()
        try:
            return function(*arguments)
        finally:
            spans.note(began, clock())

    return timed


class TracedStream(BatchStream[T]):
    """Notes each batch from its begin by a worker until the training takes it, and the number of waiting batches."""

    def __init__(self, order: BatchOrder, queue_size: int, workers: int, ahead: int, folder: str) -> None:
        super().__init__(order, queue_size, workers, ahead)
        self._log = TraceLog(folder)
        self._flying: dict[tuple[int, int], tuple[float, ...]] = {}  # when those that are noted were begun, and made
        self._next = 0.0

    def room_for(self, task: Task) -> bool:
        wanted = super().room_for(task)
        now = time.monotonic()
        if wanted and now >= self._next:
            self._next = now + _FLIGHT_SECONDS
            self._flying[task.epoch, task.batch] = (now,)
        else:
            self._flying.pop((task.epoch, task.batch), None)
        return wanted

    def deliver(self, task: Task, result: T | BaseException) -> None:
        begun = self._flying.get((task.epoch, task.batch))
        if begun is not None:
            self._flying[task.epoch, task.batch] = (*begun, time.monotonic())
        super().deliver(task, result)
        if begun is not None:
            self._log.count("finished batches", self.waiting())

    def _take(self, reader: int, wanted: tuple[int, int]) -> tuple[int, T]:
        taken = super()._take(reader, wanted)
        if (stages := self._flying.pop(wanted, None)) is not None:
            begun, made, *_ = stages  # a task of before a jump may have been noted as well
            self._log.flight("batch", f"{wanted[0]}/{wanted[1]}", (begun, made, time.monotonic()))
            self._log.count("finished batches", self.waiting())
        return taken

    def close(self, *error: Any) -> None:
        super().close(*error)
        self._log.flush()


# -------------------- the file: `--trace FILE`


_MOST_OF_A_TRIAL = 6000  # events, if there are many trials


class TraceWarning(UserWarning):
    """A trace could not be written; the measurement is not affected."""


class Tracing(contextlib.AbstractContextManager["Tracing"]):
    """Gives each trial a folder for its notes, and makes one trace of them at the end.

    Without a file, no trial takes notes. A trace that cannot be written only warns: the measurement is worth more. A
    failure before the first trial leaves an older trace as it is.
    """

    def __init__(self, file: Path | None) -> None:
        """Write to `file`; raises ConfigError if it cannot be written, or there is no room for notes."""
        if file is not None and (file.is_dir() or not os.access(file.parent, os.W_OK)):
            raise ConfigError(
                f"`--trace` must name a file in a folder that can be written to, but got {str(file)!r}.",
                hint=f"For example: --trace {tempfile.gettempdir()}/trace.json",
            )
        self._file = file
        try:
            self._folder = None if file is None else tempfile.TemporaryDirectory(prefix="autopipe-trace-")
        except OSError as error:
            raise ConfigError(
                f"`--trace` needs a temporary folder for its notes, but there can be none: {error}",
                hint="Make room, or name a folder that has room in the environment variable TMPDIR.",
            ) from error
        self._names: list[str] = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._folder is None:
            return
        with self._folder as folder:
            try:
                if kind is None or self._names:
                    self._write(Path(folder))
            except OSError as refusal:
                said = f"The trace cannot be written to `{self._file}`: {refusal.strerror}."
                warnings.warn(said, TraceWarning, stacklevel=2)

    def options(self, config: PipelineConfig) -> dict[str, str]:
        if self._folder is None:
            return {}
        folder = Path(self._folder.name) / str(len(self._names))
        try:
            folder.mkdir()
        except OSError:  # there is no room any more
            return {}
        self._names.append(config.short())
        return {"trace": str(folder)}

    def _write(self, folder: Path) -> None:
        assert self._file is not None
        notes = {}
        for number, name in enumerate(self._names):
            texts = [path.read_text() for path in sorted((folder / str(number)).iterdir())]
            notes[f"trial {number}: {name}"] = read("".join(texts).splitlines())
        many = len(self._names) > 1
        with disk.replacing(self._file) as stream:
            stream.write(json.dumps(merged(notes, _MOST_OF_A_TRIAL if many else None)).encode())
