from __future__ import annotations

import pytest

from autopipe.measure.outcome import FailureKind, Phase, Resources, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.reports import wording
from autopipe.values import Estimate


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (PipelineConfig(loader=Threads(workers=2)), "threads(workers=2)"),
        (PipelineConfig(loader=Threads(workers=2, queue_size=3)), "threads(workers=2, queue_size=3)"),
        (PipelineConfig(loader=Threads(workers=1), finish="host"), "threads(workers=1) finish=host"),
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


def test_a_rate_of_one_window_is_said_without_an_interval() -> None:
    assert "to" not in wording.rates(Estimate.of_one(8.3)).split()
    assert wording.rates(Estimate(value=8.3, low=8.0, high=8.5)) == "8.3 (8 to 8.5)"


@pytest.mark.parametrize(("number", "said"), [(1, "1 core"), (2, "2 cores"), (2.5, "2.5 cores"), (0, "0 cores")])
def test_of_one_there_is_no_plural(number: float, said: str) -> None:
    assert wording.count(number, "core") == said


@pytest.mark.parametrize(
    ("epochs", "said"),
    [(None, "never pays"), (0.0, "pays at once"), (0.02, "pays after 0.1 epochs"), (2.34, "pays after 2.3 epochs")],
)
def test_when_another_form_pays_is_said_in_epochs(epochs: float | None, said: str) -> None:
    assert wording.pays(epochs) == said


def test_what_was_used_is_said_as_far_as_it_is_known() -> None:
    used = Resources(cpu_percent=150.0, gpu_percent=40.0, gpu_idlest_percent=30.0, gpu_busiest_percent=50.0)
    gpu = "GPU 40 % (idlest 30 %, busiest 50 %)"
    assert wording.resources(used) == f"CPU 150 % (one core is 100), {gpu}"
    assert wording.resources(used, cores=2.0) == f"1.5 of 2 cores, {gpu}"
    assert wording.resources(Resources()) == ""
