"""The summary of a search: every figure that is shown, in the order in which it is shown. How it looks is elsewhere."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from autopipe.core import bottleneck as core_bottleneck
from autopipe.core import costs as cost_model
from autopipe.core.bottleneck import Bottleneck
from autopipe.core.costs import Bounds
from autopipe.core.facts import FEWEST_OF_A_TAIL, Ceiling, SampleTail
from autopipe.core.outcome import Measurement, TrialFailure
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.reports import payback_table, trust, wording
from autopipe.search.confirmation import Confirmation
from autopipe.search.measurer import LEFT_OUT
from autopipe.search.result import BaselineResult, SearchResult
from autopipe.search.stopping import Reason

_ADVISED_TRIALS = 20  # with their confirmation run
_ONCE = 0.02  # in log units: a smaller difference is not seen in the figures
_MOST_RESIDENT = 0.9  # of the files: with more of them in memory, the disk has no part in the rate
_SO_FAR = ": this is the best so far, not proved."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a search found, ready to be shown: its result, and what follows from it."""

    result: SearchResult
    bound: Bounds | None  # what this kind of configuration can reach here
    bottleneck: Bottleneck | None  # what keeps it from being faster
    share_of_bound: float | None  # the rate's share of it
    trust: str  # how far the figures can be believed, and why
    # the part of the time that a simulated accelerator computes, 0 to 1: with the best, under "best", and with each
    # baseline; empty for a real model
    utilisation: Mapping[str, float]
    warnings: Sequence[str]  # what the reader can do something about


def summary_of(result: SearchResult, simulated: SimulatedAccelerator | None = None) -> Summary:
    """Return the summary of a search; `simulated` is what stood in the model's place, if something did."""
    limit = cost_model.bounds(result.ceiling, result.best_config) if result.ceiling and result.best_config else None
    rate = result.estimate
    overtaken = bool(rate and result.ceiling and result.share_of_ceiling is None)  # what it limits is then not known
    return Summary(
        result=result,
        bound=limit,
        # Judged by the share that is shown, so that the two cannot contradict each other.
        bottleneck=None
        if limit is None or overtaken
        else core_bottleneck.bottleneck(limit, rate.value if rate else None, result.share_of_ceiling),
        share_of_bound=min(1.0, rate.value / limit.images_per_second) if rate and limit and not overtaken else None,
        trust=trust.sentence(result),
        utilisation={} if simulated is None else _utilisation(result, simulated),
        warnings=tuple(_warnings(result)),
    )


def _utilisation(result: SearchResult, simulated: SimulatedAccelerator) -> dict[str, float]:
    if result.measurement is None or result.estimate is None:
        return {}
    rates = {"best": result.estimate, **{each.name: each.estimate for each in result.baselines}}
    batch_size = result.measurement.batch_size
    return {name: simulated.utilisation(rate.value, batch_size) for name, rate in rates.items() if rate is not None}


def times_faster(baseline: BaselineResult, result: SearchResult) -> float | None:
    """Return how many times faster than a baseline the best is: in pairs where it ran so, else by both rates."""
    if baseline.gain is not None:
        return baseline.gain.ratio
    here, rate = baseline.estimate, result.estimate
    return rate.value / here.value if rate is not None and here is not None and here.value > 0 else None


def _warnings(result: SearchResult) -> list[str]:
    said = []
    if result.interrupted:
        found = " before anything to use was measured." if result.best_config is None else _SO_FAR
        said.append(f"The search was interrupted{found}")
    tried = {row.key for row in result.trials if row.outcome is not None}
    if result.best_config is not None and tried <= {each.config.key() for each in result.baselines}:
        said.append(_only_baselines(result))
    if (broken := _failed_in_confirmation(result)) is not None:
        said.append(f"The winner failed in its confirmation run, and may fail again: {wording.failed(broken)}")
    if result.best_config is not None and (differ := result.best_config.loader.pixels_differ()) is not None:
        said.append(differ)
    if result.hosts > 1:
        said.append(
            f"All figures are of one of {result.hosts} hosts, which share each batch, without what exchanging weights "
            "between them costs: `autopipe scale --interconnect` tells that."
        )
    if result.unsaved is not None:
        said.append(
            f"The study could not be written to its end: {result.unsaved}. The figures here are whole; a next tune "
            "goes on from what was written."
        )
    if result.confirmation is not None and result.epochs is not None and _pays_once(result.confirmation):
        training = wording.count(result.epochs, "epoch")
        said.append(
            f"How many times faster the winner is holds for the whole training of {training}, with what is paid "
            "once: the first batch, filling a cache, converting. Its images/s are without that."
        )
    said += [*_uncompared(result), *_unready(result), *_single_epoch(result)]
    said += payback_table.sentences(result.paybacks, result.epochs)
    if result.ceiling is not None:
        said += _slow_samples(result.ceiling)
    return said


