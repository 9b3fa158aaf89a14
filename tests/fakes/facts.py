"""What is known before a search, for tests: a workload and a machine of which what is not named is as usual."""

from __future__ import annotations

from typing import Any, TypeVar

from autopipe.measure.facts import Description, Facts

T = TypeVar("T")

_SIZES: dict[str, Any] = {"samples": 2000, "batch_size": 32, "compact_bytes": 1, "finished_bytes": 1}
DESCRIBED = Description(**_SIZES, backend="none", mean_bytes=1.0, data_digest="d", ops="o", model="m")


def facts(**known: Any) -> Facts:
    """Return facts by their names, those of the workload's description among them; two cores, unless told."""
    described = {name: known.pop(name) for name in Description.model_fields.keys() & known.keys()}
    return Facts(workload=DESCRIBED.model_copy(update=described), **{"cores": 2, **known})


def known(value: T | None) -> T:
    assert value is not None
    return value
