"""The meaning of a result in sentences: the headline, the action, the trust in it, and notes.

An enum gives the case; then the sentence of that case is filled in. The terminal, the page, the notebook and
JSON all take their words from here.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator

from autopipe.artifact import pick
from autopipe.measure.bottleneck import MODEL_SHARE
from autopipe.measure.facts import FEWEST_OF_A_TAIL, SampleTail
from autopipe.measure.outcome import FailureKind
from autopipe.measure.stats import EQUAL, FEWEST_PAIRS, Ratio
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.reports import wording
from autopipe.search.result import WORTH, BaselineResult, Contest, Effect, Reason, Result
from autopipe.search.space import Params, from_config
from autopipe.values import UNSTEADY, capital, listed
from autopipe.workload.mode import Mode

_SPENT = 0.5  # of a budget: with the rest of it, the same command again may do nothing
_ADVISED_TRIALS = 20  # with their confirmation run
_MOST_RESIDENT = 0.9  # of the files: with more of them in memory, the disk has no part in the rate
_BUSY_CORES = 0.5  # taken by other programs
_DRIFT = 0.05
_LARGER_BATCH = 1.3  # times as fast, from which twice the batch size is told of


class Case(enum.Enum):
    """The outcomes of a comparison of the winner with a baseline."""

    ALONE = enum.auto()  # there is no baseline
    SAME = enum.auto()  # the baseline is the winner
    CLOSE = enum.auto()  # no significant difference, and close
    UNSTEADY = enum.auto()  # no significant difference, though the winner seems to be ahead
    BUSY = enum.auto()  # the baseline keeps the model busy
    BEHIND = enum.auto()  # the baseline is ahead, by rates that were not measured side by side
    SIDE_BY_SIDE = enum.auto()  # the winner is ahead in rounds of both, but not by the rates that are shown
    LIFT = enum.auto()  # the winner is ahead


_HEADLINES = {
    Case.ALONE: "{does}: {rate} images/s{reached}.",
    Case.SAME: "Nothing that was tried is faster than {rival}: {rate} images/s{reached}.",
    Case.CLOSE: "Nothing is measurably faster than {rival} ({base} images/s).",
    Case.UNSTEADY: "{does}: about {times} as fast as {rival} ({base} images/s), but the measurements are too "
    "unsteady to prove it.",
    Case.BUSY: "The model is the limit: {rival} already keeps it busy, at {base} images/s.",
    Case.BEHIND: "Nothing faster than {rival} ({base} images/s) was found yet, and nothing is proved.",
    Case.SIDE_BY_SIDE: "{does}: {times} as fast as {rival}, measured side by side{reached}.",
    Case.LIFT: "{does}: {base} -> {rate} images/s{reached}{doubt}.",
}


def headline(result: Result) -> str:
    """Return the headline: the winner's rate and its gain over the user's own pipeline, or else the best baseline."""
    best, rival = result.winner, compared_with(result)
    if best is None:
        return "No configuration could be measured."
    share = best.share_of_model
    contest, base = contest_with(result, rival), None if rival is None else rival.images_per_second
    likely = ", not proved yet"
    if contest is not None:
        likely = f", likely but not proved by {wording.count(contest.pairs, 'round')}" if contest.few else ""
    said = _HEADLINES[case_of(result)].format(
        does=_does(result, rival),
        rival="" if rival is None else rival.name,
        rate=wording.rate(best.images_per_second.value),
        base="" if base is None else wording.rate(base.value),
        times=wording.times(1.0 if contest is None else contest.ratio),
        reached="" if share is None else f", {share:.0%} of the model's own speed",
        doubt=likely,
    )
    if rival is None or not is_own(rival):
        return said
    rates = [(each.name, each.images_per_second) for each in result.baselines if each is not rival]
    others = [f"{name} {wording.rate(rate.value)}" for name, rate in rates if rate is not None]
    return f"{said} For comparison: {listed(others)} images/s." if others else said


def case_of(result: Result) -> Case:
    """Return the case of a result with a winner."""
    best, rival = result.winner, compared_with(result)
    if best is None or rival is None or rival.images_per_second is None:
        return Case.ALONE
    if rival.key == best.key:
        return Case.SAME if result.proved or (best.share_of_model or 0.0) >= MODEL_SHARE else Case.BEHIND
    contest, rate, base = contest_with(result, rival), best.images_per_second.value, rival.images_per_second.value
    if contest is not None and not contest.faster:
        return Case.CLOSE if contest.ratio <= WORTH else Case.UNSTEADY
    if contest is None and (best.share_of_model or 0.0) >= MODEL_SHARE and base >= EQUAL * rate:
        return Case.BUSY
    if rate > base:
        return Case.LIFT
    return Case.BEHIND if contest is None else Case.SIDE_BY_SIDE


def action(result: Result) -> str:
    """Return the one recommended action."""
    case, best = case_of(result), result.winner
    limited = best is not None and (best.share_of_model or 0.0) >= MODEL_SHARE
    if case in (Case.SAME, Case.BUSY):
        said = "Leave the pipeline as it is."
        return f"{said} A faster model, or a faster device for it, would help." if limited else said
    if not result.proved or case is Case.UNSTEADY:
        return f"Search on until it is proved: {_how_to_go_on(result)}."
    if case is Case.CLOSE:
        return f"Leave the pipeline as it is, or search on until it is proved: {_how_to_go_on(result)}."
    if (ahead := _ahead(result)) is not None:
        return f"{ahead.name} is faster still{_printed(ahead)}. Or search on: {_how_to_go_on(result)}."
    if limited:
        return "Train with it. The model is the limit now: no pipeline can be faster."
    return "Train with it. What still limits it is named below."


def compared_with(result: Result) -> BaselineResult | None:
    """Return the baseline to compare with: the user's own, or the fastest, in the confirmation run if there was one."""
    measured = [(each, each.images_per_second.value) for each in result.baselines if each.images_per_second is not None]
    if own := [pair for pair in measured if is_own(pair[0])]:  # several, on several devices
        return max(own, key=lambda pair: pair[1])[0]
    if ran := [(each, contest) for each, _ in measured if (contest := contest_with(result, each)) is not None]:
        return min(ran, key=lambda pair: (pair[1].few, pair[1].ratio))[0]
    return max(measured, key=lambda pair: pair[1])[0] if measured else None


