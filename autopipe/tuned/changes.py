"""In what the ops of a workload are others than those that were tuned, in words. That they are tells their digest."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from autopipe.tuned.record import OpRecord

UNKNOWN: Final = "the ops or their settings are others than they were"
"""Where an artefact does not say which they were."""


def of_ops(known: Sequence[OpRecord], here: Sequence[OpRecord]) -> str:
    """Return what was removed, added, moved and changed, such as "RandomFlip was removed, Resize changed: ..."."""
    removed: list[OpRecord] = []
    added: list[OpRecord] = []
    said: list[str] = []
    matcher = difflib.SequenceMatcher(a=[op.text for op in known], b=[op.text for op in here], autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind != "equal":
            removed += known[first:last]
            added += here[start:end]
    for op in list(removed):
        other = next((each for each in added if each.text == op.text), None)
        other = other or next((each for each in added if each.name == op.name), None)
        if other is None:
            continue
        removed.remove(op)
        added.remove(other)
        said.append(f"{op.name} was moved" if other.text == op.text else _changed(op, other))
    said = [*(f"{op.name} was removed" for op in removed), *(f"{op.name} was added" for op in added), *said]
    return ", ".join(said) or UNKNOWN


def _changed(known: OpRecord, here: OpRecord) -> str:
    both = ((name, text, here.settings[name]) for name, text in known.settings.items() if name in here.settings)
    parts = [_setting(name, before, now) for name, before, now in both if before != now]
    return f"{known.name} changed" + (f": {' and '.join(parts)}" if parts else "")


def _setting(name: str, before: str, now: str) -> str:
    code = before.partition(":")[0]
    if ":" in before and code == now.partition(":")[0]:  # a function, which is named by its code too
        return f"the code of {code}"
    return f"{name} was {before} and is {now}"
