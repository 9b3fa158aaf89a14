from __future__ import annotations

import contextlib
import dataclasses
import functools
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autopipe.errors import ConfigError
from autopipe.pipeline.config import Kept, PipelineConfig, SettingValue
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.search import feasible
from tests.fakes.facts import facts
from tests.fakes.reports import Approved, refusal

KEY = "3324dd4e6510"
CONFIGS = [
    PipelineConfig(loader=Threads(workers=2)),
    PipelineConfig(loader=Processes(workers=3, queue_size=1), keep="memory", finish="host", channels="first"),
    PipelineConfig(loader=TfData()),
    PipelineConfig(loader=TfData(num_parallel_calls=4, prefetch=0), device_prefetch=0),
    PipelineConfig(loader=TfData(), devices=2),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_is_canonical_however_it_came_to_be(config: PipelineConfig) -> None:
    again = PipelineConfig.model_validate_json(config.model_dump_json())
    assert PipelineConfig.model_validate(config.model_dump(mode="json")) == again
    copied = config.keeping(cut=1) if not config.kept.converts else config.model_copy()
    assert config == again == copied
    assert config.loader == config.loader.normalised()
    assert {config.key()} == {again.key(), copied.key()}


def test_what_means_nothing_beside_the_rest_is_at_its_default() -> None:
    kept = PipelineConfig(loader=Threads(workers=2, read_ahead=20), keep="array + memory:50.0%")
    assert kept == PipelineConfig(loader=Threads(workers=2), keep="array+memory:50%")
    assert kept.keeping(in_memory=False) == PipelineConfig(loader=Threads(workers=2), keep="array")


def test_equal_configurations_have_one_hash_whatever_the_order_of_arguments() -> None:
    given: list[dict[str, SettingValue]] = [{"size": 3, "fast": True}, {"fast": True, "size": 3}, {}]
    made = {PipelineConfig(loader=Threads(workers=1), arguments=each) for each in given}
    assert len(made) == 2


def test_a_key_is_the_same_in_every_release_and_tells_apart_what_counts() -> None:
    assert len({config.key() for config in CONFIGS}) == len(CONFIGS)
    loader = Threads(workers=2)
    assert PipelineConfig(loader=loader).key() == KEY
    places = ("array", "array:0", "array:1", "memory:25%", "memory:50%", "memory", "encoded")
    assert len({PipelineConfig(loader=loader, keep=keep).key() for keep in places}) == len(places)


IMPOSSIBLE = (
    "Threads(workers=0)", "Threads(workers='2')", "Threads(workers=2, queue=3)", "Threads()", "Threads(wrkers=2)",
    "TfData(num_parallel_calls='many')", "TfData(prefetch=-1)",
    "PipelineConfig(loader=Threads(workers=1)).model_copy(update={'finish': 'gpu'})",
    "PipelineConfig(loader='threads')",
    *(f"PipelineConfig(loader=Threads(workers=1), {setting})" for setting in (
        "finish='gpu'", "devices=0", "keep='array:-1'", "keep='memory:0%'", "keep='memory:110%'",
        "keep='memory+encoded'", "keep='array+tfrecord'", "keep='memroy'", "keep='array:50%'", "keep='memory:1'",
    )),
)  # fmt: skip


def test_what_cannot_be(approved: Approved) -> None:
    approved({code: refusal(functools.partial(eval, code, globals())) for code in IMPOSSIBLE})


@pytest.mark.parametrize(
    ("loader", "said"),  # and a list of loaders, of extensions, too
    [({"kind": "thread", "workers": 1}, "Did you mean `threads`"), ({"workers": 1}, "loader")],
)
def test_a_loader_that_is_none_is_named(loader: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PipelineConfig(loader=loader)


PLACES = st.builds(
    Kept,
    form=st.sampled_from(["files", "array", "tfrecord"]),
    cut=st.just("deepest") | st.integers(0, 99),
    in_memory=st.booleans(),
    encoded=st.booleans(),
    part=st.integers(1, 100).map(lambda percent: percent / 100),
)


@given(PLACES)
def test_what_is_kept_is_read_as_it_is_written(kept: Kept) -> None:
    read = Kept.of(str(kept))
    assert (str(read), read.form, read.in_memory) == (str(kept), kept.form, kept.in_memory)
    assert not kept.converts or read.cut == kept.cut
    assert not kept.in_memory or (read.encoded, read.part) == (kept.encoded, kept.part)
    assert read.holds(kept.disk)
    assert read.holds(kept.memory)
    assert Kept.of(str(dataclasses.replace(read, part=1.0))).stands_for(read)


@given(st.text())
def test_any_text_is_a_place_or_is_refused_in_one_sentence(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert Kept.of(str(Kept.of(text))) == Kept.of(text)


# ---------------------------------------------------------------- knobs


@pytest.mark.parametrize(
    "script",
    [
        "import autopipe.pipeline.batching.process",
        "from autopipe.pipeline.config import LOADERS, PipelineConfig\nfor kind in LOADERS: LOADERS[kind]\n"
        "for loader in ({'kind': 'threads', 'workers': 2}, {'kind': 'tfdata'}):\n"
        "    PipelineConfig.model_validate({'loader': loader}).key()",
    ],
    ids=["a worker process", "reading knobs"],
)
def test_no_framework_is_imported_by(script: str) -> None:
    frameworks = "{'tensorflow', 'keras', 'jax', 'torch', 'grain', 'nvidia.dali', 'pandas', 'scipy'}"
    script += f"\nimport sys\nassert not {frameworks} & set(sys.modules)\n"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_knobs_may_be_given_in_their_order_but_not_too_many_nor_twice() -> None:
    threads: Any = Threads  # type checkers want them by name
    assert threads(2) == Threads(workers=2)
    assert threads(2, 4) == threads(2, queue_size=4) == Threads(workers=2, queue_size=4)
    with pytest.raises(ConfigError, match=r"takes at most . values, workers, "):
        threads(*[1] * len(Threads.model_fields))
    with pytest.raises(ConfigError, match=r"`workers` .* twice"):
        threads(1, workers=2)


def test_code_of_others_is_compared_with_and_never_opened_nor_chosen() -> None:
    whose = [loader.whose for loader in (Foreign(code="keras"), Foreign(code="bench.py:make"), Threads(workers=2))]
    assert whose == ["plain code: autopipe eject --to keras", "yours: bench.py:make", "autopipe's loader threads"]
    with pytest.raises(ConfigError, match="foreign code"):
        Foreign(code="keras").open(None)  # type: ignore[arg-type]  # it does not come to that
    assert str(feasible.why_not(PipelineConfig(loader=Foreign(code="keras")), facts())).startswith("foreign code")
