"""From the notes of several processes to one trace, in the trace event format that Perfetto and Chrome open.

Pure: who takes notes is `autopipe.pipeline.batching.trace_log`, who writes the file is `autopipe.artifact.tracing`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Event = dict[str, Any]

_UNITS = {"displayTimeUnit": "ms"}


def read(lines: Iterable[str]) -> list[Event]:
    """Return the events of one process's notes; a last line that was cut when the process was killed is left out."""
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def merged(notes: Mapping[str, Iterable[Event]], most: int | None = None) -> dict[str, Any]:
    """Return one trace of all notes: in order, from 0 on, and without what only began or only ended.

    Args:
        notes: events by what they are notes of, such as "trial 3: threads(workers=2)"; one process may be in several.
        most: events of each at most, the first ones.
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
    """Return a span over all these events, on a lane of its own."""
    times = [event["ts"] for event in events if event["ph"] != "M"]
    if not times:
        return []
    end = max(event["ts"] + event.get("dur", 0.0) for event in events)
    return [{"ph": "X", "name": name, "ts": min(times), "dur": round(end - min(times), 1), "pid": 0, "tid": 0}]


def _names(events: list[Event]) -> list[Event]:
    """Return what each process is called."""
    train = {event["pid"] for event in events if event["name"] == "step"}
    names = {pid: "training" if pid in train else "worker process" for pid in {event["pid"] for event in events}}
    names[0] = "trials"
    return [
        {"ph": "M", "name": "process_name", "ts": 0.0, "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in sorted(names.items())
    ]


def _whole(events: list[Event], number: int) -> list[Event]:
    """Return the events without flights that have no end, or no beginning; `number` keeps those of trials apart."""
    open_at: dict[str, list[int]] = {}
    keep = [event["ph"] not in "bne" for event in events]
    for place, event in enumerate(events):
        if event["ph"] == "b":
            open_at[event["id"]] = [place]
        elif event["ph"] in "ne" and event["id"] in open_at:
            open_at[event["id"]].append(place)
            if event["ph"] == "e":
                for each in open_at.pop(event["id"]):
                    keep[each] = True
    whole = [dict(event) for event, wanted in zip(events, keep, strict=True) if wanted]
    for event in whole:
        if event["ph"] in "bne":
            event["id"] = f"{number}/{event['id']}"
    return whole
