"""What a search came to: its result, from what the session knows and the confirmation run says. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from autopipe.core import costs, footprint
from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Ceiling
from autopipe.core.outcome import Measurement, Resources, TrialFailure
from autopipe.core.value import Estimate
from autopipe.search import objective
from autopipe.search.confirmation import Confirmation, finalist
from autopipe.search.conversions import paybacks, ways
from autopipe.search.effects import Effect, effects
from autopipe.search.measurer import Baseline
from autopipe.search.objective import Point
from autopipe.search.result import BaselineResult, DeviceCount, SearchResult
from autopipe.search.session import Session
from autopipe.search.stopping import Reason, Stop


def result(
    session: Session,
    baselines: Sequence[Baseline],
    stop: Stop,
    proved: Confirmation | None,
    *,
    interrupted: bool,
) -> SearchResult:
    """Return the result of a search that is over."""
    points, rows = session.points(), session.record.rows()
    best = _unconfirmed(session, baselines, stop) if proved is None else points[proved.winner]
    estimate: Estimate | None = None if best is None else best.estimate
    return SearchResult(
        best_config=None if best is None else best.config,
        estimate=estimate if proved is None else proved.rates[proved.winner],
        measurement=None if best is None else best.measurements[-1],
        proved=proved is not None and not interrupted,
        confirmation=proved,
        baselines=tuple(_baseline(session, each, proved) for each in baselines),
        ceiling=None if best is None else _ceiling(session, best.config),
        stopped_because=stop,
        trials=rows,
        over_limits=_over_limits(session),
        dropped=session.trimmed.drops,
        seconds=session.seconds(),
        measuring_seconds=sum(row.seconds for row in rows) + session.ceiling_seconds,
        drift=None if proved is None else _drift(session, baselines, proved),
        interrupted=interrupted,
        epochs=session.settings.epochs,
        paybacks=paybacks(session, None if best is None else best.config),
        unsaved=session.record.lost,
        effects=() if best is None else _effects(session, best.config, proved),
        ways=ways(session),
        study=session.record.whole,
        device_counts=_device_counts(session),
        virtual_devices=session.facts.workload.virtual_devices > 0,
        resident_share=session.facts.workload.resident_share,
        hosts=session.settings.hosts,
    )


def _over_limits(session: Session) -> tuple[Resources, ...]:
    found = ((row.config, row.outcome) for row in session.record.rows() if not session.kept_limits(row))
    return tuple(
        objective.taken(outcome, footprint.cache_bytes(config, session.facts.workload))
        for config, outcome in found
        if isinstance(outcome, Measurement)
    )


def _device_counts(session: Session) -> tuple[DeviceCount, ...]:
    alone = [(each.devices, each.model_images_per_second.value) for each in session.ceilings]
    reached = [(each.config.devices, each.estimate.value) for each in session.points().values() if each.feasible]
    return tuple(
        DeviceCount(
            devices=count,
            model_images_per_second=max((rate for devices, rate in alone if devices == count), default=None),
            images_per_second=max((rate for devices, rate in reached if devices == count), default=None),
        )
        for count in sorted({devices for devices, _ in [*alone, *reached]})
    )


def _ceiling(session: Session, config: PipelineConfig) -> Ceiling | None:
    ceiling = session.ceiling(config)
    if ceiling is None:
        return None
    bound = costs.bounds(ceiling, config, session.facts).images_per_second
    return ceiling.model_copy(update={"bound_images_per_second": bound, "depths": session.facts.workload.depths})


def _effects(session: Session, config: PipelineConfig, proved: Confirmation | None) -> tuple[Effect, ...]:
    return effects(config, session.surrogate(), {} if proved is None else proved.scores)


def _unconfirmed(session: Session, baselines: Sequence[Baseline], stop: Stop) -> Point | None:
    """Return the best point; at the ceiling, the cheapest of those that are there.

    Who failed in the confirmation run is the best only where all did, which the summary then tells.
    """
    blocks = [row for row in session.record.rows() if row.block is not None]
    failed = {row.key for row in blocks if isinstance(row.outcome, TrialFailure)}
    feasible = [point for point in session.points().values() if point.feasible]
    usable = [point for point in feasible if point.key not in failed] or feasible
    best = max(usable, key=lambda point: (point.value, point.key), default=None)
    if best is None or stop.reason is not Reason.CEILING:
        return best
    enough = session.settings.ceiling_share * best.value
    there = [point for point in usable if point.value >= enough]
    names = {each.config.key(): each.name for each in baselines}
    return min(there, key=lambda point: finalist(session, point, names.get(point.key)).cost)


def _baseline(session: Session, baseline: Baseline, proved: Confirmation | None) -> BaselineResult:
    key = baseline.config.key()
    point = session.points().get(key)
    rate = None if proved is None else proved.rates.get(key)
    if rate is None and point is not None:
        rate = point.estimate
    outcomes = [row.outcome for row in session.record.rows() if row.key == key]
    failure = next((each for each in reversed(outcomes) if isinstance(each, TrialFailure)), baseline.unable)
    return BaselineResult(
        name=baseline.name,
        config=baseline.config,
        estimate=rate,
        failure=failure if rate is None else None,
        gain=None if proved is None else proved.against.get(key),
    )


def _drift(session: Session, baselines: Sequence[Baseline], proved: Confirmation) -> float | None:
    """Return the largest change of a baseline's rate from its first measurement to the confirmation run.

    No drift is told if the two intervals overlap, or one is not known: a reading that varies by 10 % shows none of 6 %.
    """
    changes = []
    for baseline in baselines:
        key = baseline.config.key()
        first = next((row.outcome for row in session.search_rows() if row.key == key), None)
        if isinstance(first, Measurement) and key in proved.rates:
            before, now = first.images_per_second, proved.rates[key]
            overlap = now.low <= before.high and before.low <= now.high
            changes.append(0.0 if overlap or not before.has_interval else now.value / before.value - 1.0)
    return max(changes, key=abs, default=None)
