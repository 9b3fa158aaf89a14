"""The result of a search as text for a terminal, and as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from autopipe.measure.outcome import EpochTime, FailureKind, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.reports import ladder, text
from autopipe.search import library, study
from autopipe.search.result import Payback, Reason, Result, Stop
from autopipe.search.settings import Settings
from autopipe.values import Estimate
from autopipe.workload.mode import Mode
from tests.fakes.facts import known
from tests.fakes.findings import payback
from tests.fakes.reports import printed
from tests.fakes.surface import Surface

KEYS = [
    "best",
    "images_per_second",
    "whole_training_images_per_second",
    "baselines",
    "ceiling",
    "devices",
    "accelerator_utilisation",
    "conversions",
    "epoch",
    "trials",
    "failed",
    "seconds",
    "measuring_seconds",
    "stopped",
    "trust",
    "warnings",
    "artifact",
]


def searched(**changes: Any) -> Result:
    surface = Surface(cores=4, model_rate=60_000.0, noise=0.01, seed=1)
    space = library.load("quick", {"cores": 4, "gpus": 0})
    settings = Settings(clock=surface.clock, **{"trials": 10, **changes})
    return study.run(space, surface, surface.facts(), settings).result


@pytest.fixture(scope="module")
def result() -> Result:
    return searched()


def said(found: Result, **changes: Any) -> str:
    """Return what is printed, its blanks as one."""
    return " ".join(printed(text.render(found.model_copy(update=changes)), width=200).split())


def against(found: Result, **changes: Any) -> dict[str, Any]:
    """Return a change of a result after which the rounds of its first baseline say something else."""
    rounds = known(found.contest(found.baselines[0]))
    return {"contests": (rounds.model_copy(update=changes),), "baselines": found.baselines[:1]}


def of_winner(found: Result, **changes: Any) -> dict[str, Any]:
    """Return a change of a result after which its winner is another."""
    return {"winner": known(found.winner).model_copy(update=changes)}


def test_the_text_has_the_headline_each_rate_the_winner_the_limit_the_trust_and_why_it_stopped(result: Result) -> None:
    lines = printed(text.render(result)).splitlines()
    labels = [line.split("  ")[0] for line in lines if not line.startswith(" ")]
    assert " -> " in " ".join(lines[:3])
    assert labels[labels.index("keras") :][:6] == ["keras", "tfdata", "the winner", "the model alone", "", "Winner"]
    assert [label for label in labels if label][-2:] == ["Trust", "Stopped"]
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 20  # four more say what was written, and what to do next


CUT = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")
GAIN = {"ratio": 10.0, "low": 9.0, "high": 11.0}


@pytest.mark.parametrize(
    ("changes", "rounds", "found"),
    [
        ({}, {"pairs": 3, **GAIN}, r" 10x \(9\.0 to 11\)"),
        ({}, {"pairs": 1, **GAIN}, r"likely 10x \(9\.0 to 11\), 1 round"),
        ({"stop": CUT}, {"pairs": 3, **GAIN}, r"10x, not proved(?!.* 9\.0 to 11)"),
        (
            {},
            {"ratio": 2.21, "low": 0.5, "high": 9.8, "pairs": 3},
            r"not decided, about 2.2x in 3 rounds; \d more would decide it, in about",
        ),
        (
            {},
            {"ratio": 1.02, "low": 0.97, "high": 1.07, "pairs": 2},
            r"not decided, about 1.02x in 2 rounds; a longer `--budget` would decide it",
        ),
    ],
    ids=str,
)
def test_what_the_rounds_say_of_a_baseline_stands_beside_it(
    result: Result, changes: dict[str, Any], rounds: dict[str, Any], found: str
) -> None:
    changed = {**changes, **against(result, **rounds)}
    assert re.search(found, said(result, **changed))
    document = text.document(result.model_copy(update=changed), None)
    assert document["baselines"]["keras"]["pairs"] == rounds["pairs"]


def test_a_search_without_a_gain_or_a_winner_says_so(result: Result) -> None:
    best = known(result.winner)
    same = result.baselines[0].model_copy(update={"key": best.key, "config": best.config})
    assert "this very baseline" in said(result, baselines=(same,))
    nothing = result.model_copy(update={"winner": None})
    assert printed(text.render(nothing)).strip() == "No configuration could be measured."
    assert text.document(nothing, None)["best"] is None


def test_a_baseline_without_a_rate_has_its_reason(result: Result) -> None:
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="it crashed")
    none = result.baselines[0].model_copy(update={"images_per_second": None})
    assert "not measured" in said(result, baselines=(none,))
    crashed = none.model_copy(update={"failure": failure})
    assert "it failed: it crashed" in said(result, baselines=(crashed,))
    left_out = none.model_copy(update={"failure": failure.model_copy(update={"kind": FailureKind.NOT_PLAIN})})
    found = said(result, baselines=(left_out,))
    assert "left out: it crashed" in found
    assert "it failed" not in found
    told = text.document(result.model_copy(update={"baselines": (left_out,)}), None)
    assert told["baselines"]["keras"]["failure"] == "it crashed"


class Drifting(Surface):
    """A machine that becomes slower during the confirmation run."""

    def before(self, config: PipelineConfig, proof: bool) -> None:
        self.decode_seconds *= 1.03 if proof else 1.0


def number(shown: str) -> float:
    return float(shown.replace(",", ""))


@pytest.mark.parametrize("epochs", [None, 2])
def test_each_ratio_is_that_of_the_rates_beside_it(epochs: int | None) -> None:
    """In text, page and JSON. The machine drifts, and one of two baselines leaves after a block."""
    surface = Drifting(cores=4, model_rate=20000.0, noise=0.02, seed=1)
    space = library.load("quick", {"cores": 4, "gpus": 0})
    settings = Settings(clock=surface.clock, trials=10, epochs=epochs, budget_seconds=None)
    found = study.run(space, surface, surface.facts(), settings).result
    rounds = [known(found.contest(each)).pairs for each in found.baselines]
    assert min(rounds) < 3 <= max(rounds)
    rates = dict[str, tuple[float, str]]()
    for line in printed(text.render(found), 140).splitlines():
        name, *columns = re.split(r"  +", line.strip())
        if name in ("keras", "tfdata", "the winner"):
            *_, rate = [each for each in columns if re.fullmatch(r"[\d,]+", each)]
            rates[name] = number(rate), columns[-1]
    best = rates["the winner"][0]
    document = text.document(found, None)
    for each in found.baselines:
        rate, told = rates[each.name]
        ratio = known(re.search(r"([\d.,]+)x", told))[1]
        last_digit = 10.0 ** -len(ratio.partition(".")[2])
        assert best / rate == pytest.approx(number(ratio), abs=0.51 * last_digit, rel=0.002)
        key = "whole_training_images_per_second" if found.whole_training else "images_per_second"
        mine, theirs = document[key], document["baselines"][each.name][key]
        quotient = mine / theirs if found.whole_training else mine["value"] / theirs["value"]
        assert document["baselines"][each.name]["times_faster"] == pytest.approx(quotient)
    assert found.whole_training is (epochs is not None)
    alone, reached = known(found.ceiling).model_images_per_second.value, known(known(found.winner).share_of_model)
    assert known(found.winner).images_per_second.value / alone == pytest.approx(reached)
    *_, keras, tfdata, _ = ladder.rungs(found)  # of the page
    assert [keras.images_per_second, tfdata.images_per_second] == [
        known(each.images_per_second).value for each in found.baselines
    ]


def test_in_eighty_columns_no_name_is_broken_within_a_word(result: Result) -> None:
    names = "image_dataset_from_directory", "Keras PyDataset, defaults"
    both = [each.model_copy(update={"name": name}) for each, name in zip(result.baselines, names, strict=True)]
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message=12 * "it crashed, ")
    both.append(both[0].model_copy(update={"key": "other", "images_per_second": None, "failure": failure}))
    shown = printed(text.render(result.model_copy(update={"baselines": tuple(both)})), 80)
    assert all(any(line.startswith(name) for line in shown.splitlines()) for name in names)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_limit_that_is_not_known_says_why(result: Result) -> None:
    unknown = of_winner(result, limit=None, share_of_model=None)
    slow = Estimate(value=100.0, low=90.0, high=110.0)
    found = said(result, ceiling=known(result.ceiling).model_copy(update={"model_images_per_second": slow}), **unknown)
    assert "Limit not known: the model alone was measured at 100 images/s, less than in training" in found
    assert "Limit not known: the model alone was not measured" in said(result, ceiling=None, **unknown)


def test_an_interval_that_means_nothing_is_not_printed(result: Result) -> None:
    wild = Estimate(value=485.0, low=4.0, high=58_882.0)
    found = said(result, **of_winner(result, images_per_second=wild))
    assert "485 too unsteady" in found
    assert "58,882" not in found


def test_the_document_has_its_keys_and_is_json(result: Result) -> None:
    found = json.loads(json.dumps(text.document(result, "tuned/autopipe.json")))
    assert list(found) == KEYS
    assert set(found["images_per_second"]) == {"value", "low", "high", "proved"}
    assert found["baselines"]["keras"]["times_faster"] > 1
    assert found["ceiling"]["model_images_per_second"]["value"] > 0
    assert [op["name"] for op in found["ceiling"]["ops"]] == ["read", "Decode", "RandomFlip", "Rescale"]
    costs = {"seconds_per_image", "wait_seconds_per_image", "lock_seconds_per_image"}
    assert costs <= found["ceiling"]["ops"][0].keys()
    assert found["ceiling"]["reads"] is None  # the surface measures none
    assert found["artifact"] == "tuned/autopipe.json"
    (told,) = text.document(result.model_copy(update={"paybacks": (payback(epochs=None),)}), None)["conversions"]
    assert (told["storage"], told["cut"], told["epochs_to_pay"]) == ("array", 2, None)
    assert {"convert_seconds", "images_per_second", "saved_seconds_an_epoch"} <= told.keys()


def test_the_time_of_a_whole_epoch_stands_beside_that_of_the_baselines(result: Result) -> None:
    assert "Epoch" not in said(result)
    assert text.document(result, None)["epoch"] == {}
    mine = EpochTime(training_seconds=0.4, validation_seconds=0.05, pause_seconds=0.02, share=0.5)
    theirs = result.baselines[0].model_copy(update={"epoch": mine.model_copy(update={"pause_seconds": 0.3})})
    changed = {**of_winner(result, epoch=mine), "baselines": (theirs, *result.baselines[1:])}
    shown = said(result, **changed)
    assert "Epoch 0.47 s (steps 0.4 s, validation 0.05 s, pauses 0.02 s), without callbacks of your own" in shown
    assert "own; steps were timed on 50% of the samples. For comparison: keras 0.75 s" in shown
    found = text.document(result.model_copy(update=changed), None)["epoch"]
    assert found["keras"] == {
        "seconds": 0.75, "training_seconds": 0.4, "validation_seconds": 0.05, "pause_seconds": 0.3, "share": 0.5,
    }  # fmt: skip
    assert found["best"]["seconds"] == pytest.approx(0.47)


def test_figures_of_prediction_are_named_so(result: Result) -> None:
    assert "All figures are of Keras's `predict`" in said(result, mode=Mode.PREDICT)


def test_a_simulated_accelerators_utilisation_stands_beside_that_of_each_baseline(result: Result) -> None:
    slow = SimulatedAccelerator(step_seconds=100.0, batch_size=32)  # whatever feeds it, it computes all the time
    found = searched(trials=4, simulate=slow)
    assert found.utilisation == {"best": 1.0, "keras": 1.0, "tfdata": 1.0}
    assert "100.0% of the time the simulated accelerator computes (keras 100.0%" in said(found)
    assert text.document(found, None)["accelerator_utilisation"]["tfdata"] == 1.0
    assert text.document(result, None)["accelerator_utilisation"] is None


# ---------------------------------------------------------------- conversions


def lines(found: Payback, width: int) -> list[str]:
    return printed(text.paybacks([found]), width).splitlines()


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (payback(), "array, 2 ops 21,000 27 to 33 s 3 GiB 50 GiB 12 s 3.2"),
        (
            payback(convert_seconds=Estimate(value=600.0, low=540.0, high=660.0), saved_seconds=240.0),
            "array, 2 ops 21,000 9.0 to 11 min 3 GiB 50 GiB 240 s 3.2",
        ),
        (payback(epochs=None, saved_seconds=-1.0), "array, 2 ops 21,000 27 to 33 s 3 GiB 50 GiB nothing never"),
        (payback(epochs=0.0), "array, 2 ops 21,000 27 to 33 s 3 GiB 50 GiB 12 s at once"),
        (
            payback(convert_seconds=Estimate(value=30.0, low=30.0, high=30.0)),  # one shard shows no interval
            "array, 2 ops 21,000 30 s 3 GiB 50 GiB 12 s 3.2",
        ),
    ],
)
def test_a_line_has_time_room_gain_and_epochs(found: Payback, line: str) -> None:
    assert " ".join(lines(found, 140)[-1].split()) == line


def test_in_eighty_columns_each_form_is_one_line_in_which_nothing_is_cut_off() -> None:
    wide = payback(
        storage="tfrecord",
        bytes=321 * 2**20 + 9 * 2**16,
        free_bytes=99 * 2**30 + 2**29,
        convert_seconds=Estimate(value=594.0, low=534.6, high=653.4),
        saved_seconds=750.0,
        epochs=0.0,
    )
    head, below, only = lines(wide, 80)
    assert only.split() == lines(wide, 140)[-1].split()
    assert "…" not in head + below + only
