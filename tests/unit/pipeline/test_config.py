from __future__ import annotations

from typing import Any

import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.config import ModelSetup, OfSetup, PipelineConfig
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads

KEY = "3324dd4e6510"
CONFIGS = [
    PipelineConfig(loader=Threads(workers=2)),
    PipelineConfig(loader=Processes(workers=3, queue_size=1), cache="memory", finish="host", channels="first"),
    PipelineConfig(loader=TfData()),
    PipelineConfig(loader=TfData(num_parallel_calls=4, prefetch=0), device_prefetch=0),
    PipelineConfig(loader=TfData(), devices=2),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_is_canonical_however_it_came_to_be(config: PipelineConfig) -> None:
    again = PipelineConfig.model_validate_json(config.model_dump_json())
    assert PipelineConfig.model_validate(config.model_dump(mode="json")) == again
    copied = config.model_copy(update={"cut": 1 if config.storage == "files" else config.cut})
    assert config == again == copied
    assert config.loader == config.loader.normalised()
    assert {config.key()} == {again.key(), copied.key()}


def test_what_means_nothing_beside_the_rest_is_at_its_default() -> None:
    kept = PipelineConfig(loader=Threads(workers=2, read_ahead=20), storage="array", cache="memory", cache_fraction=0.5)
    assert kept == PipelineConfig(loader=Threads(workers=2), storage="array", cache="memory", cache_fraction=0.5)
    assert kept.model_copy(update={"cache": "none"}) == PipelineConfig(loader=Threads(workers=2), storage="array")


def test_a_key_is_the_same_in_every_release_and_tells_apart_what_counts() -> None:
    assert len({config.key() for config in CONFIGS}) == len(CONFIGS)
    loader = Threads(workers=2)
    assert PipelineConfig(loader=loader).key() == KEY
    assert PipelineConfig(loader=loader, cut=1, cache_fraction=0.5).key() == KEY
    kept = [PipelineConfig(loader=loader, storage="array", cut=cut) for cut in ("deepest", 0, 1)]
    cached = [PipelineConfig(loader=loader, cache="memory", cache_fraction=part) for part in (0.25, 0.5, 1.0)]
    assert len({config.key() for config in [*kept, *cached]}) == 6


def test_a_configuration_is_named_by_its_workers_and_by_what_is_special() -> None:
    assert PipelineConfig(loader=Threads(workers=2)).short() == "threads(workers=2)"
    special = PipelineConfig(loader=Threads(workers=2, queue_size=3), cache="memory", device_prefetch=0)
    assert special.short() == "threads(workers=2, queue_size=3) cache=memory device_prefetch=0"


@pytest.mark.parametrize(
    ("make", "of", "message"),
    [
        (lambda of: of(workers=0), Threads, "workers=0"),
        (lambda of: of(workers="2"), Threads, "workers='2'"),
        (lambda of: of(workers=2, queue=3), Threads, r"no key `queue`.*Did you mean `queue_size`"),
        (lambda of: of(), Threads, "needs `workers`"),
        (lambda of: of(wrkers=2), Threads, r"no key `wrkers`.*Did you mean `workers`"),
        (lambda of: of(num_parallel_calls="many"), TfData, "num_parallel_calls"),
        (lambda of: of(prefetch=-1), TfData, "prefetch"),
        (lambda of: of(loader=Threads(workers=1), finish="gpu"), PipelineConfig, "finish='gpu'"),
        (lambda of: of(loader=Threads(workers=1)).model_copy(update={"finish": "gpu"}), PipelineConfig, "finish='gpu'"),
        (lambda of: of(loader="threads"), PipelineConfig, "`LoaderConfig` must be an object .*, but got 'threads'"),
        (lambda of: of(loader={"kind": "thread", "workers": 1}), PipelineConfig, "Did you mean `threads`"),
        (lambda of: of(loader={"workers": 1}), PipelineConfig, "loader"),
        (lambda of: of(loader=Threads(workers=1), devices=0), PipelineConfig, "devices"),
        (lambda of: of(loader=Threads(workers=1), cut=-1), PipelineConfig, "cut"),
        (lambda of: of(loader=Threads(workers=1), cache_fraction=0.0), PipelineConfig, "cache_fraction=0.0"),
        (lambda of: of(loader=Threads(workers=1), cache_fraction=1.1), PipelineConfig, "cache_fraction=1.1"),
    ],
)
def test_what_cannot_be_is_named(make: Any, of: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(of)


def test_what_the_models_speed_depends_on_is_a_part_of_the_configuration_with_its_defaults() -> None:
    assert PipelineConfig(loader=Threads(workers=1)).model_setup == OfSetup().setup == ModelSetup()
    assert set(OfSetup.model_fields) == set(ModelSetup._fields) <= set(PipelineConfig.model_fields)
