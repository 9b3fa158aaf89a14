"""Makes the result of a search, from the session and the confirmation run. Runs nothing.

A section compares storage forms: their costs, savings and pay-back. A conversion has to pay within the training's
epochs, which the session's score charges.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, stdev

import optuna

from autopipe.again import without_password
from autopipe.measure import bottleneck, costs
from autopipe.measure.costs import CostProfile
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import Measurement, Outcome, TrialFailure
from autopipe.measure.stats import EQUAL, FEWEST_PAIRS, compare_pairs, median, student_t
from autopipe.pipeline.config import PipelineConfig, SettingValue
from autopipe.search import feasible, measurer
from autopipe.search import result as results
from autopipe.search.confirmation import Blocks, Confirmation, finalist, ratios
from autopipe.search.record import Point, TrialRow, taken
from autopipe.search.result import AskedBy, BaselineResult, Contest, Payback, Reason, Stop, Way, Winner
from autopipe.search.session import Session
from autopipe.search.space import from_config
from autopipe.values import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The result of a search, with its record."""

    result: results.Result
    study: optuna.Study
    rows: Sequence[TrialRow]  # every trial of the study that ran, with its measurement
    confirmation: Confirmation | None  # None without one

    @property
    def best_config(self) -> PipelineConfig | None:
        key = None if self.result.winner is None else self.result.winner.key
        return next((row.config for row in self.rows if row.key == key), None)


def result(session: Session, stop: Stop, proved: Confirmation | None) -> Searched:
    """Make the result of a search that is over."""
    rows, settings, workload = session.record.rows(), session.settings, session.facts.workload
    best = _best(session, stop, proved)
    ceiling = None
    if not workload.reads_alone:
        ceiling = next(iter(session.ceilings), None) if best is None else _ceiling(session, best, proved)
    scores = {} if proved is None else proved.scores
    contests = () if best is None or proved is None else _contests(session, best, proved)
    paid = [] if proved is None else [_of_what_is_paid_once(proved, proved.winner, key) for key in proved.scores]
    whole = any(abs(math.log(each)) > -math.log(EQUAL) for each in paid)  # else ratios are those of the rates
    alone = None if best is None else results.raced_rate(session.raced.values(), best.config.model_dump(mode="json"))
    chosen = None if best is None else _winner(best, ceiling, proved, whole=whole, loader_alone=alone)
    against = tuple(_baseline(session, each, proved, chosen, contests) for each in session.baselines)
    others = [row.outcome.resources.others_cpu_percent for row in rows if isinstance(row.outcome, Measurement)]
    busy = median([each / 100 for each in others if each is not None] or [0.0])
    left_out = Counter({**session.trimmed.left_out, **session.left_out})  # by the rules of the space, and suggestions
    refused = [each.user_attrs.get("refused") for each in session.record.study.get_trials(deepcopy=False)]
    left_out.update(Counter(str(each) for each in refused if each is not None and str(each) not in left_out))
    found = results.Result(
        winner=chosen,
        proved=proved is not None and stop.reason is not Reason.INTERRUPTED and _is_enough(session, contests, proved),
        ceiling=ceiling,
        baselines=against,
        contests=contests,
        whole_training=whole,
        effects=() if best is None else _effects(best.config, session, scores),
        ways=_ways(session),
        paybacks=_paybacks(session, None if best is None else best.config),
        devices=_device_counts(session, chosen, ceiling),
        virtual_devices=workload.virtual_devices > 0,
        utilisation={} if chosen is None else _utilisation(session, chosen, against),
        trials=tuple(trial(row.origin, row.config, row.outcome, seconds=row.seconds) for row in rows),
        raced=tuple(session.raced.values()),
        left_out=dict(left_out),
        over_limits=tuple(
            taken(row.outcome, row.config, workload)
            for row in rows
            if isinstance(row.outcome, Measurement) and not session.kept_limits(row)
        ),
        stop=stop,
        seconds=session.seconds(),
        measuring_seconds=sum(row.seconds for row in rows) + session.ceiling_seconds,
        ended_at=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
        others_cores=busy,
        drift=None if proved is None else _drift(session, proved),
        resident_share=workload.resident_share,
        progressive_share=workload.progressive_share,
        unsaved=session.record.lost,
        study=settings.study_name,
        study_url=None if settings.storage is None else without_password(settings.storage),
        command=settings.command,
        seed=settings.seed,
        space=settings.space,
        budget_seconds=settings.budget_seconds,
        epochs=settings.epochs,
        mode=settings.mode,
        batch_size=workload.batch_size,
        counted=workload.counted,
        cache_bytes=workload.fixed_bytes,
        data=workload.data_digest,
        reads_alone=workload.reads_alone,
    )
    return Searched(result=found, study=session.record.whole, rows=rows, confirmation=proved)


