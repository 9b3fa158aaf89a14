"""The verdict of a profile in one sentence, and one action; said by the terminal, a report and a notebook alike."""

from __future__ import annotations

import math

from autopipe.core import bottleneck
from autopipe.core import costs as cost_model
from autopipe.core.bottleneck import AS_FAST, MODEL_SHARE
from autopipe.core.config import PipelineConfig
from autopipe.core.costs import Bounds, Kind, Limit
from autopipe.core.facts import Ceiling
from autopipe.reports import wording
from autopipe.tuned import pick
from autopipe.tuned.findings import Contest
from autopipe.tuned.schema import Baseline, Profile

_CLOSE = 1.05  # times: who is no further ahead, and not proved to be ahead at all, is as fast
_SPENT = 0.5  # of a budget: with what is left of it, the same command again may do nothing


def sentence(profile: Profile) -> str:
    """Return what keeps a baseline slow, what the winner does about it, and what that brings.

    The baseline is the user's own pipeline, where one was named to be beaten, with the others beside it; else the best.
    """
    own = own_baseline(profile)
    return _verdict(profile) + ("" if own is None else _beside(profile, own))


def _verdict(profile: Profile) -> str:
    rate, rival, model_share = profile.measurement.images_per_second, _rival(profile), share(profile)
    reached = "" if model_share is None else f", {min(1.0, model_share):.0%} of what the model takes"
    if rival is None:
        return f"{_does(profile, None)} reaches {wording.rate(rate.value)} images/s{reached}."
    if _is_winner(rival, profile):
        return (
            f"{rival.name} is the best there is here: {wording.rate(rate.value)} images/s{reached}. "
            "Nothing was found that is worth a change."
        )
    contest = _contest(profile, rival)
    base = rival.images_per_second.value
    if contest is not None and contest.low <= 1.0:
        return _undecided(profile, rival, contest)
    if _keeps_the_model_busy(profile, rival):
        return (
            f"The model is the limit: {rival.name} keeps it busy already, at {wording.rate(base)} images/s; nothing is "
            "left to gain."
        )
    if contest is None and rate.value <= base:
        return (
            f"Nothing was found yet that is faster than {rival.name}, which reaches {wording.rate(base)} images/s; "
            "nothing is proved."
        )
    cause = _cause(profile, rival)
    cause = cause[:1].upper() + cause[1:]
    start = f"{cause}; {_does(profile, rival, capital=False)}" if cause else _does(profile, rival)
    several = " and " in start.rpartition("; ")[2]
    if contest is not None and rate.value <= base:  # over all epochs, or in rounds that both ran in
        brings = f"{'bring' if several else 'brings'} {wording.times(contest.ratio)} what {rival.name} does"
        return f"{start} {brings}, by turns with it{reached}."
    doubt = "" if contest is not None else ", not proved yet"
    lifts = "lift" if several else "lifts"
    return f"{start} {lifts} you from {wording.rate(base)} to {wording.rate(rate.value)} images/s{reached}{doubt}."


def _undecided(profile: Profile, rival: Baseline, contest: Contest) -> str:
    base, rate = rival.images_per_second.value, profile.measurement.images_per_second.value
    if contest.ratio <= _CLOSE:
        return f"Nothing was found that is faster than {rival.name}, which reaches {wording.rate(base)} images/s."
    parts = _does(profile, rival)
    seems, about = "seem" if " and " in parts else "seems", f"about {contest.ratio:.2g}x"
    lift = f"lift you from {wording.rate(base)} to {wording.rate(rate)} images/s, {about}"
    if rate <= base:  # see `_verdict`
        lift = f"bring {about} what {rival.name} does, by turns with it"
    return f"{parts} {seems} to {lift}, but what was measured is too unsteady to prove it."


def action(profile: Profile) -> str:
    """Return the one thing to do."""
    rival = _rival(profile)
    if rival is not None and (_is_winner(rival, profile) or _keeps_the_model_busy(profile, rival)):
        return "Leave the pipeline as it is; a faster model, or a faster device for it, is what would help."
    if not profile.findings.proved:
        return f"Search on until it is proved: {_how_to_go_on(profile)}."
    contest = _contest(profile, rival)
    if contest is not None and contest.low <= 1.0:
        leave = "Leave the pipeline as it is, or search" if contest.ratio <= _CLOSE else "Search"
        return f"{leave} on until it is proved: {_how_to_go_on(profile)}."
    if (best := _ahead(profile, rival)) is not None:
        return f"{best.name} is faster still{_printed(best)}. Or search on: {_how_to_go_on(profile)}."
    reached = share(profile)
    if reached is not None and reached >= MODEL_SHARE:
        return "Train with it; the pipeline has nothing more to give, the model is the limit now."
    return "Train with it; what is still in the way is named below."


