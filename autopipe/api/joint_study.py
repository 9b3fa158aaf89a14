"""Which study a tune with `--join` takes part in: that of machines like this one which were asked for the same.

How the participants of a study share its trials is `autopipe.search.together`'s.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autopipe.api import asking
from autopipe.core import digests
from autopipe.errors import ConfigError, TrialError, shortened
from autopipe.search import studies
from autopipe.search.settings import Settings
from autopipe.search.storage import without_password
from autopipe.tuned import fingerprint
from autopipe.tuned.fingerprint import MatchLevel
from autopipe.tuned.schema import Hardware

_ONES_OWN: Final = ("trials", "budget_seconds", "seed")  # what each participant may be asked for by itself
_NAME = re.compile(r"joint-[0-9a-f]{8}-[0-9a-f]{8}-(\d+)")


def require_shared(settings: Settings) -> None:
    """Do nothing if the settings name a storage in which a study can be joined, or no study is to be joined.

    Raises:
        ConfigError: they name none, or one that a single machine can use.
    """
    storage = settings.storage
    if not settings.join or (storage is not None and not storage.startswith("sqlite:")):
        return
    raise ConfigError(
        "`--join` needs a storage that all participants reach, but got "
        f"{'none' if storage is None else repr(without_password(storage))}.",
        hint="Name it with --storage or AUTOPIPE_STORAGE: postgresql+psycopg://user@host/name, "
        "journal:////mnt/team/studies.log on a network file system, or grpc://host:13000. SQLite is for one machine.",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """The study to take part in.

    Attributes:
        name: its name.
        hardware: the fingerprint that it began with, as JSON: of a machine that is the same.
        differing: why other studies of the workload are not joined, one reason each.
    """

    name: str
    hardware: str
    differing: tuple[str, ...] = ()


def find(settings: Settings, workload: str, data: str, hardware: Hardware) -> Joint:
    """Return the study to join, or to begin where there is none.

    One that has ended is joined for its result, unless the settings ask for something else, or for a new one.

    Args:
        settings: with what is known of the workload; `storage` is shared.
        workload: its digest.
        data: the digest of its data.
        hardware: of this machine.

    Raises:
        TrialError: a study on machines like this one goes on that was asked for something else, or for other data.
    """
    assert settings.storage is not None
    latest, differing = 0, []
    joined: tuple[str, dict[str, str], bool] | None = None
    known = hardware.model_dump_json()
    for name, (theirs, over) in studies.digests_of(settings.storage, workload).items():
        if (numbered := _NAME.fullmatch(name)) is None:
            continue
        if unlike := _unlike(Hardware.model_validate_json(theirs["hardware"]), hardware):
            differing.append(f"`{name}` is of machines unlike this one: {unlike}")
        elif int(numbered[1]) > latest:
            latest, joined, known = int(numbered[1]), (name, theirs, over), theirs["hardware"]
    if joined is not None:
        name, theirs, over = joined
        others = _differences(theirs, {"data": data, "request": request_of(settings)})
        if not over and others:
            raise TrialError(
                f"The study `{name}` of machines like this one cannot be joined, because it was asked for something "
                f"else: {'; '.join(others)}.",
                hint="Ask for the same, wait until it has ended, or take another --storage. If nobody works on it any "
                "more, `autopipe fleet STORAGE --prune --older-than 0d --yes` deletes all studies there.",
            )
        if not others and not (over and settings.fresh):
            return Joint(name=name, hardware=known, differing=tuple(differing))
    kind = digests.digest(known)[:8]
    name = f"joint-{digests.digest(workload)[:8]}-{kind}-{latest + 1}"
    return Joint(name=name, hardware=known, differing=tuple(differing))


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
