from __future__ import annotations

import json

import pydantic
import pytest

from autopipe.hardware.gpu import GpuUse
from autopipe.hardware.processes import Sample, Usage
from autopipe.measure.outcome import (
    FailureKind,
    Measurement,
    Phase,
    Ran,
    Resources,
    TrialFailure,
    Window,
    parse_outcome,
)
from autopipe.values import Estimate

MEASUREMENT = Measurement(
    config={"loader": {"kind": "threads", "workers": 2}, "devices": 1}, config_key="abc", batch_size=32,
    windows=(Window(images=320, seconds=2.0, waiting_seconds=0.5), Window(images=320, seconds=1.5)),
    images_per_second=Estimate(value=100.0, low=99.0, high=101.0), first_batch_seconds=0.2, cache_fill_seconds=3.0,
    discarded_batches=21, stable=False, warnings=("The rate still moved.",), data_wait_share=0.1, page_cache="warm",
    resources=Resources(cpu_percent=180.0, peak_rss_bytes=1 << 30), overhead_seconds=0.4,
    ran=Ran(threads=2, processes=1, devices=("CPU:0",), backend="tensorflow", versions={"keras": "3"}),
    phase_seconds={Phase.OPEN: 0.1, Phase.MEASURE: 3.5},
)  # fmt: skip
FAILURE = TrialFailure(
    kind=FailureKind.HUNG, phase=Phase.FILL, message="silent", hint="wait", log_tail="…", config={"devices": 1}
)


def test_an_outcome_survives_json_and_another_schema_is_refused() -> None:
    assert [parse_outcome(each.model_dump_json()) for each in (MEASUREMENT, FAILURE)] == [MEASUREMENT, FAILURE]
    for change in ({"status": "fine"}, {"schema_version": 2}, {"surprise": 1}, {"kind": "odd"}, {"message": 3}):
        with pytest.raises(pydantic.ValidationError):
            parse_outcome(json.dumps(FAILURE.model_dump(mode="json") | change))


def look(seconds: float, cpu: float = 0.0, *gpus: GpuUse, memory: int = 0, machine: float = 0.0) -> Sample:
    return Sample(seconds=seconds, cpu_seconds=cpu, memory_bytes=memory, machine_cpu_seconds=machine, gpus=gpus)


def card(busy: float | None, watts: float | None = 100.0) -> GpuUse:
    return GpuUse(busy_percent=busy, memory_used_bytes=None if watts is None else 1, power_watts=watts)


@pytest.mark.parametrize(
    ("looks", "spare", "cards", "expected"),
    [
        ([look(10, 5, memory=5), look(11, 5.5, memory=9), look(14, 9.5)], 0, None, {"cpu_percent": 112.5}),
        ([look(1, memory=5), look(2, memory=9), look(3, memory=7)], 0, None, {"peak_rss_bytes": 9}),
        ([look(0, 1, machine=50), look(1, 2, machine=50.5)], 0, None, {"others_cpu_percent": 0.0}),  # never less
        ([look(0, 1, machine=50), look(2, 2, machine=54)], 0, None, {"others_cpu_percent": 150.0}),
        ([look(0), look(2, 4, machine=44)], 62, None, {"others_cpu_percent": 0.0}),  # on cores that a quota leaves idle
        ([look(0), look(2, 4, machine=131)], 62, None, {"others_cpu_percent": 150.0}),
        ([look(1, 0, card(90), card(0), card(0)), look(2, 0, card(90), card(90), card(0))],  # the third is not used
         0, 2, {"gpu_percent": 67.5, "gpu_busiest_percent": 90, "gpu_idlest_percent": 45, "gpu_watts": 200,
                "gpu_memory_bytes": 2}),
        ([look(1, 0, card(90))], 0, 0, {"gpu_percent": None, "gpu_watts": None, "cpu_percent": None}),
        ([look(1, 0, card(None, None))], 0, None, {"gpu_percent": None, "gpu_watts": None, "gpu_memory_bytes": None}),
        ([], 0, None, Resources().model_dump()),
    ],
)  # fmt: skip
def test_resources_follow_from_what_was_sampled(
    looks: list[Sample], spare: float, cards: int | None, expected: dict[str, float | None]
) -> None:
    found = Resources.of(Usage(samples=tuple(looks), spare_cores=spare), cards)
    assert {name: getattr(found, name) for name in expected} == expected


def test_busy_neighbours_are_warned_of() -> None:
    for percent, warned in ((None, False), (20.0, False), (150.0, True)):
        said = Resources(others_cpu_percent=percent).warnings
        assert ["1.5 of the cores" in text for text in said] == [True] * warned