def machine(profile: Profile) -> str:
    """Return a machine in a few words."""
    hardware = profile.hardware
    gpus = ", ".join(gpu.name for gpu in hardware.gpus) or "no GPU"
    gpus += "" if hardware.visible_gpus is None else f" (CUDA_VISIBLE_DEVICES={hardware.visible_gpus})"
    gpus += f", {hardware.virtual_devices} virtual devices" if hardware.virtual_devices else ""
    backend = "" if hardware.keras_backend is None else f", Keras on {hardware.keras_backend}"
    return f"{wording.count(hardware.cores, 'core')} ({hardware.cpu_model}), {gpus}{backend}"


def own_baseline(profile: Profile) -> Baseline | None:
    """Return the user's own pipeline, which a tune was asked to beat; None where none was named."""
    own = (each for each in profile.baselines if _is_own(each))  # on several devices, too
    return max(own, key=lambda each: each.images_per_second.value, default=None)


def gain(profile: Profile) -> tuple[float, str] | None:
    """Return how many times faster the winner is than the baseline of the sentence, and its name; None without one."""
    rival = _rival(profile)
    times = None if rival is None else times_faster(profile, rival)
    return None if rival is None or times is None else (times, rival.name)


def is_proved(profile: Profile) -> bool:
    """Whether that many times is told from none by a confirmation run."""
    contest = _contest(profile, _rival(profile))
    return contest is not None and (contest.low > 1.0 or (contest.high is not None and contest.high < 1.0))


def times_faster(profile: Profile, baseline: Baseline) -> float | None:
    """Return how many times faster than a baseline the winner is, from the confirmation run where it ran there."""
    contest, rate = _contest(profile, baseline), baseline.images_per_second.value
    if contest is not None:
        return contest.ratio
    return profile.measurement.images_per_second.value / rate if rate > 0 else None


# ---------------------------------------------------------------- parts of the sentence


def _how_to_go_on(profile: Profile) -> str:
    """Return what leads to a proof; the same command again does nothing where time is used up, or a study is over."""
    if profile.study_url is None:
        return "its study was in memory, so give the next one a longer budget"
    kind, findings = (profile.study or "").partition("-")[0], profile.findings
    if kind == "retune":  # each begins a study of its own, with what is known
        return "give `autopipe retune` a longer `--budget`"
    budget = None if findings.asked is None else findings.asked.budget_seconds
    spent = budget is not None and findings.seconds > _SPENT * budget
    if spent and kind != "joint":
        return "the same command with a longer `--budget` goes on with the study, and with `--fresh` begins a new one"
    if findings.proved or kind == "joint":
        return "the same command with `--fresh` begins a new study"
    return "the same command again goes on with the study"


def _printed(baseline: Baseline) -> str:
    """Return how to have the code of a baseline, where that is plain code."""
    plain = [each.loader.model_dump()["code"] for each in _known(baseline) if each.loader.is_foreign]
    return f": `autopipe eject autopipe.json --to {plain[0]}` prints it" if plain and not _is_own(baseline) else ""


def _is_own(baseline: Baseline) -> bool:
    return any(getattr(config.loader, "is_own", False) for config in _known(baseline))  # of foreign code only


def _known(baseline: Baseline) -> list[PipelineConfig]:
    """Return the configuration of a baseline, if it is known and this installation can read it."""
    return list(pick.readable([] if baseline.config is None else [baseline.config]))


def _beside(profile: Profile, own: Baseline) -> str:
    """Return what the baselines reach that the sentence does not compare with."""
    others = [
        f"{each.name} {wording.rate(each.images_per_second.value)}" for each in profile.baselines if each is not own
    ]
    return f" Beside it: {wording.listed(others)} images/s." if others else ""


def _ahead(profile: Profile, rival: Baseline | None) -> Baseline | None:
    """Return the fastest of the baselines beside `rival` that the winner does not come up to."""
    times = [(times_faster(profile, each), each) for each in profile.baselines if each is not rival]
    ahead = [(factor, each) for factor, each in times if factor is not None and factor * _CLOSE < 1]
    return min(ahead, key=lambda pair: pair[0])[1] if ahead else None


def _rival(profile: Profile) -> Baseline | None:
    """Return the baseline to compare with: the user's own, or the fastest.

    The fastest is what one who knows the trade has today; it is told by the confirmation where there was one.
    """
    if (own := own_baseline(profile)) is not None:
        return own
    ran = [(contest.ratio, each) for each in profile.baselines if (contest := _contest(profile, each)) is not None]
    if ran:
        return min(ran, key=lambda pair: pair[0])[1]
    return max(profile.baselines, key=lambda each: each.images_per_second.value, default=None)


