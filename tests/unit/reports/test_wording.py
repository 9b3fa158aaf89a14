from __future__ import annotations

import pytest

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import FailureKind, Phase, TrialFailure
from autopipe.loaders.keras import Keras
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads
from autopipe.reports import wording


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (PipelineConfig(loader=Threads(workers=2)), "threads(workers=2)"),
        (PipelineConfig(loader=Threads(workers=2, queue_size=3)), "threads(workers=2, queue_size=3)"),
        (PipelineConfig(loader=Keras(), finish="host"), "keras(workers=1) finish=host"),
        (
            PipelineConfig(loader=TfData(), cache="memory", devices=2),
            "tfdata(num_parallel_calls=auto) cache=memory devices=2",
        ),
    ],
    ids=str,
)
def test_a_configuration_is_said_by_what_is_special_about_it(config: PipelineConfig, said: str) -> None:
    assert config.short() == said


def test_a_failure_is_one_line_and_not_a_long_one() -> None:
    failure = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.FIRST_BATCH, message="Too\n  much. " + 300 * "x")
    said = wording.failed(failure)
    assert said.startswith("out of memory in first batch: Too much. xxx")
    assert len(said) < 200
    assert said.endswith("…")
