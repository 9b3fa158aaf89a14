from __future__ import annotations

import signal

import pytest

from autopipe.core.outcome import FailureKind, Phase, TrialFailure
from autopipe.trial import verdict
from autopipe.trial.verdict import Memory

GIB = 1 << 30
PLENTY = Memory(peak_bytes=GIB, limit_bytes=10 * GIB, oom_kills=0)
NEAR = Memory(peak_bytes=9 * GIB, limit_bytes=10 * GIB, oom_kills=0)
KERNEL = Memory(peak_bytes=GIB, limit_bytes=10 * GIB, oom_kills=1)


@pytest.mark.parametrize(
    ("status", "memory", "kind"),
    [
        (-signal.SIGKILL, PLENTY, FailureKind.CRASHED),
        (-signal.SIGKILL, NEAR, FailureKind.CRASHED),
        (-signal.SIGKILL, KERNEL, FailureKind.OUT_OF_MEMORY),
        (-signal.SIGSEGV, NEAR, FailureKind.CRASHED),
        (3, KERNEL, FailureKind.CRASHED),
        (None, PLENTY, FailureKind.CRASHED),
    ],
)
def test_a_kill_is_blamed_on_memory_only_if_the_kernel_says_so(
    status: int | None, memory: Memory, kind: FailureKind
) -> None:
    assert kind is verdict.dead(Phase.MEASURE, status, memory).kind


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-signal.SIGSEGV, "was ended by SIGSEGV"),
        (-250, "was ended by signal 250"),
        (3, "exited with status 3"),
        (None, "closed its channel"),
    ],
)
def test_a_death_is_named(status: int | None, words: str) -> None:
    assert words in verdict.dead(Phase.OPEN, status, PLENTY).message


@pytest.mark.parametrize(
    ("kind", "memory", "expected"),
    [
        (FailureKind.CRASHED, KERNEL, FailureKind.OUT_OF_MEMORY),
        (FailureKind.CRASHED, PLENTY, FailureKind.CRASHED),
        (FailureKind.BAD_DATA, KERNEL, FailureKind.BAD_DATA),
    ],
)
def test_a_crash_while_the_kernel_killed_a_worker_is_out_of_memory(
    kind: FailureKind, memory: Memory, expected: FailureKind
) -> None:
    failure = TrialFailure(kind=kind, phase=Phase.MEASURE, message="x")
    assert expected is verdict.blamed_on_memory(failure, memory).kind


def test_what_a_process_that_was_killed_held_is_told() -> None:
    assert "9 GiB" in verdict.dead(Phase.MEASURE, -signal.SIGKILL, NEAR).message


def test_memory_is_exceeded_above_its_limit_only() -> None:
    assert not Memory(peak_bytes=GIB, limit_bytes=GIB, oom_kills=0).exceeded
    assert Memory(peak_bytes=GIB + 1, limit_bytes=GIB, oom_kills=0).exceeded


def test_messages_name_phase_and_seconds() -> None:
    assert "60 s in phase `open`" in verdict.silent(Phase.OPEN, 60.0).message
    assert "phase `fill` after 1.2e+03 s" in verdict.overdue(Phase.FILL, 1200.0).message
