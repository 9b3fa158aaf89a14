"""A machine that is not here: what it says of itself, and when its cores are free."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import autopipe as ap
from autopipe.cli import option_values
from autopipe.errors import ConfigError
from autopipe.hardware import machine, rehearsal
from autopipe.hardware.rehearsal import Rehearsal, Timelines

LARGE = Rehearsal(cores=32, gpus=4, step_seconds=0.008, memory_bytes=256 << 30)


def timelines(path: Path, cores: int) -> Path:
    path.write_bytes(bytes(8 * (cores + 1)))
    return path


def test_a_piece_of_work_takes_the_core_that_is_free_first(tmp_path: Path) -> None:
    file = timelines(tmp_path / "timelines", cores=2)
    here, elsewhere = Timelines(file), Timelines(file)  # as in two processes
    ends = [here.core(0.0, 1.0), elsewhere.core(0.0, 3.0), here.core(0.5, 1.0), elsewhere.core(9.0, 1.0)]
    assert ends == [1.0, 3.0, 2.0, 10.0]
    assert [here.storage(0.0, 1.0), elsewhere.storage(0.0, 1.0)] == [1.0, 2.0]  # one read after the other


def test_a_process_sees_the_rehearsed_machine_while_it_is_played_and_its_own_when_it_measures() -> None:
    own = machine.detect()
    with rehearsal.playing(LARGE):
        played = machine.detect()
        assert (played.cpu.cores, len(played.gpus), machine.usable_cores()) == (32, 4, 32)
        assert (played.memory.available_bytes, "rehearsed" in played.one_line()) == (256 << 30, True)
        with rehearsal.suspended():
            assert machine.usable_cores() == own.cpu.cores
        with pytest.raises(ConfigError, match="rehearses a machine already"), rehearsal.playing(LARGE):
            pass
    assert machine.detect().cpu == own.cpu
    assert rehearsal.VARIABLE not in os.environ


def test_a_step_is_shared_by_the_devices_and_followed_by_an_all_reduce() -> None:
    four = Rehearsal(cores=1, gpus=4, step_seconds=0.008, exchange_seconds=0.001)
    assert four.step(1.0, 1) == 0.008
    assert four.step(1.0, 4) == pytest.approx(0.002 + 1.5 * 0.001)
    assert four.step(0.5, 1) == 0.004


TEXT = "cores=32,gpus=4,step=8ms,memory=274877906944B"


def test_what_the_option_says_comes_back_as_it_was() -> None:
    assert option_values.rehearsal("cores=32, gpus=4, step=8ms, memory=256G", "--rehearse") == LARGE
    assert LARGE.text == TEXT
    assert option_values.rehearsal(LARGE.text, "--rehearse") == LARGE


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cores=0,step=1ms", "`cores` of `Rehearsal` is wrong: .* greater than or equal to 1, but got cores=0"),
        ("cores=4,gpus=2", "needs `step`, how long the accelerator takes for a batch. It takes cores, gpus, step, "),
        ("gpus=2,step=1ms", "needs `cores`, .* It takes cores, gpus, step, memory"),
        ("cores=4,step=8", "must be a duration"),
        ("cores=4,step=1ms,memory=lots", "memory` must be a size"),
        ("cores=x,step=1ms", "`cores` of `--rehearse` must be a whole number, but got 'x'"),
        ("cors=4,step=1ms", "takes cores, .* but got 'cors=4'. Did you mean `cores`"),
        ("", "takes cores, gpus, step, memory, exchange, samples, each as key=value, but got ''"),
    ],
)
def test_a_machine_that_cannot_be_is_refused_by_its_keys(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        option_values.rehearsal(text, "--rehearse")


def test_a_tune_takes_a_rehearsal_and_nothing_like_it() -> None:
    with pytest.raises(ConfigError, match=r"`rehearse` must be an ap\.Rehearsal, or None, but got 'cores=4'"):
        ap.tune("train.py:workload", rehearse="cores=4")  # type: ignore[arg-type]
