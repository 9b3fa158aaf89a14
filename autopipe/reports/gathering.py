"""From the result of a search to the findings that the artefact keeps of it. Derives what a report shows, draws none.

The command line's summary and a report say the same because both say what `summary` says.
"""

from __future__ import annotations

import math

from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.costs import CostProfile
from autopipe.core.outcome import Measurement, Outcome, TrialFailure
from autopipe.core.stats import compare_pairs
from autopipe.core.value import Estimate
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.reports import wording
from autopipe.reports.summary import summary_of
from autopipe.search.effects import Effect
from autopipe.search.origin import AskedBy, Asker
from autopipe.search.result import SearchResult
from autopipe.tuned.findings import Asked, Attempt, Contest, Findings, LeftOut, Origin, Way, Worth

_ORIGINS = {
    Asker.BASELINE: Origin.BASELINE,
    Asker.SEED: Origin.PREDICTION,
    Asker.KNOWN: Origin.PREDICTION,
    Asker.ADVICE: Origin.PREDICTION,
    Asker.AGAIN: Origin.OTHER,
    Asker.PROOF: Origin.PROOF,
    Asker.SAMPLER: Origin.SAMPLER,
}


def findings_of(
    result: SearchResult,
    config: PipelineConfig,
    *,
    asked: Asked | None = None,
    simulated: SimulatedAccelerator | None = None,
    cache_bytes: int | None = None,
) -> Findings:
    """Return what the artefact keeps of a search, for the best `config` or one that nothing was proved to beat."""
    best = result.best_config is not None and result.best_config.key() == config.key()
    summary = summary_of(result, simulated)
    return Findings(
        ceiling=result.ceiling,
        contests=tuple(_contests(result, config, best=best)),
        effects=tuple(_worth(each) for each in result.effects) if best else (),
        ways=tuple(_way(config, profile) for config, profile in result.ways),
        trials=tuple(attempt(row.origin, row.config, row.outcome, row.block) for row in result.trials),
        left_out=tuple(LeftOut(reason=drop.reason, configs=drop.configs) for drop in result.dropped),
        limit=None if summary.bottleneck is None else summary.bottleneck.sentence,
        share_of_model=result.share_of_ceiling if best else None,
        proved=result.proved,
        trust=summary.trust,
        stopped=result.stopped_because.message,
        notes=tuple(summary.warnings),
        seconds=result.seconds,
        asked=asked,
        simulated=None if simulated is None else simulated.step_seconds,
        cache_bytes=cache_bytes,
    )


def _contests(result: SearchResult, config: PipelineConfig, *, best: bool) -> list[Contest]:
    run = result.confirmation
    if run is None:
        return []
    names = {each.config.key(): each.name for each in result.baselines}
    configs = {row.key: row.config for row in result.trials}
    mine, found = run.scores.get(config.key(), {}), []
    for key, ran in run.scores.items():
        common = sorted(mine.keys() & ran.keys())
        if key == config.key() or not common:
            continue
        ratios = [mine[block] / ran[block] for block in common]
        gain = (run.against.get(key) if best else None) or compare_pairs(ratios, [1.0] * len(ratios))
        found.append(
            Contest(
                name=names.get(key) or configs[key].short(),
                baseline=key in names,
                ratio=gain.ratio,
                low=gain.interval.low,
                high=gain.interval.high if math.isfinite(gain.interval.high) else None,
                pairs=gain.pairs,
                blocks=tuple(ratios),
            )
        )
    return sorted(found, key=lambda each: -each.ratio)


def _worth(effect: Effect) -> Worth:
    paired = effect.paired
    return Worth(
        setting=effect.setting,
        value=str(effect.value),
        other=str(effect.other),
        ratio=effect.gain.ratio,
        low=effect.gain.interval.low,
        high=effect.gain.interval.high,
        measured=effect.measured,
        paired=None
        if paired is None
        else Estimate(value=paired.ratio, low=paired.interval.low, high=paired.interval.high),
    )


def _way(config: PipelineConfig, profile: CostProfile) -> Way:
    part = "" if config.cache_fraction == 1 else f" ({config.cache_fraction:.0%} of them)"
    where = "files" if config.storage == "files" else f"converted to {config.storage}"
    where += "" if config.cut == "deepest" else f" after {wording.count(config.cut, 'op')}"
    where += " as they are" if config.storage == "files" and config.cache == "none" else ""
    return Way(
        name=where if config.cache == "none" else f"{where}, cached in {config.cache}{part}",
        config=config.short(),
        images_per_second=profile.images_per_second,
        once_seconds=profile.once_seconds,
        plain=config.cache == "none" and not STORAGES[config.storage].converts,
    )


def attempt(origin: AskedBy, config: PipelineConfig, outcome: Outcome | None, block: int | None = None) -> Attempt:
    """Return one trial as the artefact keeps it; one without an outcome was cut off."""
    failure = "cut off before its end" if outcome is None else None
    return Attempt(
        origin=_ORIGINS[origin.asker],
        config=config.short(),
        images_per_second=outcome.images_per_second if isinstance(outcome, Measurement) else None,
        failure=wording.failed(outcome) if isinstance(outcome, TrialFailure) else failure,
        block=block,
    )
