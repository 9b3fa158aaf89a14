from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

from autopipe import again
from autopipe.artifact.drift import Cause, Drift, DriftMonitor, DriftWarning, Promise, shortfall
from autopipe.errors import ConfigError
from autopipe.pipeline.devices.callbacks import EpochFigures
from autopipe.values import Estimate
from tests.fakes.facts import known
from tests.fakes.profiles import config, hardware, profile

LIES = "/my models/retune/autopipe.json"
PROMISE = Promise(profile=profile(hardware=hardware(cores=4)), artifact=Path(LIES))


def fell(rate: float, waits: float, *, others: float = 0.0, cores: int = 4, promise: Promise = PROMISE) -> Drift | None:
    return shortfall(
        promise, EpochFigures(images_per_second=rate, data_wait_share=waits, cores_of_others=others), cores
    )


def judge_of(jsonl: Path, prometheus: Path | None = None) -> Any:
    """Return the judge inside of a monitor."""
    return DriftMonitor(jsonl=jsonl, prometheus=prometheus)._judge


@pytest.mark.parametrize("rate", [2000.0, 1000.0, 961.0])
def test_a_training_within_the_interval_keeps_the_promise(rate: float) -> None:
    assert fell(rate, 0.9, others=3.0, cores=1) is None


def test_a_training_that_waits_for_data_is_told_to_retune() -> None:
    assert fell(800.0, 0.25, others=0.2) == Drift(
        cause=Cause.DATA,
        sentence="The training takes 800 images/s, 20% less than the 1000 when its pipeline was tuned, "
        f"and waits for data 25% of the time (5% then). Run: {again.autopipe('retune', LIES)}",
    )


@pytest.mark.parametrize(
    ("waits", "others", "cores", "cause", "said", "command"),
    [
        (0.25, 1.5, 4, Cause.NEIGHBOURS, "others on this machine keep 1.5 of", "check"),
        (0.06, 1.5, 4, Cause.MODEL, "waits no longer for data (6% of the time)", "check"),
        (0.06, 0.0, 2, Cause.FEWER_CORES, "it may use 2 of the 4 cores that it had then.", "retune"),
        (0.25, 0.0, 2, Cause.FEWER_CORES, "it may use 2 of the 4 cores that it had then.", "retune"),
    ],
    ids=str,
)
def test_what_is_in_the_way_of_a_slow_training_is_told_with_what_to_run(
    waits: float, others: float, cores: int, cause: Cause, said: str, command: str
) -> None:
    found = known(fell(800.0, waits, others=others, cores=cores))
    assert (found.cause, said in found.sentence) == (cause, True)
    assert found.sentence.endswith(f"Run: {again.autopipe(command, LIES)}")


def test_half_of_the_promise_is_too_little_whatever_its_interval_or_cores() -> None:
    one_window = profile(hardware=hardware(cores=4), images_per_second=Estimate.of_one(1000.0))  # steps of many seconds
    once = Promise(profile=one_window)
    assert fell(510.0, 0.25, promise=once) is None
    assert known(fell(490.0, 0.25, promise=once)).cause is Cause.DATA


def test_each_epoch_is_a_line_and_the_last_one_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autopipe.hardware.machine.usable_cores", lambda: 4)
    judge = judge_of(tmp_path / "drift.jsonl", tmp_path / "drift.prom")
    trainer = types.SimpleNamespace(promise=PROMISE)
    judge(trainer, 0, EpochFigures(images_per_second=1000.0, data_wait_share=0.05))
    first = (tmp_path / "drift.prom").read_text()
    with pytest.warns(DriftWarning, match="others on this machine"):
        judge(trainer, 1, EpochFigures(images_per_second=500.0, data_wait_share=0.5, cores_of_others=2.0))
    last_one = EpochFigures(images_per_second=500.0, data_wait_share=0.5, cores_of_others=2.0, lost_workers=3)
    judge(trainer, 2, last_one)
    lines = [json.loads(line) for line in (tmp_path / "drift.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["cause"]) for line in lines] == [
        (0, None),
        (1, "cores taken by others"),
        (2, "cores taken by others"),
    ]
    assert all(line["promised_images_per_second"] == 1000.0 and line["time"] > 0 for line in lines)
    assert [line["lost_workers"] for line in lines] == [0, 0, 3]
    assert "autopipe_images_per_second 1000\n" in first
    assert "autopipe_lost_workers 0\n" in first
    assert first.endswith("autopipe_drifted 0\n")
    last = (tmp_path / "drift.prom").read_text()
    assert "autopipe_lost_workers 3\n" in last
    assert 'autopipe_drifted{cause="cores taken by others"} 1\n' in last
    assert all(line.startswith(("#", "autopipe_")) for line in last.splitlines())


def test_the_first_epoch_does_not_count_if_a_cache_fills_in_it(tmp_path: Path) -> None:
    judge = judge_of(tmp_path / "drift.jsonl")
    cached = types.SimpleNamespace(promise=Promise(profile=profile(config=config(keep="memory"))))
    slow = EpochFigures(images_per_second=1.0, data_wait_share=1.0)
    judge(cached, 0, slow)  # a warning would be an error
    with pytest.warns(DriftWarning):
        judge(cached, 1, slow)


def test_a_file_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    slow = types.SimpleNamespace(), 0, EpochFigures(images_per_second=1.0, data_wait_share=1.0)
    judge_of(tmp_path / "drift.jsonl")(*slow)  # without a promise it is only told
    assert json.loads((tmp_path / "drift.jsonl").read_text())["cause"] is None
    judge = judge_of(tmp_path / "missing" / "drift.jsonl")
    with pytest.warns(DriftWarning, match="cannot be written"):
        judge(*slow)
    judge(*slow)  # told once


def test_an_exporter_that_no_package_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"takes jsonl, prometheus.*but got `promtheus`\. Did you mean `prometheus`"):
        DriftMonitor(promtheus="drift.prom")