def _is_winner(baseline: Baseline, profile: Profile) -> bool:
    return baseline.config == profile.config


def _keeps_the_model_busy(profile: Profile, rival: Baseline) -> bool:
    """Whether a winner at the model's own rate is no faster than a baseline that nothing was proved against."""
    reached = share(profile)
    if _contest(profile, rival) is not None or reached is None or reached < MODEL_SHARE:
        return False
    return rival.images_per_second.value >= AS_FAST * profile.measurement.images_per_second.value


def _contest(profile: Profile, rival: Baseline | None) -> Contest | None:
    if rival is None or not profile.findings.proved:
        return None
    return next((each for each in profile.findings.contests if each.baseline and each.name == rival.name), None)


def share(profile: Profile) -> float | None:
    """Return how much of the model alone the winner reaches, side by side where that was measured; None: not known."""
    return profile.reached_share


def _cause(profile: Profile, rival: Baseline) -> str:
    """Return what keeps a baseline from being faster, or nothing where that is not known, as of somebody's own code."""
    ceiling = profile.findings.ceiling
    if ceiling is None or not ceiling.op_costs or rival.config is None or _is_own(rival):
        return ""
    config = pick.parse_config(rival.config)
    limits = cost_model.bounds(ceiling, config)
    rate = rival.images_per_second.value
    found = bottleneck.bottleneck(limits, max(rate, limits.images_per_second), rate / limits.model_images_per_second)
    if found.limit is None:
        return ""
    match found.kind:
        case Kind.STORAGE_LATENCY:
            known = ceiling.reads
            return f"Reads wait {_ms(limits.work.read_wait_seconds if known is None else known.latency_seconds)} each"
        case Kind.STORAGE_BANDWIDTH:
            return f"The storage gives {wording.rate(found.limit.images_per_second)} images/s"
        case Kind.PYTHON_LOCK:
            return f"{found.op} holds Python's lock for {_ms(limits.work.lock_seconds)} an image"
        case Kind.OP:
            return _work(limits, ceiling, found.limit)
        case _:
            return ""


def _work(limits: Bounds, ceiling: Ceiling, found: Limit) -> str:
    dearest = next((op for op in limits.work.paid if op.name == found.op), None)
    if dearest is None:
        return ""
    model = ceiling.model_core_seconds_per_image
    if model > limits.work.core_seconds:
        return f"The model needs {_ms(model)} of the cores for an image, and the loader {_ms(limits.work.core_seconds)}"
    takes = dearest.wall_seconds_per_image if found.workers else dearest.seconds_per_image
    return f"{dearest.name} takes {_ms(takes)} for each image"


def _does(profile: Profile, rival: Baseline | None, *, capital: bool = True) -> str:
    """Return what the winner does that the baseline does not, in at most three parts."""
    config = pick.config_of(profile)
    known = None if rival is None or _is_own(rival) else rival.config  # what the user's own code does is not known
    before = None if known is None else pick.parse_config(known)
    said = wording.listed(_parts(config, before)[:3])
    return said[:1].upper() + said[1:] if capital else said


def _parts(config: PipelineConfig, before: PipelineConfig | None) -> list[str]:
    parts = []
    ahead = config.loader.reads_at_once()
    if config.loader.reads_ahead() and ahead is not None:
        parts.append(f"reading {ahead} at a time")
    if config.storage != "files" and (before is None or before.storage != config.storage):
        parts.append(f"converting samples to {config.storage}")
    if config.cache != "none" and (before is None or before.cache == "none"):
        part = "" if config.cache_fraction == 1 else f"{config.cache_fraction:.0%} of the "
        parts.append(f"keeping {part}prepared samples in {config.cache}")
    if before is None or before.loader.kind != config.loader.kind or not parts:
        parts.append(_loading(config, before))
    if before is not None and config.finish == "device" and before.finish == "host":
        parts.append("casting on the device")
    return parts


def _loading(config: PipelineConfig, before: PipelineConfig | None) -> str:
    workers = config.loader.worker_count()
    if before is None or before.loader.kind != config.loader.kind:
        return f"loading by {config.loader.kind}" + (f" with {wording.count(workers, 'worker')}" if workers else "")
    known = before.loader.model_dump()
    changed = [f"{name}={value}" for name, value in config.loader.model_dump().items() if known.get(name) != value]
    if not changed and config.device_prefetch > before.device_prefetch:
        return f"putting {config.device_prefetch} batches on the device ahead"
    return f"loading with {wording.listed(changed or ['the same settings'])}"


def _ms(seconds: float) -> str:
    return wording.milliseconds(seconds) if math.isfinite(seconds) else "a while"
