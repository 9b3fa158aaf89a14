"""What each storage form that was tried costs, saves, and when it pays, against the best that needs no conversion.

Arithmetic on what a session knows; the rule that a conversion has to pay within the training's epochs is the session's
score, which charges it. Shown by `autopipe.reports`.
"""

from __future__ import annotations

from autopipe.measure import costs
from autopipe.measure.costs import CostProfile
from autopipe.measure.outcome import ConversionCost
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import feasible
from autopipe.search.objective import Point
from autopipe.search.result import Payback
from autopipe.search.session import Session


def ways(session: Session) -> tuple[tuple[PipelineConfig, CostProfile], ...]:
    """Return the fastest of each way to keep samples, as files, converted or in memory; the fastest way first."""
    best: dict[tuple[object, ...], Point] = {}
    ours = (point for point in session.points().values() if not point.config.loader.is_foreign)
    for point in sorted(ours, key=lambda point: point.estimate.value):
        config = point.config
        best[config.storage, config.cut, config.cache, config.cache_fraction] = point
    found = [(point.config, _cost_profile(session, point)) for point in best.values()]
    return tuple(sorted(found, key=lambda each: -each[1].images_per_second))


def paybacks(session: Session, chosen: PipelineConfig | None) -> tuple[Payback, ...]:
    """Return what each storage form and cut that was measured comes to beside the one `chosen`, the fastest first."""
    points = [point for point in session.points().values() if point.feasible or _is_advice(session, point)]
    rivals = [point for point in points if point.measurements[-1].conversion is None]
    if not rivals:
        return ()
    rival = max(rivals, key=lambda point: point.estimate.value)
    best: dict[tuple[str, int], Point] = {}
    for point in sorted(points, key=lambda point: point.estimate.value):
        cost = point.measurements[-1].conversion
        if cost is not None:
            best[point.config.storage, cost.cut] = point
    won = None if chosen is None else session.points().get(chosen.key())
    found = [_payback(session, point, rival, won) for point in best.values()]
    return tuple(sorted(found, key=lambda each: -each.rate.value))


def _payback(session: Session, point: Point, rival: Point, won: Point | None) -> Payback:
    cost, count = point.measurements[-1].conversion, session.facts.workload.samples
    assert isinstance(cost, ConversionCost)
    kept, other = _cost_profile(session, point), _cost_profile(session, rival)
    pays_after, epochs = costs.epochs_to_pay(kept, other, count), session.settings.epochs
    late = epochs is not None and (pays_after is None or pays_after > epochs)
    return Payback(
        config=point.config.model_dump(mode="json"),
        storage=point.config.storage,
        rate=point.estimate,
        cut=cost.cut,
        convert_seconds=costs.conversion_seconds(cost, count),
        bytes=costs.conversion_bytes(cost, count),
        free_bytes=session.facts.disk_bytes,
        saved_seconds=costs.saved_seconds(kept, other, count),
        epochs=pays_after,
        overruled=late and won is not None and point.estimate.low > won.estimate.high,
        advice=_is_advice(session, point),
    )


def _is_advice(session: Session, point: Point) -> bool:
    """Whether nothing but the user's leave to convert is wanting."""
    if point.feasible or session.facts.limits.convert or point.measurements[-1].conversion is None:
        return False
    return feasible.why_not(point.config, session.facts.converting) is None


def _cost_profile(session: Session, point: Point) -> CostProfile:
    once = session.once_seconds(point.config, point.measurements)
    return CostProfile(images_per_second=point.estimate.value, once_seconds=once)
