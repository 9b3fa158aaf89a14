from __future__ import annotations

import pytest

from autopipe.hardware.gpu import GpuUse
from autopipe.hardware.process_tree import TreeReading
from autopipe.hardware.usage import Sample, Usage

SILENT = GpuUse(busy_percent=None, memory_used_bytes=None, power_watts=None)


def sample(seconds: float, cpu: float = 0.0, *gpus: GpuUse, memory: int = 0, machine: float = 0.0) -> Sample:
    return Sample(
        seconds=seconds,
        tree=TreeReading(cpu_seconds=cpu, memory_bytes=memory, processes=int(seconds)),
        machine_cpu_seconds=machine,
        gpus=gpus,
    )


def usage(*samples: Sample) -> Usage:
    return Usage(samples=samples)


def test_cpu_is_a_mean_over_time() -> None:
    used = usage(sample(10, 5), sample(11, 5.5), sample(14, 9.5))
    assert (used.seconds, used.cpu_seconds) == (4, 4.5)
    assert used.cpu_percent == 112.5


def test_what_others_use_is_the_rest_of_the_machine() -> None:
    assert usage(sample(0, 1, machine=50), sample(2, 2, machine=54)).others_cpu_percent == 150.0


@pytest.mark.parametrize(("others", "percent"), [(20, 0.0), (63.5, 150.0)])
def test_others_on_cores_that_a_quota_leaves_idle_are_no_neighbours(others: float, percent: float) -> None:
    samples = (sample(0), sample(1, 2, machine=2 + others), sample(2, 4, machine=2 * (2 + others)))
    used = Usage(samples=samples, spare_cores=62.0)
    assert {used.others_cpu_percent, used.of_gpus(1).others_cpu_percent} == {percent}
    assert used.between(1, 2).others_cpu_percent == percent


def test_others_never_use_less_than_nothing() -> None:
    assert usage(sample(0, 1, machine=50), sample(1, 2, machine=50.5)).others_cpu_percent == 0.0


def test_peaks_of_memory_and_processes() -> None:
    used = usage(sample(1, memory=5), sample(2, memory=9), sample(3, memory=7))
    assert (used.peak_memory_bytes, used.peak_processes) == (9, 3)


def test_gpus_are_averaged_in_use_and_summed_in_memory_and_power() -> None:
    first = GpuUse(busy_percent=80, memory_used_bytes=5, power_watts=200)
    second = GpuUse(busy_percent=40, memory_used_bytes=1, power_watts=100)
    used = usage(sample(1, 0, first, second), sample(2, 0, second, second))
    assert (used.gpu_busy_percent, used.peak_gpu_memory_bytes, used.gpu_watts) == (50, 6, 250)


def test_cards_that_were_not_used_do_not_count() -> None:
    busy, idle = (GpuUse(busy_percent=each, memory_used_bytes=1, power_watts=100) for each in (90, 0))
    used = usage(sample(1, 0, busy, idle, idle), sample(2, 0, busy, busy, idle))
    assert used.gpu_busy_percent == 45
    assert used.of_gpus(2).gpus_busy_percent == (90, 45)
    assert (used.of_gpus(1).gpu_busy_percent, used.of_gpus(1).gpu_watts) == (90, 100)
    assert (used.of_gpus(0).gpu_busy_percent, used.of_gpus(0).gpus_busy_percent) == (None, ())


def test_a_gpu_that_tells_nothing_leaves_no_figure() -> None:
    used = usage(sample(1, 0, SILENT))
    assert (used.gpu_busy_percent, used.gpu_watts) == (None, None)


def test_nothing_seen_gives_no_figures() -> None:
    used = usage()
    assert (used.seconds, used.cpu_seconds) == (0.0, 0.0)
    assert {used.cpu_percent, used.others_cpu_percent} == {None}
    assert {used.peak_memory_bytes, used.peak_processes} == {None}
    assert {used.gpu_busy_percent, used.peak_gpu_memory_bytes, used.gpu_watts} == {None}


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(1.5, 2.5, [1, 2, 3]), (1, 2, [1, 2]), (-5, 99, [0, 1, 2, 3, 4]), (3.5, 99, [3, 4]), (99, 100, [4])],
)
def test_a_part_reaches_to_the_samples_around_it(start: float, stop: float, expected: list[int]) -> None:
    part = usage(*map(sample, range(5))).between(start, stop)
    assert [each.seconds for each in part.samples] == expected


def test_a_part_of_nothing_is_nothing() -> None:
    assert usage().between(0, 1).samples == ()
