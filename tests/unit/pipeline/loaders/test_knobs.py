"""The knobs of each loader: canonical forms and what they say would run. What loaders do: tests/contract."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.search import feasible
from tests.fakes.facts import facts


@pytest.mark.parametrize(
    "script",
    [
        "import sys, autopipe.pipeline.batching.process\n",
        "import sys\n"
        "from autopipe.pipeline.config import LOADERS, PipelineConfig\n"
        "for kind in LOADERS:\n"
        "    LOADERS[kind]\n"
        "for loader in ({'kind': 'threads', 'workers': 2}, {'kind': 'tfdata'}):\n"
        "    PipelineConfig.model_validate({'loader': loader}).key()\n",
    ],
    ids=["a worker process", "reading knobs"],
)
def test_no_framework_is_imported_by(script: str) -> None:
    frameworks = "{'tensorflow', 'keras', 'jax', 'torch', 'grain', 'nvidia.dali', 'pandas', 'scipy'}"
    subprocess.run([sys.executable, "-c", f"{script}assert not {frameworks} & set(sys.modules)\n"], check=True)


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
    config = PipelineConfig(loader=Foreign(code="keras"))
    why = feasible.why_not(config, facts())
    assert why is not None
    assert why.startswith("foreign code")
