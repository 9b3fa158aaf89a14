"""The summary of searches over the analytic surface, and its three forms."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import pytest
from rich.console import Console, RenderableType

from autopipe.core.config import PipelineConfig
from autopipe.core.facts import ReadCosts, ReadRung, SampleTail
from autopipe.core.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.core.stats import Comparison, Interval
from autopipe.core.value import Estimate
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.reports import document, text
from autopipe.reports.summary import Summary, summary_of, times_faster
from autopipe.search import library, study
from autopipe.search.result import SearchResult
from autopipe.search.settings import Settings
from autopipe.search.stopping import Reason, Stop
from tests.fakes.surface import Surface

TIME = Stop(reason=Reason.TIME, message="The time is up.")
CEILING = Stop(reason=Reason.CEILING, message="The model is the limit.")
KEYS = [
    "best",
    "images_per_second",
    "baselines",
    "ceiling",
    "devices",
    "accelerator_utilisation",
    "conversions",
    "trials",
    "failed",
    "seconds",
    "measuring_seconds",
    "stopped",
    "trust",
    "warnings",
]


@pytest.fixture(scope="module")
def result() -> SearchResult:
    surface = Surface(cores=4, model_rate=60_000.0, noise=0.01, seed=1)
    space = library.load("quick", {"cores": 4, "gpus": 0})
    return study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=10))


@pytest.fixture
def summary(result: SearchResult) -> Summary:
    return summary_of(result)


def shown(renderable: RenderableType, width: int = 100) -> str:
    written = io.StringIO()
    Console(file=written, width=width).print(renderable)
    return written.getvalue()


def test_a_baselines_gain_is_the_proofs(result: SearchResult) -> None:
    for baseline in result.baselines:
        assert baseline.gain is not None
        assert times_faster(baseline, result) == baseline.gain.ratio


def test_without_a_proof_a_gain_is_the_ratio_of_the_rates(result: SearchResult) -> None:
    unconfirmed = dataclasses.replace(result.baselines[0], gain=None)
    assert unconfirmed.estimate is not None
    assert result.estimate is not None
    ratio = result.estimate.value / unconfirmed.estimate.value
    assert times_faster(unconfirmed, result) == pytest.approx(ratio)


def test_an_interval_from_fewer_than_three_rounds_says_so(result: SearchResult) -> None:
    def of(pairs: int) -> Summary:
        gain = Comparison(ratio=10.0, interval=Interval(9.0, 11.0), pairs=pairs)
        return summary_of(dataclasses.replace(result, baselines=[dataclasses.replace(result.baselines[0], gain=gain)]))

    assert "(9.00 to 11, 1 round and the trials)" in shown(text.render(of(1)), width=200)
    assert "10x (9.00 to 11)" in shown(text.render(of(3)), width=200)
    assert document.document(of(1), None)["baselines"]["keras"]["pairs"] == 1


@pytest.mark.parametrize(("epochs", "counted"), [(1, "1 epoch"), (2, "2 epochs")])
def test_a_ratio_that_counts_what_is_paid_once_says_so(result: SearchResult, epochs: int, counted: str) -> None:
    run = result.confirmation
    assert run is not None
    assert not [each for each in summary_of(dataclasses.replace(result, epochs=epochs)).warnings if "epoch" in each]
    dear = {
        key: {at: value / (1 + (key != run.winner)) for at, value in ran.items()} for key, ran in run.rounds.items()
    }
    over = dataclasses.replace(result, epochs=epochs, confirmation=dataclasses.replace(run, scores=dear))
    (note,) = summary_of(over).warnings
    assert note.startswith(
        f"How many times faster the winner is holds for the whole training of {counted}, with what is paid once:"
    )


def test_one_trial_is_called_that(result: SearchResult) -> None:
    one = dataclasses.replace(result, trials=result.trials[:1])
    assert "(1 trial, " in shown(text.render(summary_of(one)), width=300)


def test_rounds_that_were_cut_off_prove_nothing(result: SearchResult) -> None:
    gain = Comparison(ratio=10.0, interval=Interval(9.0, 11.0), pairs=3)
    baselines = [dataclasses.replace(result.baselines[0], gain=gain)]
    cut = dataclasses.replace(result, interrupted=True, proved=False, baselines=baselines)
    said = shown(text.render(summary_of(cut)), width=200)
    assert "10x, not proved" in said
    assert "9.00 to 11" not in said


def test_a_baseline_that_is_the_best_is_said_to_be(result: SearchResult) -> None:
    assert result.best_config is not None
    same = dataclasses.replace(result.baselines[0], config=result.best_config, gain=None)
    summary = summary_of(dataclasses.replace(result, baselines=[same]))
    assert "this very baseline" in shown(text.render(summary))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"interrupted": True, "proved": False}, "low: interrupted, so nothing was proved."),
        ({"proved": False}, "low: nothing was proved."),
        (
            {"drift": -0.3},
            "low: the baselines ended 30% slower. Ratios hold: they were measured side by side.",
        ),
        ({"drift": 0.01}, "good: proved side by side, on cores that little else used."),
    ],
    ids=str,
)
def test_how_far_to_trust_the_figures_is_said(result: SearchResult, change: dict[str, object], said: str) -> None:
    assert summary_of(dataclasses.replace(result, **change)).trust == said  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (1.5, 0.9, 2.5, "low: the rounds do not tell the winner from keras."),
        (0.8, 0.6, 1.1, "low: the rounds do not tell the winner from keras."),
        (1.01, 0.98, 1.04, "good: proved side by side, on cores that little else used."),
        (1.5, 1.4, 1.6, "good: proved side by side, on cores that little else used."),
    ],
)
def test_a_gain_that_is_not_decided_is_not_called_proved(
    result: SearchResult, ratio: float, low: float, high: float, said: str
) -> None:
    gain = Comparison(ratio=ratio, interval=Interval(low, high), pairs=3)
    (keras,) = (each for each in result.baselines if each.name == "keras")
    unsure = dataclasses.replace(result, drift=0.0, baselines=[dataclasses.replace(keras, gain=gain)])
    assert summary_of(unsure).trust == said


def test_a_share_of_the_model_that_the_figures_do_not_give_says_how_it_was_read(result: SearchResult) -> None:
    run, rate = result.confirmation, result.estimate
    assert run is not None
    assert rate is not None
    assert result.ceiling is not None

    def said(share: float) -> str:
        read = Estimate(value=share, low=share, high=share)
        found = dataclasses.replace(result, confirmation=dataclasses.replace(run, reached_share=read))
        return " ".join(shown(text.render(summary_of(found)), width=200).split())

    given = rate.value / result.ceiling.model_images_per_second.value
    assert f"at {given:.0%} of it, side by side" not in said(given)
    assert f"at {given + 0.1:.0%} of it, side by side" in said(given + 0.1)


def test_where_a_baseline_is_at_the_ceiling_too_nothing_was_to_be_proved(result: SearchResult) -> None:
    stop = Stop(reason=Reason.CEILING, message="The best reaches the model's own rate.")
    there = dataclasses.replace(result.baselines[0], estimate=result.estimate, gain=None)
    ended = dataclasses.replace(result, proved=False, stopped_because=stop, baselines=[there])
    assert summary_of(ended).trust == "good: a baseline is as fast as the model alone, too, so that no gain is claimed."
    assert summary_of(dataclasses.replace(ended, baselines=[])).trust == "low: nothing was proved."


def test_other_programs_are_named_as_the_reason_for_little_trust(result: SearchResult) -> None:
    trials = []
    for row in result.trials:
        assert isinstance(row.outcome, Measurement)
        resources = row.outcome.resources.model_copy(update={"others_cpu_percent": 140.0})
        outcome = row.outcome.model_copy(update={"resources": resources})
        trials.append(dataclasses.replace(row, outcome=outcome))
    summary = summary_of(dataclasses.replace(result, trials=trials, drift=0.0))
    assert summary.trust == ("low: other programs took 1.4 of the cores. Ratios hold: they were measured side by side.")


def test_a_ceiling_below_what_was_trained_at_is_called_that_and_no_share_is_made_of_it(result: SearchResult) -> None:
    assert result.ceiling is not None
    low = Estimate(value=100.0, low=90.0, high=110.0)
    ceiling = result.ceiling.model_copy(update={"model_images_per_second": low})
    summary = summary_of(dataclasses.replace(result, ceiling=ceiling, confirmation=None, proved=False))
    assert (summary.result.share_of_ceiling, summary.share_of_bound, summary.bottleneck) == (None, None, None)
    said = " ".join(shown(text.render(summary)).split())
    assert "Limit not known: the model alone was read at 100 images/s, less than it trains at" in said


def test_that_it_was_interrupted_is_a_note(result: SearchResult) -> None:
    summary = summary_of(dataclasses.replace(result, interrupted=True))
    assert summary.warnings[0] == "The search was interrupted: this is the best so far, not proved."
    nothing = summary_of(dataclasses.replace(result, interrupted=True, best_config=None))
    assert nothing.warnings[0] == "The search was interrupted before anything to use was measured."


def test_that_nothing_beside_the_baselines_was_tried_is_said_with_what_it_takes(result: SearchResult) -> None:
    baselines = {each.config.key() for each in result.baselines}
    few = [row for row in result.trials if row.key in baselines]
    summary = summary_of(dataclasses.replace(result, trials=few, seconds=30.0, stopped_because=TIME))
    (note,) = summary.warnings
    assert note.startswith("Nothing beside the baselines could be tried: a trial takes 2.8 s here. `--budget 2m`")
    at_ceiling = dataclasses.replace(result, trials=few, stopped_because=CEILING)
    assert summary_of(at_ceiling).warnings == ("Nothing beside the baselines was tried: there is nothing to gain.",)


def test_where_no_more_trials_were_allowed_neither_time_nor_workers_are_what_lacked() -> None:
    surface = Surface(cores=4, model_rate=60_000.0, noise=0.01, seed=1)
    space = library.load("quick", {"cores": 4, "gpus": 0})
    found = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=1))
    (note,) = summary_of(found).warnings
    assert note == (
        "Nothing beside the baselines was tried: no more trials were allowed. `--trials 22` leaves some for the search."
    )
    assert "Stopped 1 trial was allowed, and 2 have run, the baselines among them. (" in " ".join(
        shown(text.render(summary_of(found))).split()
    )


def test_where_nothing_else_can_run_a_longer_search_is_no_advice(result: SearchResult) -> None:
    baselines = {each.config.key() for each in result.baselines}
    few = [row for row in result.trials if row.key in baselines]
    stop = Stop(reason=Reason.EXHAUSTED, message="Every configuration that can run has been measured.")
    (note,) = summary_of(dataclasses.replace(result, trials=few, stopped_because=stop)).warnings
    assert note == "Nothing beside the baselines was tried: nothing else can run here."


def test_an_interval_that_holds_one_is_not_decided_and_what_would_decide_is_said(result: SearchResult) -> None:
    gain = Comparison(ratio=2.21, interval=Interval(0.5, 9.8), pairs=3)
    unsure = dataclasses.replace(result.baselines[0], gain=gain)
    said = shown(text.render(summary_of(dataclasses.replace(result, baselines=[unsure]))))
    assert "not decided, about 2.2x in 3 rounds; " in " ".join(said.split())
    assert re.search(r"\d more would tell, in about", " ".join(said.split()))


def test_of_two_rounds_nobody_can_say_how_many_more_would_tell(result: SearchResult) -> None:
    gain = Comparison(ratio=1.02, interval=Interval(0.97, 1.07), pairs=2)
    unsure = dataclasses.replace(result.baselines[0], gain=gain)
    said = shown(text.render(summary_of(dataclasses.replace(result, baselines=[unsure]))))
    assert "not decided, about 1x in 2 rounds; a longer `--budget` would tell" in " ".join(said.split())


def test_an_interval_that_means_nothing_is_not_printed(result: SearchResult) -> None:
    wild = dataclasses.replace(result, estimate=Estimate(value=485.0, low=4.0, high=58_882.0))
    said = shown(text.render(summary_of(wild)))
    assert "485  too unsteady" in said
    assert "58,882" not in said


def test_a_quiet_search_has_no_warnings(result: SearchResult) -> None:
    assert summary_of(dataclasses.replace(result, drift=0.01)).warnings == ()


@pytest.mark.parametrize(
    ("samples", "share", "said"),
    [
        (200, 0.17, r"slowest 1 % of the reads take 17% .*2 s and more .*less than 80 ms.*photo 7.*read_ahead"),
        (200, 0.05, None),
        (12, 0.17, "not known: 12 reads could be timed, and 100 are needed"),
    ],
)
def test_reads_of_which_few_take_most_of_the_time_are_told_of(
    result: SearchResult, samples: int, share: float, said: str | None
) -> None:
    assert result.ceiling is not None
    tail = SampleTail(
        samples=samples, p50_seconds=0.08, p95_seconds=0.1, p99_seconds=2.0, slowest_share=share, slowest="photo 7"
    )
    rungs = tuple(ReadRung(at_once=many, images_per_second=12.0 * many) for many in (1, 4))
    reads = ReadCosts(latency_seconds=0.08, cpu_seconds=0.001, rungs=rungs, bytes_per_image=4.0, tail=tail)
    ceiling = result.ceiling.model_copy(update={"reads": reads})
    found = summary_of(dataclasses.replace(result, drift=0.01, ceiling=ceiling)).warnings
    assert len(found) == (said is not None)
    assert said is None or re.search(said, found[0])


def test_the_text_has_the_winner_each_baseline_the_limit_the_trust_and_why_it_stopped(
    summary: Summary,
) -> None:
    verdict = (
        "Reads wait 20 ms each; reading 24 at a time lifts you from 74 to 991 images/s, 99% of what the model takes."
    )
    lines = shown(text.render(summary, verdict)).splitlines()
    labels = [line.split("  ")[0] for line in lines if not line.startswith(" ")]
    assert lines[0].startswith("Reads wait 20 ms each; ")
    assert labels[labels.index("keras") :][:6] == ["keras", "tfdata", "the winner", "the model alone", "", "Winner"]
    assert [label for label in labels if label][-2:] == ["Trust", "Stopped"]
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 20  # four more say what was written, and what to do next


def test_a_baseline_that_failed_has_no_rate_but_its_reason(result: SearchResult) -> None:
    failed = dataclasses.replace(result.baselines[0], estimate=None, gain=None)
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="it crashed")
    told = dataclasses.replace(failed, failure=failure)
    assert "it failed: it crashed" in shown(text.render(summary_of(dataclasses.replace(result, baselines=[told]))))
    assert "not measured" in shown(text.render(summary_of(dataclasses.replace(result, baselines=[failed]))))


def test_where_no_baseline_can_be_written_the_reason_and_what_can_be_done_are_said(result: SearchResult) -> None:
    message = "left out: its samples are behind a URL (s3://); those on a disk can"
    failure = TrialFailure(kind=FailureKind.UNSUPPORTED, phase=Phase.BUILD, message=message)
    left_out = [dataclasses.replace(each, estimate=None, gain=None, failure=failure) for each in result.baselines]
    summary = summary_of(dataclasses.replace(result, baselines=left_out))
    assert summary.warnings == (
        "The best was compared with nothing: keras and tfdata cannot be written without autopipe, because its samples "
        "are behind a URL (s3://); those on a disk can. --baseline FILE.py:function compares with a pipeline of your "
        "own.",
    )
    said = shown(text.render(summary), width=200)
    assert message in said
    assert "it failed" not in said
    assert document.document(summary, None)["baselines"]["keras"]["failure"] == message
    one = dataclasses.replace(result, baselines=[result.baselines[0], left_out[1]])
    assert summary_of(one).warnings == ()


@pytest.mark.parametrize(
    ("epochs", "share", "regime", "told"),
    [
        (1, 0.25, "warm", True),
        (1, 0.25, "cold", False),
        (1, 0.95, "warm", False),
        (1, None, "warm", False),
        (2, 0.25, "warm", False),
        (None, 0.25, "warm", False),
    ],
)
def test_a_single_epoch_of_files_that_were_on_the_disk_is_told_of_the_cold_page_cache(
    result: SearchResult, epochs: int | None, share: float | None, regime: str, told: bool
) -> None:
    assert result.measurement is not None
    measured = result.measurement.model_copy(update={"page_cache": regime})
    found = summary_of(dataclasses.replace(result, epochs=epochs, resident_share=share, measurement=measured)).warnings
    assert [said for said in found if "--page-cache cold" in said] == [
        "A training of one epoch reads files as it finds them: 75% were not in memory when the tune began, and trials "
        "read them beforehand. --page-cache cold measures a training that finds them on the disk."
    ] * told


def test_a_search_that_found_nothing_says_so(result: SearchResult) -> None:
    nothing = dataclasses.replace(result, best_config=None, estimate=None, measurement=None)
    assert "No configuration could be measured." in shown(text.render(summary_of(nothing)))
    assert document.document(summary_of(nothing), None)["best"] is None


def test_the_document_has_its_keys_and_is_json(summary: Summary) -> None:
    found = json.loads(json.dumps(document.document(summary, "tuned/autopipe.json")))
    assert list(found) == [*KEYS, "artifact"]
    assert set(found["images_per_second"]) == {"value", "low", "high", "proved"}
    assert found["baselines"]["keras"]["times_faster"] > 1
    assert found["ceiling"]["model_images_per_second"]["value"] > 0
    assert found["artifact"] == "tuned/autopipe.json"


def test_a_simulated_accelerators_utilisation_stands_beside_that_of_each_baseline(result: SearchResult) -> None:
    slow = SimulatedAccelerator(step_seconds=100.0, batch_size=32)  # whatever feeds it, it computes all the time
    summary = summary_of(result, slow)
    assert summary.utilisation == {"best": 1.0, "keras": 1.0, "tfdata": 1.0}
    assert "100.0% of the time the simulated accelerator computes (keras 100.0%" in shown(text.render(summary))
    assert document.document(summary, None)["accelerator_utilisation"]["tfdata"] == 1.0
    assert document.document(summary_of(result), None)["accelerator_utilisation"] is None


def test_the_document_holds_what_an_image_costs(summary: Summary) -> None:
    ceiling = document.document(summary, None)["ceiling"]
    assert [op["name"] for op in ceiling["ops"]] == ["read", "Decode", "RandomFlip", "Rescale"]
    assert {"seconds_per_image", "wait_seconds_per_image", "lock_seconds_per_image"} <= ceiling["ops"][0].keys()
    assert ceiling["reads"] is None  # the surface measures none


def test_a_winner_whose_pixels_differ_is_told_of(result: SearchResult) -> None:
    Dali = pytest.importorskip("autopipe.extensions.dali.loader").Dali
    dali = Dali(num_threads=2)
    found = dataclasses.replace(result, best_config=PipelineConfig(loader=dali))
    assert dali.pixels_differ() in summary_of(found).warnings
    assert not any("pixels" in warning for warning in summary_of(result).warnings)


@pytest.mark.parametrize(("regime", "other"), [("warm", "cold"), ("cold", "warm")])
def test_a_baseline_whose_files_there_was_no_time_for_is_named(result: SearchResult, regime: str, other: str) -> None:
    slow = result.baselines[0]
    rows = [
        dataclasses.replace(
            row,
            outcome=row.outcome.model_copy(
                update={"page_cache": regime, "files_ready": row.key != slow.config.key()},
            ),
        )
        for row in result.trials
        if isinstance(row.outcome, Measurement)
    ]
    found = [
        said
        for said in summary_of(dataclasses.replace(result, trials=rows)).warnings
        if said.startswith(f"{slow.name} may be worse or better")
    ]
    assert len(found) == 1
    assert found[0].endswith(f"with --page-cache {other}.")
    assert not any("may be worse or better" in said for said in summary_of(result).warnings)
