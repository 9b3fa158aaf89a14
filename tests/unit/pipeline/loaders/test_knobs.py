"""The knobs of each loader: canonical forms and what they say would run. What loaders do: tests/contract."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from autopipe.errors import ConfigError
from autopipe.hardware import processes
from autopipe.pipeline.assembly import build_loader
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loaders.foreign import Foreign
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.search import feasible
from autopipe.workload.workload import Workload
from tests.fakes.facts import facts


@pytest.mark.parametrize(
    ("config", "canonical"),
    [
        (Threads(workers=9, queue_size=2), Threads(workers=9, queue_size=2)),
        (TfData(), TfData()),
    ],
)
def test_what_runs_alike_has_one_form(config: LoaderConfig, canonical: LoaderConfig) -> None:
    assert config.normalised() == canonical
    assert PipelineConfig(loader=config).loader == canonical


@pytest.mark.parametrize(
    ("config", "workers", "buffered"),
    [
        (Threads(workers=3, queue_size=5), 3, 8),
        (Processes(workers=3, queue_size=5), 3, 8),
        (TfData(), None, None),
        (TfData(num_parallel_calls=4, prefetch=0), 4, 1),
    ],
)
def test_what_would_run_is_known_beforehand(config: LoaderConfig, workers: int | None, buffered: int | None) -> None:
    assert config.worker_count() == workers
    assert config.buffered_batches() == buffered


def test_reading_knobs_imports_no_framework() -> None:
    script = (
        "import sys\n"
        "from autopipe.pipeline.config import LOADERS, PipelineConfig\n"
        "for kind in LOADERS:\n"
        "    LOADERS[kind]\n"
        "for loader in ({'kind': 'threads', 'workers': 2}, {'kind': 'tfdata'}):\n"
        "    PipelineConfig.model_validate({'loader': loader}).key()\n"
        "assert not {'tensorflow', 'keras', 'jax', 'torch', 'grain', 'nvidia.dali'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_worker_process_imports_no_framework() -> None:
    script = (
        "import sys, autopipe.pipeline.batching.process\n"
        "assert not {'tensorflow', 'keras', 'jax', 'torch', 'pandas', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_knobs_may_be_given_in_their_order() -> None:
    threads: Any = Threads  # type checkers want them by name
    assert threads(2) == Threads(workers=2)
    assert threads(2, 4) == Threads(workers=2, queue_size=4)
    assert threads(2, queue_size=4) == Threads(workers=2, queue_size=4)


@pytest.mark.parametrize(
    ("values", "named", "said"),
    [
        ((1,) * len(Threads.model_fields), {}, "takes at most . values, workers, "),
        ((1,), {"workers": 2}, "`workers` .* twice"),
    ],
)
def test_too_many_knobs_are_refused(values: tuple[int, ...], named: dict[str, int], said: str) -> None:
    threads: Any = Threads
    with pytest.raises(ConfigError, match=said):
        threads(*values, **named)


def test_it_says_whose_code_it_is() -> None:
    assert Foreign(code="keras").whose == "plain code: autopipe eject --to keras"
    assert Foreign(code="bench.py:make").whose == "yours: bench.py:make"
    assert Threads(workers=2).whose == "autopipe's loader threads"


def test_it_is_compared_with_and_never_opened_nor_chosen() -> None:
    with pytest.raises(ConfigError, match="foreign code"):
        Foreign(code="keras").open(None)  # type: ignore[arg-type]  # it does not come to that
    config = PipelineConfig(loader=Foreign(code="keras"))
    why = feasible.why_not(config, facts())
    assert why is not None
    assert why.startswith("foreign code")


class Told:
    """Samples that say whether they were read in a process of its own."""

    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> np.ndarray:
        return np.array([processes.is_claimed()])


@pytest.mark.parametrize(
    "loader",
    [Processes(workers=1), Processes(workers=2), Processes(workers=1, read_ahead=2), Threads(workers=1), TfData()],
)
def test_a_worker_claims_its_process_where_its_loader_says_so(loader: LoaderConfig) -> None:
    config = PipelineConfig(loader=loader)
    with build_loader(Workload(data=Told(), ops=[], batch_size=2), config) as opened:
        told = [bool(x.all()) for x, _ in opened.batches(0)]
    assert told == [loader.works_alone()] * 2
