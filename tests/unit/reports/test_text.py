"""The result of a search as text for a terminal, and as JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, TextIO

import pytest
from rich.table import Table

from autopipe.measure.outcome import EpochTime, FailureKind, Phase, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.reports import ladder, text
from autopipe.reports.terminal import Console, Count
from autopipe.search import space as spaces
from autopipe.search import study
from autopipe.search.result import DeviceCount, Reason, Result, Stop
from autopipe.search.settings import Settings
from autopipe.values import Estimate
from autopipe.workload.mode import Mode
from tests.fakes import ceilings, profiles
from tests.fakes.facts import known
from tests.fakes.findings import payback
from tests.fakes.profiles import contest
from tests.fakes.reports import Approved, printed
from tests.fakes.surface import Surface

KERAS, TF_DATA = profiles.baseline("keras", 74.0), profiles.baseline("tfdata", 500.0, keep="memory")


def found(**changes: Any) -> Result:
    """Return what a search found that proved a winner; `changes` of it, or of its winner."""
    plain: dict[str, Any] = {
        "baselines": (KERAS, TF_DATA),
        "contests": (contest(KERAS, 13.5, 12.0, high=15.2), contest(TF_DATA, 2.0, 1.9)),
        "trials": (profiles.trial(profiles.config(), 900.0), profiles.trial(KERAS.config, 74.0)),
        "ceiling": ceilings.ceiling(model=1250.0),
        "limit": "the model takes the most time.",
        "seconds": 61.0,
    }
    return profiles.profile(**{**plain, **changes}).result


def keras_alone(ratio: float, low: float, high: float, pairs: int, **changes: Any) -> Result:
    return found(baselines=(KERAS,), contests=(contest(KERAS, ratio, low, pairs, high),), **changes)


def without_rate(message: str | None, kind: FailureKind = FailureKind.CRASHED) -> Result:
    failure = None if message is None else TrialFailure(kind=kind, phase=Phase.OPEN, message=message)
    keras = KERAS.model_copy(update={"images_per_second": None, "failure": failure})
    return found(baselines=(keras, TF_DATA), contests=(contest(TF_DATA, 2.0, 1.9),))


MINE = EpochTime(training_seconds=0.4, validation_seconds=0.05, pause_seconds=0.02, share=0.5)
EPOCHS = found(
    epoch=MINE, baselines=(KERAS.model_copy(update={"epoch": MINE.model_copy(update={"pause_seconds": 0.3})}), TF_DATA)
)
CUT = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")
WIDE = payback(
    storage="tfrecord",
    bytes=321 * 2**20 + 9 * 2**16,
    free_bytes=99 * 2**30 + 2**29,
    convert_seconds=Estimate(value=594.0, low=534.6, high=653.4),
    saved_seconds=750.0,
    epochs=0.0,
)
MINUTES, SURE = Estimate(value=600.0, low=540.0, high=660.0), Estimate(value=30.0, low=30.0, high=30.0)
FORMS = {
    "that pays": payback(),
    "that takes minutes": payback(convert_seconds=MINUTES, saved_seconds=240.0),
    "that saves nothing": payback(epochs=None, saved_seconds=-1.0),
    "that pays at once": payback(epochs=0.0),
    "one shard, so no interval": payback(convert_seconds=SURE),
    "wide": WIDE,
}
NO_LIMIT = {"limit": None, "share_of_model": None}
DEVICES = (
    DeviceCount(devices=1, model_images_per_second=1250.0, images_per_second=1000.0),
    DeviceCount(devices=2, model_images_per_second=None, images_per_second=None),
)
RESULTS = {
    "proved": found(),
    "likely, of one round": keras_alone(10.0, 9.0, 11.0, 1),
    "interrupted": keras_alone(10.0, 9.0, 11.0, 3, stop=CUT),
    "undecided": keras_alone(2.21, 0.5, 9.8, 3),
    "undecided, of two rounds": keras_alone(1.02, 0.97, 1.07, 2),
    "the baseline itself": found(key=KERAS.key),
    "no winner": found().model_copy(update={"winner": None}),
    "without a model": found(ceiling=None, reads_alone=True, share_of_model=None, limit=None),
    "not measured": without_rate(None),
    "failed": without_rate("it crashed"),
    "left out": without_rate("it crashed", FailureKind.NOT_PLAIN),
    "no limit known": found(**NO_LIMIT, ceiling=ceilings.ceiling(model=100.0)),
    "no model alone": found(**NO_LIMIT, ceiling=None),
    "an interval that means nothing": found(images_per_second=Estimate(value=485.0, low=4.0, high=58_882.0)),
    "epochs": EPOCHS,
    "prediction": found(mode=Mode.PREDICT),
    "a simulated accelerator": found(utilisation={"best": 1.0, "keras": 0.5}),
    "several devices": found(devices=DEVICES, virtual_devices=True),
    "conversions": found(paybacks=(payback(),), epochs=2),
}


def test_in_a_terminal(approved: Approved) -> None:
    shown = {name: printed(text.render(each)) for name, each in RESULTS.items()}
    assert max(len(line) for each in shown.values() for line in each.splitlines()) <= 100
    approved(shown)


def test_in_eighty_columns(approved: Approved) -> None:
    names = "image_dataset_from_directory", "Keras PyDataset, defaults"
    both = [each.model_copy(update={"name": name}) for each, name in zip((KERAS, TF_DATA), names, strict=True)]
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message=12 * "it crashed, ")
    both.append(both[0].model_copy(update={"key": "other", "images_per_second": None, "failure": failure}))
    shown = {"result": printed(text.render(found(baselines=tuple(both))), 80)}
    shown |= {f"a form {name}": printed(text.paybacks([each]), 80) for name, each in FORMS.items()}
    assert max(len(line) for each in shown.values() for line in each.splitlines()) <= 80
    approved(shown)


def test_as_json(approved: Approved) -> None:
    names = ("proved", "epochs", "left out", "no winner", "a simulated accelerator", "several devices", "conversions")
    documents = {name: text.document(RESULTS[name], "tuned/autopipe.json") for name in names}
    plain = documents["proved"]
    others = {
        name: {key: value for key, value in each.items() if value != plain[key]} for name, each in documents.items()
    }
    approved({name: json.dumps(each, indent=1) for name, each in {**others, "proved": plain}.items()})


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
    space = spaces.load("quick", {"cores": 4, "gpus": 0})
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


# ---------------------------------------------------------------- the terminal

FOREIGN = "it failed: 'photos[final]' [/data] [bold]a:dog:b"


def test_brackets_and_colons_are_printed_as_they_are_in_lines_and_in_cells(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(FOREIGN)
    table.add_row(FOREIGN)
    Console(stderr=True).print(FOREIGN, soft_wrap=True)
    Console().print(table, soft_wrap=True)
    said = capsys.readouterr()
    assert said.err == f"{FOREIGN}\n"
    assert said.out.count(FOREIGN) == 2


def nobody_reads() -> TextIO:
    reads, pipe = os.pipe()
    os.close(reads)
    return open(pipe, "w", buffering=1)


def full_disk() -> TextIO:
    return open("/dev/full", "w", buffering=1)


@pytest.mark.parametrize("refusing", [nobody_reads, full_disk])
def test_what_is_told_beside_a_result_is_lost_where_stderr_takes_no_more_and_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refusing: Callable[[], TextIO]
) -> None:
    with refusing() as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        told = Console(stderr=True)
        told.print("trial 1")
        told.print("trial 2")
        Console(stderr=True).print("wrote")
        sys.stderr.write("a line of somebody else's\n")
        Console().print("the result")
    assert capsys.readouterr().out == "the result\n"


def test_a_count_tells_its_rate_and_the_time_left_now_and_then_and_the_end() -> None:
    said: list[str] = []
    clock = iter([0.0, 1.0, 20.0, 31.0, 32.0, 33.0]).__next__
    count = Count(said.append, "samples", every_seconds=30, clock=clock)
    for done in (100, 500, 3_100, 3_500, 10_100):
        count(done, 10_100)
    assert said == ["3,100 of 10,100 samples, 100 samples/s, 70 s left", "10,100 of 10,100 samples"]