def is_own(baseline: BaselineResult) -> bool:
    """Return True if a baseline is the user's own pipeline."""
    return any(getattr(config.loader, "is_own", False) for config in pick.readable([baseline.config]))


def is_proved(contest: Contest | None) -> bool:
    """Return True if three rounds or more show a significant difference between the winner and a baseline."""
    return contest is not None and contest.decided and not contest.few


def doubt(result: Result, baseline: BaselineResult) -> str:
    """Return the doubt about a ratio to a baseline, or an empty text; that of the winner to itself needs no proof."""
    contest = contest_with(result, baseline)
    if is_proved(contest) or (result.winner is not None and baseline.key == result.winner.key):
        return ""
    return "not proved" if contest else "measured once"


def contest_with(result: Result, baseline: BaselineResult | None) -> Contest | None:
    """Return the rounds with a baseline; None without, and of a run that was cut off, which proves nothing."""
    return None if result.interrupted or baseline is None else result.contest(baseline)


# -------------------- parts of the headline


_MOST_TOLD = 3  # settings in a headline


def _does(result: Result, rival: BaselineResult | None) -> str:
    """Return what the winner does and the rival does not, as far as it has a measured effect, the largest first."""
    best = result.winner
    assert best is not None  # else there is no such headline
    config = pick.parse_config(best.config)
    # The configuration of the user's own code is not known.
    before = None if rival is None or is_own(rival) else pick.parse_config(rival.config)
    theirs: Params = {} if before is None else from_config(before)
    credited = [each for each in _next_best(result, theirs) if before is None or _is_new(each, theirs)]
    loaders = [each for each in result.effects if each.setting == "loader"]
    near = [each for each in loaders if each.other == TfData().kind] or loaders  # the nearest to what people write
    if not all(each.faster and each.ratio >= WORTH for each in near):
        credited = [each for each in credited if each not in loaders]
    said = [_told(each, config) for each in credited[:_MOST_TOLD]]
    plain = [each for each in said if "=" in each]
    said = ([f"with {listed(plain)}"] if plain else []) + [each for each in said if each not in plain]
    return capital(listed(said or ["the winner"]))


