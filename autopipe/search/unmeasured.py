"""The error of a search without a result: why its trials failed, why there were none, or who ended it."""

from __future__ import annotations

from collections.abc import Sequence

from autopipe.errors import NothingMeasuredError, SearchInterruptedError
from autopipe.hardware.memory import size_text
from autopipe.measure.outcome import Resources, TrialFailure
from autopipe.search.result import Result

_REASONS_SHOWN = 3


def nothing_measured(result: Result) -> NothingMeasuredError:
    """Return the error of a search that has no winner: why its trials failed, or why none was run."""
    failures = [each.failure for each in result.trials if each.failure is not None]
    former = next((each for each in result.baselines if each.incumbent), None)
    measured = len(result.trials) - result.failed - len(result.over_limits)
    if measured and former is not None and former.images_per_second is None and former.failure is None:
        kind = SearchInterruptedError if result.interrupted else NothingMeasuredError
        return kind(
            "The former configuration was not measured before the search ended, so nothing is proved to be faster.",
            hint="It stays; give the search more time with --budget.",
        )
    if result.interrupted:
        return _interrupted(failures, len(result.over_limits))
    if failures:
        count = "the one trial" if len(failures) == 1 else f"all of {len(failures)} trials"
        last = "" if len(failures) == 1 else " of the last"
        return NothingMeasuredError(
            f"No configuration could be measured: {count} failed. The reason{last}: {failures[-1].message}",
            hint=failures[-1].hint,
        )
    if over := result.over_limits:
        return NothingMeasuredError(
            f"No configuration keeps the limits: {len(over)} were measured and took more than is allowed, "
            f"the least {_least(over)}.",
            hint="Allow more with --max-memory or --max-cpu.",
        )
    reasons = [each.reason for each in result.left_out if each.configs]
    said = f": {'; '.join(reasons[:_REASONS_SHOWN])}." if reasons else f". {result.stop.message}"
    return NothingMeasuredError(
        f"No configuration could be measured, because none could be tried{said}",
        hint="Change what the reasons name, or allow more with another --space, --only or --max-*.",
    )


def _interrupted(failures: Sequence[TrialFailure], over: int) -> SearchInterruptedError:
    """Return the error of a search that the user ended before a trial succeeded within the limits."""
    message = "The search was interrupted before any configuration could be measured"
    message += f" that keeps the limits; {over} took more than is allowed." if over else "."
    if not failures:
        return SearchInterruptedError(message)
    return SearchInterruptedError(
        f"{message} Trials that failed: {len(failures)}. The reason of the last: {failures[-1].message}",
        hint=failures[-1].hint,
    )


def _least(taken: Sequence[Resources]) -> str:
    """Return the least memory and the least processor time of these trials, as far as they were measured."""
    memory = min((each.peak_rss_bytes for each in taken if each.peak_rss_bytes is not None), default=None)
    cpu = min((each.cpu_percent for each in taken if each.cpu_percent is not None), default=None)
    said = [] if memory is None else [f"{size_text(memory)} of memory"]
    return " and ".join(said if cpu is None else [*said, f"{cpu:.0f} % of a core"])