# -------------------- the configuration to use


def _best(session: Session, stop: Stop, proved: Confirmation | None) -> Point | None:
    """Return the incumbent unless another is proved faster or it is unfit, a wrapped dataset as it is unless another is
    faster by the rounds or else by far, or the best.
    """
    points = session.points()
    best = _unconfirmed(session, stop) if proved is None else points[proved.winner]
    incumbent = next((each for each in session.baselines if each.incumbent), None)
    if best is not None and incumbent is not None:
        former = points.get(incumbent.config.key())
        gain = None if proved is None or former is None else proved.against.get(former.key)
        beaten = gain is not None and gain.faster and not gain.few and stop.reason is not Reason.INTERRUPTED
        unfit = _failure(session, incumbent) is not None if former is None else not former.feasible
        return best if beaten or unfit else former
    wrapped = session.facts.workload.wrapped
    usual = None if wrapped is None else points.get(wrapped.as_it_is.key())
    if best is None or usual is None or best.key == usual.key or not usual.feasible:
        return best
    if (gain := None if proved is None else proved.against.get(usual.key)) is not None:
        return best if gain.faster and gain.ratio >= results.WORTH else usual
    return best if best.estimate.low >= results.WORTH * usual.estimate.high else usual


def _unconfirmed(session: Session, stop: Stop) -> Point | None:
    """Return the best point that did not fail in the confirmation; at the ceiling, the cheapest that reaches it."""
    blocks = [row for row in session.record.rows() if row.block is not None]
    failed = {row.key for row in blocks if isinstance(row.outcome, TrialFailure)}
    feasible = [point for point in session.points().values() if point.feasible]
    usable = [point for point in feasible if point.key not in failed] or feasible
    best = max(usable, key=lambda point: (point.value, point.key), default=None)
    if best is None or stop.reason is not Reason.CEILING:
        return best
    enough = EQUAL * best.value
    there = [point for point in usable if point.value >= enough]
    return min(there, key=lambda point: finalist(session, point).cost)


def _rate(point: Point, proved: Confirmation | None) -> Estimate:
    return point.estimate if proved is None else proved.rates.get(point.key, point.estimate)


def _share(point: Point, proved: Confirmation | None) -> float | None:
    """Return the share of the model alone that was measured by turns with it, if it was."""
    if proved is None or proved.winner != point.key or proved.reached_share is None:
        return None
    return proved.reached_share.value


def _winner(
    point: Point, ceiling: Ceiling | None, proved: Confirmation | None, *, whole: bool, loader_alone: float | None
) -> Winner:
    last, rate = point.measurements[-1], _rate(point, proved)
    share = None if ceiling is None else _share(point, proved)
    scored = None if proved is None else proved.scores.get(point.key)
    if share is None and ceiling is not None and not ceiling.is_overtaken_by(rate):
        share = min(1.0, rate.value / ceiling.model_images_per_second.value)
    found = None
    if ceiling is not None and share is not None:  # of a model that was read too low, no limit is known
        found = bottleneck.bottleneck(
            costs.bounds(ceiling, point.config), rate.value, share, loader_alone, last.resources
        )
    return Winner(
        config=point.config.model_dump(mode="json"),
        key=point.key,
        images_per_second=rate,
        whole_images_per_second=geometric_mean(scored.values()) if whole and scored else None,
        data_wait_share=last.data_wait_share,
        first_batch_seconds=last.first_batch_seconds,
        hand_over_seconds=last.hand_over_seconds,
        peak_rss_bytes=last.resources.peak_rss_bytes,
        cpu_percent=last.resources.cpu_percent,
        stable=last.stable,
        page_cache=last.page_cache,
        share_of_model=share,
        limit=None if found is None else found.sentence,
        limit_kind=None if found is None or found.limit is None else found.limit.kind,
        limit_op=None if found is None or found.limit is None else found.limit.op,
    )