def _next_best(result: Result, theirs: Params) -> list[Effect]:
    """Return the measured gain of each setting over the rival's value or, if it has none, over the next best."""
    nearest = dict[str, Effect]()
    for each in sorted(result.effects, key=lambda each: -each.ratio):
        of_rival = each.setting not in theirs or each.setting == "loader" or each.other == theirs[each.setting]
        if of_rival and each.faster and each.ratio >= WORTH:
            nearest[each.setting] = each
    return sorted(nearest.values(), key=lambda each: -each.ratio)


def _is_new(effect: Effect, theirs: Params) -> bool:
    """Return True if a rival has another value; of a knob that it does not have, only if it makes reads wait less."""
    if effect.setting in theirs:
        return theirs[effect.setting] != effect.value
    return effect.setting.endswith(".read_ahead")


def _told(effect: Effect, config: PipelineConfig) -> str:
    setting, kept, workers = effect.setting, config.kept, config.loader.worker_count()
    match setting:
        case "loader":
            return f"loading with {config.loader.kind}" + (f" ({wording.count(workers, 'worker')})" if workers else "")
        case "keep" if kept.converts:
            return f"converting samples to {kept.form}"
        case "keep" if kept.in_memory:
            part = "" if kept.part == 1 else f"{kept.part:.0%} of the "
            return f"caching {part}{'encoded' if kept.encoded else 'prepared'} samples in memory"
        case "finish" if config.finish == "device":
            return "casting on the device"
        case "device_prefetch" if config.device_prefetch:
            return f"putting {config.device_prefetch} batches on the device ahead"
        case _ if setting.endswith(".read_ahead") and config.loader.reads_ahead():
            return f"reading {config.loader.reads_at_once()} samples at a time"
        case _:
            return f"{setting.partition('.')[2] or setting}={effect.value}"


def _how_to_go_on(result: Result) -> str:
    """Return the way to a proof: the same command again does nothing if its time is up, or its study is over."""
    if result.study_url is None:
        return "its study was in memory, so give the next one a longer budget"
    if (result.study or "").startswith("retune-"):  # each begins a study of its own, with the known configurations
        return "give `autopipe retune` a longer `--budget`"
    if result.budget_seconds is not None and result.seconds > _SPENT * result.budget_seconds:
        return "the same command with a longer `--budget` continues the study, and with `--fresh` starts a new one"
    if result.proved:
        return "the same command with `--fresh` starts a new study"
    return "the same command again continues the study"


def _ahead(result: Result) -> BaselineResult | None:
    rival = compared_with(result)
    times = [(result.times_faster(each) or math.inf, each) for each in result.baselines if each is not rival]
    factor, ahead = min(times, key=lambda pair: pair[0], default=(math.inf, None))
    return ahead if factor * WORTH < 1 else None


def _printed(baseline: BaselineResult) -> str:
    loaders = [config.loader for config in pick.readable([baseline.config]) if config.loader.is_foreign]
    plain = [loader.model_dump()["code"] for loader in loaders if not is_own(baseline)]
    return f": `autopipe eject --to {plain[0]}` prints it" if plain else ""


