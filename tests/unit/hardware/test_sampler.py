from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.hardware import cpu
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.sampler import Sampler
from tests.fakes.nvml import FakeNvml

Play = Callable[[dict[str, str]], Path]


def counting(ready: threading.Event, wanted: int) -> Callable[[], float]:
    """A clock of whole seconds, one a sample, that tells when there are enough."""
    seconds = iter(range(1_000_000))

    def clock() -> float:
        now = next(seconds)
        if now + 1 == wanted:
            ready.set()
        return float(now)

    return clock


def test_it_samples_until_it_is_stopped() -> None:
    ready = threading.Event()
    with Sampler(period_seconds=0.001, clock=counting(ready, 5)) as sampler:
        assert ready.wait(60)
    usage = sampler.usage
    assert [sample.seconds for sample in usage.samples] == list(range(len(usage.samples)))
    assert len(usage.samples) > 5
    assert usage.peak_memory_bytes is not None
    assert usage.peak_memory_bytes > 2**20
    assert usage.samples[-1].machine_cpu_seconds > 0
    assert "autopipe-sampler" not in {thread.name for thread in threading.enumerate()}


def test_the_shortest_run_has_a_first_and_a_last_sample() -> None:
    with Sampler(period_seconds=60) as sampler:
        pass
    assert len(sampler.usage.samples) == 2
    assert sampler.usage.seconds >= 0


def test_stopping_twice_returns_the_same() -> None:
    sampler = Sampler(period_seconds=60)
    sampler.start()
    assert sampler.stop() == sampler.stop()


def test_one_that_never_started_saw_nothing() -> None:
    assert Sampler().stop().samples == ()


def test_samples_are_those_of_the_files(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = play(
        {
            "stat": "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 100 10 40 9999 9999 5 6 7 1 1\n",
            "50/stat": "50 (python) S 1 50 50 0 -1 0 0 0 0 0 30 20 4 6 20 0 1 0 7 0 0\n",
            "50/status": "RssAnon: 800 kB\nRssFile: 300 kB\nRssShmem: 100 kB\n",
        }
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    with Sampler(50, period_seconds=60, proc=proc) as sampler:
        pass
    first = sampler.usage.samples[0]
    tick = os.sysconf("SC_CLK_TCK")
    assert first.tree.cpu_seconds == 60 / tick
    assert first.machine_cpu_seconds == pytest.approx(168 / tick)
    assert (first.tree.memory_bytes, first.tree.processes) == (1200 * 1024, 1)


def test_a_quota_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "quota_cores", lambda root: 1.5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    with Sampler(period_seconds=60) as sampler:
        pass
    assert sampler.usage.spare_cores == 62.5


def test_a_process_that_has_gone_gives_empty_samples(tmp_path: Path) -> None:
    with Sampler(50, period_seconds=60, proc=tmp_path) as sampler:
        pass
    assert (sampler.usage.peak_processes, sampler.usage.peak_memory_bytes) == (0, 0)


def test_gpus_are_sampled_and_a_library_that_was_lent_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml()
    with Nvml(library, {}) as nvml, Sampler(period_seconds=60, nvml=nvml) as sampler:
        sampler.stop()
        assert library.initialised == 1
        assert sampler.usage.gpu_busy_percent == 50
        assert sampler.usage.gpu_watts == 400.5