def _ceiling(session: Session, best: Point, proved: Confirmation | None) -> Ceiling | None:
    """Return the ceiling in the setup of the best: in the rounds in which it was measured by turns with it, if any."""
    ceiling = session.ceiling(best.config.model_setup)
    if ceiling is None:
        return None
    if (share := _share(best, proved)) is not None:
        alone = ceiling.model_images_per_second
        by_turns = _scaled(alone, _rate(best, proved).value / share)
        ceiling = ceiling.model_copy(update={"model_images_per_second": by_turns})
    bound = costs.bounds(ceiling, best.config, session.facts).images_per_second
    depths = session.facts.workload.depths
    return ceiling.model_copy(update={"bound_images_per_second": bound, "depths": depths})


def _scaled(rate: Estimate, value: float) -> Estimate:
    """Return a rate with this value, and an interval that is as wide."""
    return rate.mapped(lambda each: each / rate.value * value)


# -------------------- comparisons


def _baseline(
    session: Session,
    baseline: measurer.Baseline,
    proved: Confirmation | None,
    winner: Winner | None,
    contests: Sequence[Contest],
) -> BaselineResult:
    """Return a baseline with its rate: in the winner's rounds if it ran in some, by the ratio of their pairs."""
    key = baseline.config.key()
    point = session.points().get(key)
    rate, whole = None if point is None else _rate(point, proved), None
    if winner is not None and rate is not None and point is not None:
        contest = next((each for each in contests if each.key == key), None)
        if contest is not None and proved is not None:
            paid = 1.0 if winner.whole_images_per_second is None else _of_what_is_paid_once(proved, winner.key, key)
            rate = _scaled(rate, winner.images_per_second.value / (contest.ratio * paid))
        if winner.whole_images_per_second is not None:
            whole = point.value if contest is None else winner.whole_images_per_second / contest.ratio
    return BaselineResult(
        name=baseline.name,
        key=key,
        config=baseline.config.model_dump(mode="json"),
        images_per_second=rate,
        whole_images_per_second=whole,
        failure=_bare(_failure(session, baseline)) if rate is None else None,
        incumbent=baseline.incumbent,
        files_ready=point is None or point.measurements[-1].files_ready,
    )


def _failure(session: Session, baseline: measurer.Baseline) -> TrialFailure | None:
    """Return why a baseline could not be measured; None if it was, or has not run."""
    key = baseline.config.key()
    if key in session.points():
        return None
    outcomes = [row.outcome for row in session.record.rows() if row.key == key]
    return next((each for each in reversed(outcomes) if isinstance(each, TrialFailure)), baseline.unable)


def _contests(session: Session, best: Point, proved: Confirmation) -> tuple[Contest, ...]:
    names = session.names
    mine, found = proved.scores.get(best.key, {}), []
    for key, ran in proved.scores.items():
        if key == best.key or not (blocks := ratios(mine, ran)):
            continue
        gain = proved.against.get(key) if best.key == proved.winner else None
        gain = gain or compare_pairs(blocks)
        config = session.points()[key].config.model_dump(mode="json")
        found.append(Contest(**dict(gain), key=key, config=config, baseline=names.get(key), blocks=tuple(blocks)))
    return tuple(sorted(found, key=lambda each: -each.ratio))


def _is_enough(session: Session, contests: Sequence[Contest], proved: Confirmation) -> bool:
    """True if a confirmation run had enough rounds for a proof."""
    baselines = [each for each in contests if each.baseline is not None]
    rivals = [each for each in baselines if each.key in session.required] or baselines
    rounds = [each.pairs for each in rivals] or [len(proved.rounds[proved.winner])]
    return max(rounds) >= FEWEST_PAIRS