def trust(result: Result) -> tuple[bool, str]:
    """Return True if the figures can be trusted, and the reason."""
    reasons, rounds = [], _rounds(result)
    few = bool(result.contests) and (not result.proved or rounds < FEWEST_PAIRS)
    if result.interrupted:
        reasons.append("interrupted, so nothing was proved")
    elif few:
        reasons.append(f"a proof needs {FEWEST_PAIRS} rounds side by side, and there was time for {rounds}")
    elif not result.proved and not _all_reach_the_ceiling(result):
        reasons.append("nothing was proved")
    if result.others_cores >= _BUSY_CORES:
        reasons.append(f"other programs took {result.others_cores:.1f} of the cores")
    if result.drift is not None and abs(result.drift) > _DRIFT:
        reasons.append(f"the baselines ended {abs(result.drift):.0%} {'faster' if result.drift > 0 else 'slower'}")
    rate = None if result.winner is None else result.winner.images_per_second
    varies = rate is not None and rate.has_interval and rate.high > UNSTEADY * rate.low
    if varies:
        reasons.append("the winner's rate is unsteady")
    unsure = [each.baseline for each in result.contests if each.baseline and not each.decided and _apart(each)]
    if unsure and result.proved:
        reasons.append(f"the rounds show no clear difference between the winner and {listed(unsure)}")
    if not reasons:
        return True, f"{_what_was_proved(result)}."
    hold = result.proved and not few and not unsure and (not varies or all(each.decided for each in result.contests))
    return False, f"{'; '.join(reasons)}.{' The ratios hold: they were measured side by side.' if hold else ''}"


def _rounds(result: Result) -> int:
    contest = contest_with(result, compared_with(result))
    return contest.pairs if contest is not None else max((each.pairs for each in result.contests), default=0)


def _what_was_proved(result: Result) -> str:
    if not result.proved:
        return "a baseline is as fast as the model alone, so no gain is claimed"
    rival, best = compared_with(result), result.winner
    contest, rounds = contest_with(result, rival), wording.count(_rounds(result), "round")
    if best is not None and rival is not None and rival.key == best.key:
        said = f"nothing was measurably faster than {rival.name} in {rounds} side by side"
    elif rival is not None and contest is not None and not contest.decided:
        said = f"no measurable difference from {rival.name} in {rounds} side by side"
    else:
        said = f"proved side by side in {rounds}" if result.contests else "proved side by side"
    return f"{said}, on cores that little else used"


def trust_text(result: Result) -> str:
    """Return the same as one line."""
    good, why = trust(result)
    return f"{'good' if good else 'low'}: {why}"


def _apart(of: Ratio) -> bool:
    return abs(math.log(of.ratio)) > math.log(WORTH)


def _all_reach_the_ceiling(result: Result) -> bool:
    rates = [each.images_per_second.value for each in result.baselines if each.images_per_second is not None]
    best = math.inf if result.winner is None else result.winner.images_per_second.value
    return result.stop.reason is Reason.CEILING and max(rates, default=0.0) >= EQUAL * best


def gains(result: Result) -> str:
    """Return the gains of single settings over their next best value, those not proved, and those without one."""
    said = [
        f"{each.setting}={each.value} instead of {each.other}: {wording.times(each.ratio)}"
        for each in _next_best(result, {})
    ]
    undecided = {each.setting for each in result.effects} - {each.setting for each in result.effects if each.decided}
    apart = {each.setting for each in result.effects if _apart(each)}
    kinds = (("Not proved", undecided & apart), ("No measurable effect", undecided - apart))
    rest = [f"{words}: {', '.join(sorted(settings))}" for words, settings in kinds if settings]
    found = "; ".join(said) + ", by trials one after the other" * (bool(said) and not result.proved)
    return ". ".join(filter(None, (found, *rest)))


def epoch(result: Result) -> str:
    """Return the time of a whole epoch by the winner, and by baselines; empty if it was not measured."""
    best = result.winner
    if best is None or best.epoch is None:
        return ""
    mine = best.epoch
    parts = (("steps", mine.training_seconds), ("validation", mine.validation_seconds), ("pauses", mine.pause_seconds))
    of = ", ".join(f"{name} {wording.seconds(seconds)}" for name, seconds in parts)
    part = "" if mine.share >= 1 else f"; steps were timed on {mine.share:.0%} of the samples"
    others = [(each.name, each.epoch) for each in result.baselines if each.key != best.key]
    told = [f"{name} {wording.seconds(took.seconds)}" for name, took in others if took is not None]
    beside = f". For comparison: {listed(told)}" if told else ""
    return f"{wording.seconds(mine.seconds)} ({of}), without callbacks of your own{part}{beside}"


