"""Whether a study that is there already may be gone on with: only one of the same workload, data, machine and space."""

from __future__ import annotations

import datetime
import json

import optuna

from autopipe.errors import TrialError, shortened


def check(study: optuna.Study, wanted: dict[str, str]) -> None:
    """Note in a new study what it is of, and refuse one that is of something else.

    Args:
        study: new, or there already.
        wanted: digests of what is to be searched now.

    Raises:
        TrialError: one of them is another in the study.
    """
    known = study.user_attrs.get("digests")
    if known is None:
        study.set_user_attr("digests", wanted)
        study.set_user_attr("began", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
        return
    differing = [name for name in sorted(known.keys() | wanted.keys()) if known.get(name) != wanted.get(name)]
    if differing:
        sides = "; ".join(_sides(name, known.get(name), wanted.get(name)) for name in differing)
        raise TrialError(
            f"The study `{study.study_name}` cannot be gone on with, because it is of another {', '.join(differing)} "
            f"({sides}).",
            hint="Use --fresh to begin anew, or another --out or --storage to keep both.",
        )


def _sides(name: str, there: str | None, here: str | None) -> str:
    """Return what a digest is in the study and here; of one with several fields, those that differ."""
    try:
        fields, others = json.loads(there or ""), json.loads(here or "")
        apart = {
            key: (fields.get(key), others.get(key)) for key in fields | others if fields.get(key) != others.get(key)
        }
    except (ValueError, TypeError, AttributeError):
        return f"{name}: {shortened(there)} there, {shortened(here)} here"
    return f"{name}: " + ", ".join(
        f"{key} {shortened(one)} there, {shortened(two)} here" for key, (one, two) in apart.items()
    )