def _of_what_is_paid_once(proved: Confirmation, first: str, second: str) -> float:
    """Return the ratio of two configurations' rates over that of their scores, in the blocks in which both ran."""
    mine, others = (
        {block: proved.rounds[key][block] / score for block, score in proved.scores.get(key, {}).items()}
        for key in (first, second)
    )
    found = ratios(mine, others)
    return geometric_mean(found) if found else 1.0


def _drift(session: Session, proved: Confirmation) -> float | None:
    """Return the largest change of a baseline's rate from its first measurement to the confirmation run, beyond what
    its rounds, or its trials, differ by anyway; None if no baseline was in both, and in enough rounds.
    """
    pooled, changes = session.pooled(), list[float]()
    for baseline in session.baselines:
        key = baseline.config.key()
        first = next((each.outcome for each in session.record.rows() if each.block is None and each.key == key), None)
        logs = [math.log(rate) for rate in proved.rounds.get(key, {}).values()]
        if isinstance(first, Measurement) and len(logs) >= FEWEST_PAIRS:
            change = fmean(logs) - math.log(first.images_per_second.value)
            of_rounds = student_t(len(logs) - 1) * stdev(logs) * math.sqrt(1 + 1 / len(logs))
            of_trials = student_t(pooled.freedom) * math.sqrt(2) * pooled.noise_of(key)
            same = abs(change) <= max(of_rounds, of_trials) or not first.images_per_second.has_interval
            changes.append(0.0 if same else math.expm1(change))
    return max(changes, key=abs, default=None)


# -------------------- conversions


def _ways(session: Session) -> tuple[Way, ...]:
    """Return the fastest of each way to keep samples, as files, converted or in memory; the fastest way first."""
    best: dict[str, Way] = {}
    ours = (point for point in session.points().values() if not point.config.loader.is_foreign)
    for point in sorted(ours, key=lambda point: -point.estimate.value):
        profile = _cost_profile(session, point)
        best.setdefault(point.config.keep, Way(config=point.config.model_dump(mode="json"), **dict(profile)))
    return tuple(best.values())


def _paybacks(session: Session, chosen: PipelineConfig | None) -> tuple[Payback, ...]:
    """Compare each storage form and cut that was measured with `chosen`, the fastest first."""
    points = [point for point in session.points().values() if point.feasible or _is_advice(session, point)]
    rivals = [point for point in points if point.measurements[-1].conversion is None]
    if not rivals:
        return ()
    other = _cost_profile(session, max(rivals, key=lambda point: point.estimate.value))
    won = None if chosen is None else session.points().get(chosen.key())
    count, epochs, best = session.facts.workload.samples, session.settings.epochs, dict[tuple[str, int], Payback]()
    for point in sorted(points, key=lambda point: -point.estimate.value):
        cost, form = point.measurements[-1].conversion, point.config.kept.form
        if cost is None or (form, cost.cut) in best:
            continue
        kept = _cost_profile(session, point)
        pays_after = costs.epochs_to_pay(kept, other, count)
        late = epochs is not None and (pays_after is None or pays_after > epochs)
        best[form, cost.cut] = Payback(
            config=point.config.model_dump(mode="json"),
            storage=form,
            rate=point.estimate,
            cut=cost.cut,
            convert_seconds=costs.conversion_seconds(cost, count),
            bytes=round(cost.bytes / cost.samples * (cost.whole or count)),
            free_bytes=session.facts.disk_bytes,
            saved_seconds=costs.saved_seconds(kept, other, count),
            epochs=pays_after,
            overruled=late and won is not None and point.estimate.low > won.estimate.high,
            advice=_is_advice(session, point),
        )
    return tuple(best.values())


def _is_advice(session: Session, point: Point) -> bool:
    """True if only the user's permission to convert is missing."""
    if point.feasible or session.facts.limits.convert or point.measurements[-1].conversion is None:
        return False
    return feasible.why_not(point.config, session.facts.converting) is None


def _cost_profile(session: Session, point: Point) -> CostProfile:
    once = session.once_seconds(point.config, point.measurements)
    return CostProfile(images_per_second=point.estimate.value, once_seconds=once)


# -------------------- effects of single settings