def notes(result: Result) -> list[str]:
    """Return remarks that the reader can act on."""
    parts = (_of_the_search, _of_the_figures, _of_page_cache, _of_conversions, _of_samples, _of_the_batch_size)
    return [note for part in parts for note in part(result)]


def _of_the_search(result: Result) -> Iterator[str]:
    best = result.winner
    if result.interrupted:
        found = "before anything to use was measured." if best is None else "This is the best so far, and not proved."
        yield f"The search was interrupted{' ' if best is None else '. '}{found}"
    ran = {each.key for each in result.trials if each.images_per_second is not None or each.failure is not None}
    if best is not None and ran <= {each.key for each in result.baselines}:
        yield _only_baselines(result)
    if best is not None and not result.contests:
        blocks = [each for each in result.trials if each.block is not None and each.key == best.key]
        broken = next((each.failure for each in blocks if each.failure is not None), None)
        if broken is not None:
            yield f"The winner failed in its confirmation run, and may fail again: {wording.failed(broken)}"
    if result.ceiling is not None and not result.ceiling.op_costs:  # a dataset of the user's own
        against = [reason.partition(": ") for reason in result.left_out if reason.startswith("loader ")]
        for why in dict.fromkeys(why for _, _, why in against):
            kinds = sorted(name.removeprefix("loader ") for name, _, same in against if same == why)
            yield f"Not tried: loading with {listed(kinds)}. {capital(why)}"
    if result.unsaved is not None:
        yield (
            f"The study could not be written completely: {result.unsaved}. The figures here are complete; the next "
            "tune continues from what was written."
        )


def _only_baselines(result: Result) -> str:
    match result.stop.reason:
        case Reason.CEILING:
            why = "there is nothing to gain"
        case Reason.EXHAUSTED:
            why = "nothing else can run here"
        case Reason.TRIALS:
            trials = len(result.baselines) + _ADVISED_TRIALS
            why = f"no more trials were allowed. `--trials {trials}` leaves some for the search"
        case _:
            took = max((each.seconds for each in result.trials), default=0.0)
            advised = wording.budget(result.seconds + _ADVISED_TRIALS * took)
            rest = max(0.0, result.seconds - sum(each.seconds for each in result.trials))
            why = f"{rest:.0f} of {result.seconds:.0f} s went before and between trials, and one takes "
            why += f"{wording.seconds(took)}. `--budget {advised}` has time for some more"
    return f"Only the baselines were tried: {why}."


def _of_the_figures(result: Result) -> Iterator[str]:
    best = result.winner
    for config in pick.readable([] if best is None else [best.config]):
        if (differ := config.loader.pixels_differ()) is not None:
            yield differ
    if result.counted is not None:
        yield wording.counted(result.counted)
    if result.mode is not Mode.TRAIN:
        yield (
            f"All figures are of Keras's `{result.mode}`, which takes each batch once, in order and without chance. "
            "They say nothing of a training."
        )
    if result.whole_training and result.epochs is not None:
        yield (
            f"Ratios cover the whole training of {wording.count(result.epochs, 'epoch')} and its one-time costs: the "
            "first batch, filling a cache, converting. The images/s do not include these costs."
        )
    plain = {each.name: each.failure for each in result.baselines if each.failure is not None}
    left_out = all(each.kind is FailureKind.NOT_PLAIN for each in plain.values())
    if plain and left_out and len(plain) == len(result.baselines):
        reasons = "; ".join(dict.fromkeys(each.message for each in plain.values()))
        yield (
            f"The winner was compared with nothing: {listed(list(plain))} cannot be written without autopipe, "
            f"because {reasons}. --baseline FILE.py:function compares with a pipeline of your own."
        )


