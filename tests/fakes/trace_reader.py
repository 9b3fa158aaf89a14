"""Reads a trace as Perfetto does, and says what is wrong with it. Knows nothing of who wrote it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

_KEYS = {
    "X": {"name", "ts", "dur", "pid", "tid"},
    "B": {"name", "ts", "pid", "tid"},
    "E": {"ts", "pid", "tid"},
    "b": {"name", "cat", "id", "ts", "pid", "tid"},
    "n": {"name", "cat", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "id", "ts", "pid", "tid"},
    "C": {"name", "ts", "pid", "args"},
    "i": {"name", "ts", "s", "pid", "tid"},
    "M": {"name", "pid", "args"},
}


def complaints(trace: Any) -> list[str]:
    events = trace["traceEvents"]
    found = [f"an event of phase {event.get('ph')!r}: {event}" for event in events if event.get("ph") not in _KEYS]
    known = [event for event in events if event.get("ph") in _KEYS]
    found += [f"keys are missing: {event}" for event in known if not _KEYS[event["ph"]] <= event.keys()]
    timed = [event for event in known if event["ph"] != "M"]
    found += ["the time goes back"] if timed != sorted(timed, key=lambda event: event["ts"]) else []
    found += [f"before the beginning: {event}" for event in timed if event["ts"] < 0 or event.get("dur", 0) < 0]
    found += _open_flights(timed) + _open_slices(timed) + _crossing(timed)
    found += [f"no number: {event}" for event in timed if event["ph"] == "C" and not _numbers(event["args"])]
    return found


def _numbers(arguments: dict[str, Any]) -> bool:
    return bool(arguments) and all(isinstance(value, int | float) for value in arguments.values())


def _open_flights(events: list[dict[str, Any]]) -> list[str]:
    stages: dict[Any, str] = defaultdict(str)
    for event in events:
        if event["ph"] in "bne":
            stages[event["cat"], event["id"]] += event["ph"]
    return [f"{which} goes {stage}" for which, stage in stages.items() if re.fullmatch("bn*e", stage) is None]


def _open_slices(events: list[dict[str, Any]]) -> list[str]:
    depth: dict[Any, int] = defaultdict(int)
    for event in events:
        depth[event["pid"], event.get("tid")] += {"B": 1, "E": -1}.get(event["ph"], 0)
    return [f"{lane} has begun and not ended, or ended twice" for lane, left in depth.items() if left]


def _crossing(events: list[dict[str, Any]]) -> list[str]:
    """Return spans of one lane that overlap without one lying in the other, which Perfetto draws wrongly."""
    ends: dict[Any, list[float]] = defaultdict(list)
    found = []
    for event in events:
        if event["ph"] == "X":
            stack = ends[event["pid"], event["tid"]]
            while stack and stack[-1] <= event["ts"] + 0.2:  # times are rounded to tenths
                stack.pop()
            if stack and event["ts"] + event["dur"] > stack[-1] + 0.4:
                found.append(f"crosses the span it begins in: {event}")
            stack.append(event["ts"] + event["dur"])
    return found