def _effects(config: PipelineConfig, session: Session, blocks: Blocks) -> tuple[results.Effect, ...]:
    """Return the effect of each setting of a measured configuration, the largest first, by the fastest with another."""
    own, pooled = from_config(config), session.pooled()
    if config.key() not in pooled.keys:
        return ()
    best: dict[tuple[str, SettingValue], tuple[float, str]] = {}
    for key, point in session.points().items():
        change = None if point.config.loader.is_foreign else only_change(own, from_config(point.config))
        if change is not None:
            this = (pooled.value(key), key)
            best[change] = max(best.get(change, this), this)
    found = []
    for (setting, value), (_, key) in best.items():
        both = ratios(blocks.get(config.key(), {}), blocks.get(key, {}))
        gain, paired = pooled.compared(config.key(), key, len(both)), None
        if len(both) > 1:
            pairs = compare_pairs(both)
            assert pairs.high is not None  # of several pairs
            paired = Estimate(value=pairs.ratio, low=pairs.low, high=pairs.high)
        effect = results.Effect(
            ratio=gain.ratio,
            low=gain.low,
            high=gain.high,
            setting=setting,
            value=own[setting],
            other=value,
            paired=paired,
        )
        found.append(effect)
    return tuple(sorted(found, key=lambda each: -abs(math.log(each.ratio))))


def only_change(own: Mapping[str, SettingValue], other: Mapping[str, SettingValue]) -> tuple[str, SettingValue] | None:
    """Return the only setting in which two configurations differ, with the other's value; else None. A setting that
    only one has depends on another; knobs of one name must agree if the loader differs.
    """
    changed = [name for name in own if name in other and own[name] != other[name]]
    if changed == ["loader"]:
        mine, others = ({name.partition(".")[2]: each[name] for name in each if "." in name} for each in (own, other))
        changed += [name for name in mine if name in others and mine[name] != others[name]]
    return (changed[0], other[changed[0]]) if len(changed) == 1 else None


def trial(origin: AskedBy, config: PipelineConfig, outcome: Outcome | None, *, seconds: float = 0.0) -> results.Trial:
    """Make a result's entry for a trial; without an outcome it was interrupted."""
    return results.Trial(
        origin=origin.asker,
        key=config.key(),
        config=config.model_dump(mode="json"),
        images_per_second=outcome.images_per_second if isinstance(outcome, Measurement) else None,
        failure=_bare(outcome) if isinstance(outcome, TrialFailure) else None,
        block=origin.block,
        seconds=seconds,
    )


def _bare(failure: TrialFailure | None) -> TrialFailure | None:
    if failure is None:
        return None
    return failure.model_copy(update={"log_tail": "", "config": None, "config_key": None})


def _device_counts(session: Session, winner: Winner | None, ceiling: Ceiling | None) -> tuple[results.DeviceCount, ...]:
    """Return what each number of devices came to: that of the winner as its own row has it."""
    takes = sorted((each.model_images_per_second.value, each.devices) for each in session.ceilings)
    alone = {count: rate for rate, count in takes}
    points = (each for each in session.points().values() if each.feasible)
    reached = {count: rate for rate, count in sorted((each.estimate.value, each.config.devices) for each in points)}
    if winner is not None:
        count = PipelineConfig.model_validate(winner.config).devices
        reached[count] = winner.images_per_second.value
        alone |= {} if ceiling is None else {count: ceiling.model_images_per_second.value}
    exchanges = {each.devices: each.exchange_seconds for each in reversed(session.ceilings)}
    return tuple(
        results.DeviceCount(
            devices=count,
            model_images_per_second=alone.get(count),
            images_per_second=reached.get(count),
            exchange_seconds=exchanges.get(count),
        )
        for count in sorted({*alone, *reached})
    )


def _utilisation(session: Session, winner: Winner, baselines: Sequence[BaselineResult]) -> dict[str, float]:
    simulated, batch_size = session.settings.simulate, session.facts.workload.batch_size
    if simulated is None:
        return {}
    rates = {"best": winner.images_per_second, **{each.name: each.images_per_second for each in baselines}}
    return {name: simulated.utilisation(rate.value, batch_size) for name, rate in rates.items() if rate is not None}
