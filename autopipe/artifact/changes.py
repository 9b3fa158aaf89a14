"""In what the ops of a workload are others than those that were tuned, in words. That they are tells their digest."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

from autopipe.measure.facts import OpRecord

_MODULE: Final = re.compile(r"[\w.<>-]+\.([\w<>]+:?[0-9a-f]{16})")
"""A function, or an object that can be called, by its module, name and the digest of its code."""


def of_ops(known: Sequence[OpRecord], here: Sequence[OpRecord]) -> str:
    """Return what was removed, added, moved and changed, such as "RandomFlip was removed"; empty if nothing was.

    The module that a function is imported under does not count: a script is `__main__` where it is run, and has a name
    where it is imported.
    """
    removed: list[OpRecord] = []
    added: list[OpRecord] = []
    said: list[str] = []
    matcher = difflib.SequenceMatcher(a=[*map(_key, known)], b=[*map(_key, here)], autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind != "equal":
            removed += known[first:last]
            added += here[start:end]
    for op in list(removed):
        other = next((each for each in added if _key(each) == _key(op)), None)
        other = other or next((each for each in added if each.name == op.name), None)
        if other is None:
            continue
        removed.remove(op)
        added.remove(other)
        said.append(f"{op.name} was moved" if _key(other) == _key(op) else _changed(op, other))
    said = [*(f"{op.name} was removed" for op in removed), *(f"{op.name} was added" for op in added), *said]
    return ", ".join(said)


def _key(op: OpRecord) -> str:
    return _MODULE.sub(r"\1", op.text)


def _changed(known: OpRecord, here: OpRecord) -> str:
    both = ((name, text, here.settings[name]) for name, text in known.settings.items() if name in here.settings)
    plain = ((name, _MODULE.sub(r"\1", before), _MODULE.sub(r"\1", now)) for name, before, now in both)
    parts = [_setting(name, before, now) for name, before, now in plain if before != now]
    return f"{known.name} changed" + (f": {' and '.join(parts)}" if parts else "")


def _setting(name: str, before: str, now: str) -> str:
    code = before.partition(":")[0]
    if ":" in before and code == now.partition(":")[0]:  # a function, which is named by its code too
        return f"the code of {code}"
    return f"{name} was {before} and is {now}"
