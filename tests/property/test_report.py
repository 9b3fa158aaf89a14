"""Whatever a search found, a report can be made of it: each tune ends by writing one, and must not fail by it."""

from __future__ import annotations

import enum
import functools
import io
import json
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union

import pydantic
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from autopipe.artifact.schema import Profile
from autopipe.measure.facts import Ceiling, ReadCosts
from autopipe.measure.outcome import TrialFailure
from autopipe.reports import profile_report, text
from autopipe.search.result import BaselineResult, Result, Winner
from autopipe.values import Estimate, JsonObject
from tests.fakes import profiles

_RATES = st.just(0.0) | st.floats(1e-6, 1e9)
_PLAIN = profiles.config()
_CONFIGS = st.sampled_from([_PLAIN, profiles.config(keep="memory"), {"loader": {"kind": "of a plugin"}}, {}])


def _estimates(values: st.SearchStrategy[float]) -> st.SearchStrategy[Estimate]:
    three = st.tuples(values, values, values).map(sorted)
    return three.map(lambda each: Estimate(low=each[0], value=each[1], high=each[2]))


# What its type alone does not say.
_FIELDS: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (Winner, "config"): st.just(_PLAIN),
    (BaselineResult, "config"): st.just(profiles.config(keep="memory")),
    (TrialFailure, "message"): st.text(max_size=60).filter(str.strip),
    (Ceiling, "model_images_per_second"): _estimates(st.floats(1e-6, 1e9)),
    (Result, "utilisation"): st.sampled_from([{}, {"best": 0.5, "keras": 0.0}]),
    (ReadCosts, "latency_seconds"): st.floats(1e-6, 10.0),
}


def _numbers(kind: type, bounds: Sequence[Any]) -> st.SearchStrategy[Any]:
    limits = {name: getattr(bound, name) for bound in bounds for name in ("gt", "ge", "le") if hasattr(bound, name)}
    low, high = limits.get("gt", limits.get("ge", -1e6 if kind is float else 0)), limits.get("le", 10**6)
    if kind is int:
        return st.integers(int(low) + ("gt" in limits), int(min(high, 2**50)))
    positive = st.floats(max(low, 1e-9) if "gt" in limits or low == 0 else low, high)
    return positive if "gt" in limits or low != 0 else st.just(0.0) | positive


def _values(kind: Any, bounds: Sequence[Any] = ()) -> st.SearchStrategy[Any]:
    """Return values of the type of a field, within its bounds."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind == JsonObject:
        return _CONFIGS
    if origin is Annotated:
        return _values(inner[0], [bound for each in inner[1:] for bound in getattr(each, "metadata", [each])])
    if origin in (Union, types.UnionType):
        return st.one_of([_values(each, bounds) for each in inner])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        fewest = max((bound.min_length for bound in bounds if hasattr(bound, "min_length")), default=0)
        return st.lists(_values(inner[0]), min_size=fewest, max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=60), _values(inner[1]), max_size=2)
    return _numbers(kind, bounds) if kind in (int, float) else _ones(kind)


def _ones(kind: type) -> st.SearchStrategy[Any]:
    if kind is Estimate:
        return _estimates(_RATES)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    if issubclass(kind, pydantic.BaseModel):
        return _built(kind)
    plain = {type(None): st.none(), bool: st.booleans(), str: st.text(max_size=60)}
    return plain.get(kind, st.just(profiles.NOON))  # or a time


@functools.cache
def _built(model: type[pydantic.BaseModel]) -> st.SearchStrategy[Any]:
    known = {name: _FIELDS[kind, name] for kind, name in _FIELDS if kind is model}
    others = {name: each for name, each in model.model_fields.items() if name not in known}
    return st.builds(model, **known, **{name: _values(each.annotation, each.metadata) for name, each in others.items()})


def _has_a_rate(found: Result) -> bool:
    return found.winner is not None and found.winner.images_per_second.value > 0


@given(found=_built(Result).filter(_has_a_rate), samples=st.integers(0, 10**9))
def test_a_report_is_made_of_whatever_was_found(found: Result, samples: int) -> None:
    profile = profiles.profile(workload=profiles.digest(samples=samples))
    profile = Profile.model_validate(dict(profile.model_copy(update={"result": found})))
    assert Profile.model_validate_json(profile.model_dump_json()) == profile
    artifact = profiles.artifact(profile)
    assert len(profile_report.html_page(artifact, profile)) < 300_000
    json.loads(profile_report.json_text(profile_report.document(artifact, profile)))
    json.loads(json.dumps(text.document(found, None)))
    Console(file=io.StringIO(), width=100).print(text.render(found))
    assert profile_report.piece(profile)