def _of_page_cache(result: Result) -> Iterator[str]:
    best = result.winner
    if best is None:
        return
    if names := [each.name for each in result.baselines if not each.files_ready]:
        if best.page_cache == "cold":
            done, other = "drop all files from memory first, so some may have been read from there", "warm"
        else:
            done, other = "read all files first, so some came from the disk that the winner found in memory", "cold"
        yield (
            f"The rate of {listed(names)} may be wrong: there was no time to {done}. Tune on a part of the "
            f"data, or with --page-cache {other}."
        )
    share = result.resident_share
    if result.epochs == 1 and share is not None and share < _MOST_RESIDENT and best.page_cache == "warm":
        yield (
            f"A training of one epoch may read files from the disk: {1 - share:.0%} of them were not in memory when "
            "the tune began, and trials read them first. --page-cache cold measures such a training."
        )


def _of_conversions(result: Result) -> Iterator[str]:
    for row in result.paybacks:
        rate, pays = f"{wording.rate(row.rate.value)} images/s", wording.pays(row.epochs)
        if row.overruled:
            yield (
                f"{wording.config(row.config)} would win with {rate}, but its conversion {pays}, and the training "
                f"has {result.epochs}."
            )
        if row.advice:
            took = wording.seconds(row.convert_seconds.value)
            yield (
                f"Converted to {row.storage}: {rate}, {took} to convert, {pays}. `--convert` uses it, and `--epochs N` "
                "decides whether it pays."
            )
    if result.epochs is None and any(not row.advice for row in result.paybacks):
        yield "The number of epochs is not known (`--epochs`), so the costs of conversions were not counted."


def _of_the_batch_size(result: Result) -> Iterator[str]:
    ceiling, doubled = result.ceiling, result.doubled_images_per_second
    if ceiling is None or doubled is None:
        return
    times = doubled / ceiling.model_images_per_second.value
    if times >= _LARGER_BATCH:
        yield (
            f"The model alone is {wording.times(times)} as fast with a batch of {2 * result.batch_size} "
            f"({wording.rate(doubled)} images/s). A tune does not change the batch size, which is a part of what is "
            "trained: `autopipe measure`, of the same workload, with `--batch-sizes 16,32,64`, say, shows more of them."
        )


def _of_samples(result: Result) -> Iterator[str]:
    """Yield the samples or reads that take much longer than others; or that this is unknown of reads that wait."""
    ceiling = result.ceiling
    if result.progressive_share:
        yield (
            f"Progressive JPEG are {result.progressive_share:.0%} of the images that were looked at. They take 1.5 to "
            "3 times as long to decode as baseline ones. `jpegtran -copy all -optimize` rewrites them without loss; "
            "`autopipe doctor --data FOLDER` prints the command for a folder."
        )
    if ceiling is None:
        return
    reads, tail = ceiling.reads, ceiling.tail
    if reads is not None and reads.waits and reads.tail is not None:
        if (timed := reads.tail.samples) < FEWEST_OF_A_TAIL:
            yield (
                "Whether some reads take much longer than others is not known: "
                f"{wording.count(timed, 'read')} could be timed, and {FEWEST_OF_A_TAIL} are needed."
            )
            return
        if reads.tail.heavy:
            yield (
                f"{_heavy(reads.tail, 'reads')} With `read_ahead`, threads and processes repeat a late read and take "
                "the first answer."
            )
            return
    if tail is not None and tail.heavy:
        yield _heavy(tail, "samples")


def _heavy(tail: SampleTail, what: str) -> str:
    half, most = wording.milliseconds(tail.p50_seconds), wording.milliseconds(tail.p99_seconds)
    return (
        f"The slowest 1 % of the {what} take {tail.slowest_share:.0%} of the time: {most} and more each, and half of "
        f"all take less than {half}. The slowest is {tail.slowest}."
    )
