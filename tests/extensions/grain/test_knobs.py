"""The knobs of `Grain`: their canonical forms, what they say would run, and the extra that is needed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import autopipe as ap
from autopipe.cli import option_values
from autopipe.errors import ConfigError, MissingExtraError
from autopipe.extensions.grain.loader import Grain
from autopipe.pipeline.eject.module import eject

ROWS = ap.Arrays(np.zeros((6, 4, 4, 3), np.uint8), np.arange(6))


@pytest.mark.parametrize(
    ("config", "canonical", "workers", "buffered"),
    [
        (Grain(num_threads=9, buffer_size=2), Grain(num_threads=9, buffer_size=9), 9, 10),
        (Grain(num_threads=3, buffer_size=8), Grain(num_threads=3, buffer_size=8), 3, 9),
        (Grain(num_threads=2, workers=3, buffer_size=4), Grain(num_threads=2, workers=3, buffer_size=6), 6, 15),
    ],
)
def test_what_runs_alike_has_one_form_and_says_what_would_run(
    config: Grain, canonical: Grain, workers: int, buffered: int
) -> None:
    made = ap.PipelineConfig(loader=config)
    assert made.loader == canonical
    assert (canonical.worker_count(), canonical.buffered_batches()) == (workers, buffered)
    assert ap.PipelineConfig.model_validate_json(made.model_dump_json()) == made


def test_a_loader_whose_package_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grain", None)
    workload = ap.Workload(data=ap.Arrays(np.zeros((4, 2))), ops=[], batch_size=2)
    with pytest.raises(MissingExtraError) as error:
        ap.build_loader(workload, ap.PipelineConfig(loader=Grain(num_threads=2)))
    assert "the extra `grain` brings it" in error.value.message


def test_workers_of_grain_find_their_flags_parsed_and_share_no_cache() -> None:
    config = ap.PipelineConfig(loader=Grain(num_threads=2, workers=2, buffer_size=4))
    code = eject(ap.Workload(data=ROWS, ops=[], batch_size=2), config)
    assert "from absl import flags" in code
    assert "mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=2))" in code
    with pytest.raises(ConfigError, match="cache in memory"):
        eject(ap.Workload(data=ROWS, ops=[], batch_size=2), config.model_copy(update={"keep": "memory"}))


def test_another_loader_keeps_the_workers_where_it_must_have_some() -> None:
    threads = ap.PipelineConfig(loader=ap.Threads(workers=2))
    assert option_values.changed(threads, ["loader=grain"]).loader == Grain(num_threads=2)