def _failed_in_confirmation(result: SearchResult) -> TrialFailure | None:
    """Return how the winner failed in the confirmation run, where nobody else was left; None where it did not."""
    if result.best_config is None or result.confirmation is not None:
        return None
    blocks = [row.outcome for row in result.trials if row.block is not None and row.key == result.best_config.key()]
    return next((each for each in blocks if isinstance(each, TrialFailure)), None)


def _pays_once(found: Confirmation) -> bool:
    """Whether ratios over the whole training are others than those of the rates that are shown."""
    scores, rates = found.scores[found.winner], found.rounds[found.winner]
    apart = (
        math.log(scores[block] / score * found.rounds[key][block] / rates[block])
        for key, ran in found.scores.items()
        for block, score in ran.items()
        if block in scores
    )
    return any(abs(each) > _ONCE for each in apart)


def _uncompared(result: SearchResult) -> list[str]:
    """Say why none of the usual baselines could be written, where that is so, and what can be compared with."""
    failures = {each.name: each.failure.message for each in result.baselines if each.failure is not None}
    left_out = {name: message for name, message in failures.items() if message.startswith(LEFT_OUT)}
    if not left_out or len(left_out) < len(result.baselines):
        return []
    reasons = "; ".join(dict.fromkeys(message.removeprefix(LEFT_OUT) for message in left_out.values()))
    return [
        f"The best was compared with nothing: {wording.listed(list(left_out))} cannot be written without autopipe, "
        f"because {reasons}. --baseline FILE.py:function compares with a pipeline of your own."
    ]


def _single_epoch(result: SearchResult) -> list[str]:
    """Say that trials found files in memory which the one epoch of the training may have to read from the disk."""
    share, measured = result.resident_share, result.measurement
    if result.epochs != 1 or share is None or share >= _MOST_RESIDENT or measured is None:
        return []
    if measured.page_cache != "warm":
        return []
    return [
        f"A training of one epoch reads files as it finds them: {1 - share:.0%} were not in memory when the tune "
        "began, and trials read them beforehand. --page-cache cold measures a training that finds them on the disk."
    ]


def _unready(result: SearchResult) -> list[str]:
    """Say which baselines read from the disk what the best finds in memory, or the other way round."""
    measured = {row.key: row.outcome for row in result.trials if isinstance(row.outcome, Measurement)}
    names = [each.name for each in result.baselines if (it := measured.get(each.config.key())) and not it.files_ready]
    if not names:
        return []
    if any(each.page_cache == "cold" for each in measured.values()):
        done, other = "drop all files from memory beforehand, and some may have been found there", "warm"
    else:
        done, other = "read all files beforehand, and some came from the disk that the best found in memory", "cold"
    return [
        f"{wording.listed(names)} may be worse or better than it seems: there was no time to {done}. Tune on a part "
        f"of the data, or with --page-cache {other}."
    ]


def _only_baselines(result: SearchResult) -> str:
    stop, said = result.stopped_because, "Nothing beside the baselines was tried"
    if stop.reason is Reason.CEILING:
        return f"{said}: there is nothing to gain."
    if stop.reason is Reason.EXHAUSTED:
        return f"{said}: nothing else can run here."
    if stop.reason is Reason.TRIALS:
        trials = len(result.baselines) + _ADVISED_TRIALS
        return f"{said}: no more trials were allowed. `--trials {trials}` leaves some for the search."
    took = [row.seconds for row in result.trials if row.outcome is not None]
    advised = result.seconds + _ADVISED_TRIALS * max(took)
    return (
        f"Nothing beside the baselines could be tried: a trial takes {wording.seconds(max(took))} here. "
        f"`--budget {wording.budget(advised)}` has time for some."
    )


def _slow_samples(ceiling: Ceiling) -> list[str]:
    """Say which reads, or else samples, take much longer than others; or that it is not known of reads that wait."""
    reads, tail = ceiling.reads, ceiling.tail
    if reads is not None and reads.waits and reads.tail is not None:
        if (timed := reads.tail.samples) < FEWEST_OF_A_TAIL:
            return [
                "Whether some reads take much longer than others is not known: "
                f"{wording.count(timed, 'read')} could be timed, and {FEWEST_OF_A_TAIL} are needed."
            ]
        if reads.tail.heavy:
            said = _heavy(reads.tail, "reads")
            return [
                f"{said} With `read_ahead`, threads and processes make a late read again and take the first answer."
            ]
    return [_heavy(tail, "samples")] if tail is not None and tail.heavy else []


def _heavy(tail: SampleTail, what: str) -> str:
    half, most = wording.milliseconds(tail.p50_seconds), wording.milliseconds(tail.p99_seconds)
    return (
        f"The slowest 1 % of the {what} take {tail.slowest_share:.0%} of the time: {most} and more each, where half "
        f"of all take less than {half}. The slowest is {tail.slowest}."
    )
