"""Which study a tune with `--join` takes part in: that of machines like this one which were asked for the same.

How the participants of a study share its trials is `autopipe.search.together`'s.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pydantic

from autopipe.api import asking
from autopipe.core import digests
from autopipe.errors import ConfigError, TrialError, shortened
from autopipe.search import storage, studies
from autopipe.search.settings import Settings
from autopipe.tuned import fingerprint
from autopipe.tuned.fingerprint import MatchLevel
from autopipe.tuned.schema import Hardware

_ONES_OWN: Final = ("trials", "budget_seconds", "seed")  # what each participant may be asked for by itself
_NAME = re.compile(r"joint-[0-9a-f]{8}-(\d+)")
_TRIES, _PAUSE_SECONDS = 50, 0.2  # that another is given to say what the study is of that it has just made


def require_shared(settings: Settings) -> None:
    """Do nothing if the settings name a storage in which a study can be joined, or no study is to be joined.

    Raises:
        ConfigError: they name none, or one that a single machine can use.
    """
    url = settings.storage
    if not settings.join or storage.is_shared(url):
        return
    raise ConfigError(
        "`--join` needs a storage that all participants reach, but got "
        f"{'none' if url is None else repr(storage.without_password(url))}.",
        hint="Name it with --storage or AUTOPIPE_STORAGE: postgresql+psycopg://user@host/name, "
        "journal:////mnt/team/studies.log on a network file system, or grpc://host:13000. SQLite is for one machine.",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """The study to take part in."""

    name: str
    hardware: str  # the fingerprint that it began with, as JSON: of a machine that is the same
    differing: tuple[str, ...] = ()  # why other studies of the workload are not joined, one reason each


def find(settings: Settings, workload: str, data: str, hardware: Hardware) -> Joint:
    """Return the study to join, or one that is made here where there is none.

    One that has ended is joined for its result, unless the settings ask for something else, or for a new one. Of
    machines that come at the same moment one makes the study: its name is the next number, whatever the machine.

    Args:
        settings: with what is known of the workload; `storage` is shared.
        workload: its digest.
        data: the digest of its data.
        hardware: of this machine.

    Raises:
        TrialError: a study on machines like this one goes on that was asked for something else, or for other data.
    """
    assert settings.storage is not None
    ours = {"data": data, "request": request_of(settings)}
    tried = Counter[int]()
    while True:
        highest, joint = _look(settings, workload, ours, hardware)
        if joint.name:
            return joint
        silent = [number for number, times in tried.items() if times >= _TRIES]  # whoever made them has died
        number = 1 + max([highest, *silent])
        name, known = f"joint-{digests.digest(workload)[:8]}-{number}", digests.canonical(hardware)
        if studies.promise(settings.storage, name, {**ours, "workload": workload, "hardware": known}):
            return dataclasses.replace(joint, name=name, hardware=known)
        tried[number] += 1
        time.sleep(_PAUSE_SECONDS)


def _look(settings: Settings, workload: str, ours: Mapping[str, str], hardware: Hardware) -> tuple[int, Joint]:
    """Return the highest number of a study of the workload, and the study to join; without a name, there is none."""
    assert settings.storage is not None
    highest, differing = 0, []
    latest: tuple[int, str, studies.Shared] | None = None
    for name, study in studies.shared(settings.storage, workload).items():
        if (numbered := _NAME.fullmatch(name)) is None:
            continue
        number = int(numbered[1])
        highest = max(highest, number)
        try:
            known = Hardware.model_validate_json(study.digests["hardware"])
        except pydantic.ValidationError:
            differing.append(f"`{name}` was begun by another version of autopipe, which this one cannot read")
            continue
        if unlike := _unlike(known, hardware):
            differing.append(f"`{name}` is of machines unlike this one: {unlike}")
        elif not study.opened and _differences(study.digests, ours):
            continue  # it may never be opened
        elif latest is None or number > latest[0]:
            latest = number, name, study
    none = Joint(name="", hardware="", differing=tuple(differing))
    if latest is None:
        return highest, none
    _, name, study = latest
    others = _differences(study.digests, ours)
    if not study.over and others:
        raise TrialError(
            f"The study `{name}` of machines like this one cannot be joined, because it was asked for something "
            f"else: {'; '.join(others)}.",
            hint="Ask for the same, wait until it has ended, or take another --storage. If nobody works on it any "
            "more, `autopipe fleet STORAGE --prune --older-than 0d --yes` deletes all studies there.",
        )
    if others or (study.over and settings.fresh):
        return highest, none
    return highest, dataclasses.replace(none, name=name, hardware=study.digests["hardware"])


def request_of(settings: Settings) -> str:
    """Return what all participants have to be asked for alike, as JSON."""
    asked = asking.kept(settings).model_dump(mode="json", exclude={"only", *_ONES_OWN})
    asked |= {f"only {name}": list(values) for name, values in settings.limits.only.items()}
    asked |= {
        "space": Path(settings.space).name,
        "baseline": None if settings.baseline is None else Path(settings.baseline).name,
        "convert": settings.limits.convert,
    }
    return json.dumps(asked, sort_keys=True)


def _unlike(known: Hardware, here: Hardware) -> str:
    match = fingerprint.compare_hardware(known, here)
    differing = match.software if match.level is MatchLevel.SAME else match.differences
    return "; ".join(map(str, differing))


def _differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    there, here = ({"data": each["data"], **json.loads(each["request"])} for each in (theirs, ours))
    return [
        f"{name} is {shortened(there.get(name))} there, and {shortened(here.get(name))} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
