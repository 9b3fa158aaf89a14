"""What commands print: tables, figures, the result of a search as text and as JSON, and what it means in sentences."""

import json
import os
import re
import sys
from typing import Any

import numpy as np
import pytest
from rich.table import Table

import autopipe as ap
from autopipe.artifact import drift
from autopipe.measure.facts import Ceiling, OpCost, SampleTail
from autopipe.measure.outcome import Agreement, EpochTime, FailureKind, Phase, Resources, TrialFailure, Verification
from autopipe.measure.rows import Formats, ImageForm, Row
from autopipe.pipeline.loaders.wrapped import Foreign, Wrapped
from autopipe.reports import ladder, tables, terminal, text, verdict, wording
from autopipe.search import space as spaces
from autopipe.search import study as searches
from autopipe.search.result import BaselineResult, Contest, DeviceCount, Effect, Reason, Result, Stop
from autopipe.search.settings import Settings
from autopipe.values import Estimate
from autopipe.workload.mode import Mode
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes import ceilings, findings, profiles
from tests.fakes.facts import known, measurement
from tests.fakes.findings import payback
from tests.fakes.profiles import baseline, contest
from tests.fakes.reports import Approved, printed
from tests.fakes.surface import Surface

Capture = pytest.CaptureFixture[str]
CONFIG = ap.PipelineConfig(loader=ap.Threads(workers=2))
READ = OpCost(name="read", part="fixed", seconds_per_image=0.00004, wait_seconds_per_image=0.02)
MAP = OpCost(name="Map", part="fresh", seconds_per_image=0.005, lock_seconds_per_image=0.005)
RAN = measurement(CONFIG, [90.0] * 8, batch_size=32)


def alone(rate: float, **changes: Any) -> Ceiling:
    return Ceiling(model_images_per_second=Estimate.of_one(rate), model_core_seconds_per_image=0.0, **changes)


CEILING = alone(1000.0, op_costs=(READ, MAP), cores=2.0)


def row(both: Any = RAN, name: str = "a.py:w", config: ap.PipelineConfig = CONFIG, **changes: Any) -> Row:
    return Row.of(name, CEILING.model_copy(update=changes), both, config)


def test_measured(approved: Approved) -> None:
    native_read, native_map = (op.model_copy(update={"native": True}) for op in (READ, MAP))
    fields = [Field(FieldKind.ARRAY, shape, np.dtype("uint8")) for shape in ((8, 8, 3), (16, 8, 8, 3))]
    plain, counted = (SampleSpec(field, None).counted for field in fields)
    assert plain is None
    shown = {
        "ops of Python": tables.measurement(row()),
        "one of them native": tables.measurement(row(op_costs=(native_read, MAP))),
        "all of them native": tables.measurement(row(op_costs=(native_read, native_map))),
        "nothing native": tables.measurement(row(not_native="AUTOPIPE_NATIVE=0 is set")),
        "a simulated accelerator": tables.measurement(row(), ap.SimulatedAccelerator(0.32, 32)),
        "rows that are no images": tables.measurement(row(), counted=counted),
    }
    approved({name: printed(each, 120) for name, each in shown.items()})


def test_rows(approved: Approved) -> None:
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message="It died.")
    no_room = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message="there is no room")
    host, gpu = Resources(peak_rss_bytes=1 << 30), Resources(gpu_memory_bytes=2 << 30)
    parts = (16, alone(800.0, resources=host)), (32, alone(1000.0)), (64, alone(1500.0)), (128, no_room)
    sizes = [Row.of(f"batch {size}", part, batch_size=size) for size, part in parts]
    on_gpu = Row.of("batch 16", alone(800.0, resources=gpu), batch_size=16)
    beside_others = Row.of("a.py:w", CEILING, RAN, CONFIG, Estimate(value=60.0, low=55.0, high=65.0))
    assert beside_others.too_low == ["loader"]
    assert Row.of("a.py:w", CEILING, RAN, CONFIG, Estimate(value=95.0, low=90.0, high=99.0)).doubt is None
    shown = {
        "workloads": tables.rows([row(), row(failure, name="b.py:w")]),
        "batch sizes": tables.rows(sizes, own=32),
        "on a GPU": tables.rows([on_gpu], own=32),
        "a part that reads less than the whole": tables.rows([beside_others]),
    }
    approved({name: printed(each, 80) for name, each in shown.items()})


def test_formats(approved: Approved) -> None:
    png = ImageForm(part="x", name="as they are", seconds_per_image=0.002, bytes_per_image=2048.0, mean_error=0.0)
    jpeg = ImageForm(part="x", name="JPEG 95", seconds_per_image=0.0005, bytes_per_image=1024.0, mean_error=1.234)
    approved({"formats": printed(tables.formats(Formats(samples=40, forms=(png, jpeg))))})


def test_check(approved: Approved) -> None:
    rows = (Row(name="threads", together=Estimate(value=900.0, low=880.0, high=920.0)),)
    about: dict[str, Any] = {"verdict": drift.Verdict.DRIFTED, "profile": None, "recorded_share": 0.9}
    drifted = drift.Result(**about, reasons=("it is slower",), age_days=3, share=0.6, rows=rows)
    quick = drift.Result(**about, reasons=(), age_days=1, share=None, rows=())
    shown = {name: printed(tables.fitness(each)) for name, each in (("measured", drifted), ("quick", quick))}
    approved({**shown, "as JSON": drifted.model_dump_json(indent=1)})


READER = ap.TfData(num_parallel_calls=4, prefetch=16, read_ahead=128)
OTHER = ap.PipelineConfig(loader=READER, keep="memory", finish="host")
SAME = Agreement(config=CONFIG, digest="ab", samples=256, epochs=2)
WHY = "Workers must be importable, but `train` is not. Put what starts them under a main guard, " * 2


def verified(*, compared: bool, **other: Any) -> Verification:
    """Return how two configurations agree, the second of which is `other` than the first."""
    second = Agreement(config=OTHER, **{"digest": "ab", "samples": 256, "largest_value": 255.0, "epochs": 2, **other})
    return Verification(agreements=(Agreement(config=CONFIG, digest="ab", samples=256), second), compared=compared)


def seen(**other: Any) -> Verification:
    return Verification(agreements=(SAME,), compared=False, notes=("as float64",), hidden=True, **other)


COULD_NOT = {"message": "no more than one worker", "digest": "", "samples": 0}
NOTHING_RAN = Agreement(config=CONFIG, digest="", samples=0, message="no")
VERIFIED = {
    "compared": {
        "the same": (verified(compared=True), True),
        "within one level": (verified(compared=True, largest_difference=1.0, digest="cd"), True),
        "other samples": (verified(compared=True, missing=3, repeated=1), False),
        "other pixels": (verified(compared=True, largest_difference=51.0), False),
        "an error": (verified(compared=True, message="the targets differ"), False),
        "a long error": (verified(compared=True, message=WHY, digest=""), True),
        "one could not run": (verified(compared=True, **COULD_NOT), True),
        "none could run": (Verification(agreements=(NOTHING_RAN,)), True),
    },
    "wrapped": {
        "nothing twice": (verified(compared=False), True),
        "a few twice": (verified(compared=False, repeated=2), True),
        "too many twice": (verified(compared=False, repeated=1200), False),
        "epochs that `steps` counts": (verified(compared=False, repeated=200, is_pass=False), True),
        "changed": (verified(compared=False, message="all alike"), False),
        "random numbers that repeat": (verified(compared=False, random="2 of 9: seed"), False),
        "random numbers not seen": (verified(compared=False, unseen="no pickle"), True),
        "one could not run": (verified(compared=False, **COULD_NOT), True),
        "none could run": (Verification(agreements=(NOTHING_RAN,), compared=False), True),
        "notes": (seen(), True),
        "a fault": (seen(faults=("it leaks",)), False),
    },
}


def test_verified(approved: Approved) -> None:
    shown = {}
    for kind, cases in VERIFIED.items():
        for name, (found, agrees) in cases.items():
            shown[f"{kind}: {name}"] = printed(tables.verification(found), 80)
            assert tables.agrees(found) is agrees, name  # but for what ran and gave other samples
    assert max(len(line.rstrip()) for each in shown.values() for line in each.splitlines()) <= 80
    approved(shown)


def test_failures_paths_and_figures_are_said_in_a_line() -> None:
    failure = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.FIRST_BATCH, message="Too\n  much. " + 300 * "x")
    said = wording.failed(failure)
    assert said.startswith("out of memory in first batch: Too much. xxx")
    assert (len(said) < 200, said[-1]) == (True, "…")
    path = "/home/somebody/projects/segmentation-of-streets/train_with_a_long_name.py:workload"
    assert "".join(printed(terminal.labelled([("note", path)]), 40).split()) == f"note{path}"
    # Figures are said as far as they are known.
    assert "to" not in wording.rates(Estimate.of_one(8.3)).split()  # the rate of one window
    assert wording.rates(Estimate(value=8.3, low=8.0, high=8.5)) == "8.3 (8 to 8.5)"
    used = Resources(cpu_percent=150.0, gpu_percent=40.0, gpu_idlest_percent=30.0, gpu_busiest_percent=50.0)
    gpu = "GPU 40 % (idlest 30 %, busiest 50 %)"
    assert wording.resources(used) == f"CPU 150 % (one core is 100), {gpu}"
    assert wording.resources(used, cores=2.0) == f"1.5 of 2 cores, {gpu}"
    assert wording.resources(used, cores=1.0) == gpu  # more than there are: the kernel's clock is too coarse for it
    assert wording.resources(Resources()) == ""


def test_a_gain_that_no_rounds_decide_is_not_shown_as_proved() -> None:
    rival = baseline("keras", 400.0)
    unsure, once = " (not proved)", " (measured once)"
    for rounds, doubt in (((1.1, 6), ""), ((1.1, 2), unsure), ((0.9, 6), unsure), (None, once)):
        contests = () if rounds is None else (contest(rival, 2.5, *rounds, high=9.0),)
        kept = profiles.profile(baselines=(rival,), contests=contests)
        text = printed(tables.profiles(profiles.artifact(kept), kept, None, here=kept.hardware, now=profiles.NOON))
        assert f"2.5x keras{doubt}\n" in re.sub(" +\n", "\n", text)


FOREIGN = "it failed: 'photos[final]' [/data] [bold]a:dog:b"


def test_brackets_and_colons_are_printed_as_they_are_in_lines_and_in_cells(capsys: Capture) -> None:
    table = Table(FOREIGN)
    table.add_row(FOREIGN)
    terminal.Console(stderr=True).print(FOREIGN, soft_wrap=True)
    terminal.Console().print(table, soft_wrap=True)
    said = capsys.readouterr()
    assert (said.err, said.out.count(FOREIGN)) == (f"{FOREIGN}\n", 2)


def test_work_goes_on_where_stderr_takes_no_more(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    reads, nobody_reads = os.pipe()
    os.close(reads)
    for refusing in ("/dev/full", nobody_reads):
        with open(refusing, "w", buffering=1) as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            told = terminal.Console(stderr=True)
            for console in (told, told, terminal.Console(stderr=True)):
                console.print("a trial")
            sys.stderr.write("a line of somebody else's\n")
            terminal.Console().print("the result")
        assert capsys.readouterr().out == "the result\n"


def test_a_count_tells_its_rate_and_the_time_left_now_and_then_and_the_end() -> None:
    said: list[str] = []
    clock = iter([0.0, 1.0, 20.0, 31.0, 32.0, 33.0]).__next__
    count = terminal.Count(said.append, "samples", every_seconds=30, clock=clock)
    for done in (100, 500, 3_100, 3_500, 10_100):
        count(done, 10_100)
    assert said == ["3,100 of 10,100 samples, 100 samples/s, 70 s left", "10,100 of 10,100 samples"]


KERAS, AS_TFDATA = profiles.baseline("keras", 74.0), profiles.baseline("tfdata", 500.0, keep="memory")


def found(**changes: Any) -> Result:
    """Return what a search found that proved a winner; `changes` of it, or of its winner."""
    plain: dict[str, Any] = {
        "baselines": (KERAS, AS_TFDATA),
        "contests": (contest(KERAS, 13.5, 12.0, high=15.2), contest(AS_TFDATA, 2.0, 1.9)),
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
    return found(baselines=(keras, AS_TFDATA), contests=(contest(AS_TFDATA, 2.0, 1.9),))


EPOCH = EpochTime(training_seconds=0.4, validation_seconds=0.05, pause_seconds=0.02, share=0.5)
EPOCHS = found(
    epoch=EPOCH,
    baselines=(KERAS.model_copy(update={"epoch": EPOCH.model_copy(update={"pause_seconds": 0.3})}), AS_TFDATA),
)
CUT = Stop(reason=Reason.INTERRUPTED, message="Interrupted.")
MINUTES, LONGER = Estimate(value=600.0, low=540.0, high=660.0), Estimate(value=594.0, low=534.6, high=653.4)
BYTES = {"bytes": 321 * 2**20 + 9 * 2**16, "free_bytes": 99 * 2**30 + 2**29}
FORMS = {
    "that pays": payback(),
    "that takes minutes": payback(convert_seconds=MINUTES, saved_seconds=240.0),
    "that saves nothing": payback(epochs=None, saved_seconds=-1.0),
    "that pays at once": payback(epochs=0.0),
    "one shard, so no interval": payback(convert_seconds=Estimate(value=30.0, low=30.0, high=30.0)),
    "wide": payback(storage="tfrecord", convert_seconds=LONGER, saved_seconds=750.0, epochs=0.0, **BYTES),
}
NO_LIMIT = {"limit": None, "share_of_model": None}
DEVICES = (
    DeviceCount(devices=1, model_images_per_second=1250.0, images_per_second=1000.0),
    DeviceCount(devices=2, model_images_per_second=None, images_per_second=None),
)
FOUND = {
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
    shown = {name: printed(text.render(each)) for name, each in FOUND.items()}
    assert max(len(line) for each in shown.values() for line in each.splitlines()) <= 100
    approved(shown)


def test_in_eighty_columns(approved: Approved) -> None:
    names = "image_dataset_from_directory", "Keras PyDataset, defaults"
    both = [each.model_copy(update={"name": name}) for each, name in zip((KERAS, AS_TFDATA), names, strict=True)]
    failure = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message=12 * "it crashed, ")
    both.append(both[0].model_copy(update={"key": "other", "images_per_second": None, "failure": failure}))
    shown = {"result": printed(text.render(found(baselines=tuple(both))), 80)}
    shown |= {f"a form {name}": printed(text.paybacks([each]), 80) for name, each in FORMS.items()}
    assert max(len(line) for each in shown.values() for line in each.splitlines()) <= 80
    approved(shown)


def test_as_json(approved: Approved) -> None:
    names = ("proved", "epochs", "left out", "no winner", "a simulated accelerator", "several devices", "conversions")
    plain, *others = (text.document(FOUND[name], "tuned/autopipe.json") for name in names)
    differ = [{key: value for key, value in each.items() if value != plain[key]} for each in others]
    approved({name: json.dumps(each, indent=1) for name, each in zip(names, (plain, *differ), strict=True)})


class Drifting(Surface):
    """A machine that becomes slower during the confirmation run."""

    def before(self, config: ap.PipelineConfig, proof: bool) -> None:
        self.decode_seconds *= 1.03 if proof else 1.0


@pytest.mark.parametrize("epochs", [None, 2])
def test_each_ratio_is_that_of_the_rates_beside_it(epochs: int | None) -> None:
    """In text, page and JSON. The machine drifts, and one of two baselines leaves after a block."""
    surface = Drifting(cores=4, model_rate=20000.0, noise=0.02, seed=1)
    settings = Settings(clock=surface.clock, trials=10, epochs=epochs, budget_seconds=None)
    found = searches.run(spaces.load("quick", {"cores": 4, "gpus": 0}), surface, surface.facts(), settings).result
    rounds = [known(found.contest(each)).pairs for each in found.baselines]
    assert min(rounds) < 3 <= max(rounds)
    assert found.whole_training is (epochs is not None)
    lines = [re.split(r"  +", line.strip().replace(",", "")) for line in printed(text.render(found), 140).splitlines()]
    shown = {name: columns for name, *columns in lines if name in ("keras", "tfdata", "the winner")}
    rates = {name: float([each for each in columns if each.isdecimal()][-1]) for name, columns in shown.items()}
    document, key = text.document(found, None), "whole_training_" * found.whole_training + "images_per_second"
    for each in found.baselines:
        ratio = known(re.search(r"([\d.]+)x", shown[each.name][-1]))[1]
        last_digit = 10.0 ** -len(ratio.partition(".")[2])
        in_text = rates["the winner"] / rates[each.name]
        assert in_text == pytest.approx(float(ratio), abs=0.51 * last_digit, rel=0.002)
        mine, theirs = document[key], document["baselines"][each.name][key]
        quotient = mine / theirs if found.whole_training else mine["value"] / theirs["value"]
        assert document["baselines"][each.name]["times_faster"] == pytest.approx(quotient)
    alone, best = known(found.ceiling).model_images_per_second.value, known(found.winner)
    assert best.images_per_second.value / alone == pytest.approx(known(best.share_of_model))
    *_, keras, tfdata, _ = [each.images_per_second for each in ladder.rungs(found)]  # of the page
    assert [keras, tfdata] == [known(each.images_per_second).value for each in found.baselines]


def effect(setting: str, other: Any, ratio: float, low: float, value: Any = "a", **changes: Any) -> Effect:
    high = ratio * ratio / low if low else None
    plain = {"setting": setting, "value": value, "other": other, "ratio": ratio, "low": low, "high": high}
    return Effect(**{**plain, **changes})


READS = effect("threads.read_ahead", 0, 12.0, 11.0, 24)
THREADS = effect("loader", "tfdata", 1.3, 1.2, "threads")
OVER_KERAS = effect("loader", "keras", 1.5, 1.4, "threads")
CASTS = effect("finish", "host", 1.1, 1.06, "device")
MINE, THEIRS = baseline("mine", 74.0), baseline("theirs", 60.0, keep="memory")
OWN = "make_dataset (yours)"


def result(*contests: Contest, **changes: Any) -> Result:
    """Return a result whose reads wait: 1000 images/s by reading ahead, of 1250 that the model takes."""
    config = profiles.config(loader=ap.Threads(workers=2, read_ahead=24))
    plain = {"ceiling": findings.result().ceiling, "config": config, "baselines": (MINE, THEIRS), "contests": contests}
    return profiles.profile(**{**plain, "share_of_model": 0.8, "effects": (READS, THREADS, CASTS), **changes}).result


OWN_74 = baseline(OWN, 74.0, loader=Foreign(code="bench.py:make_dataset"), device_prefetch=0)
TF_DATA = {"loader": Foreign(code="tf.data"), "device_prefetch": 0}
CACHED = {"loader": Foreign(code="tf.data-cache"), "device_prefetch": 0, "keep": "memory"}
KEEPS = effect("keep", "none", 2.8, 2.5, "memory")
LIFT, PROVED = contest(MINE, 13.5, 12.0), contest(OWN_74, 13.5, 12.0)


def kept(usual: dict[str, Any], *effects: Effect) -> Result:
    """Return a result whose winner, which keeps samples in memory, is twice as fast as its only baseline."""
    rival, winner = baseline("tf.data AUTOTUNE", 500.0, **usual), profiles.config(keep="memory")
    return result(contest(rival, 2.0, 1.9), baselines=(rival,), config=winner, effects=effects, ceiling=None)


def beside_own(name: str, **changes: Any) -> Result:
    """Return a result whose winner is ahead of the user's own pipeline, and behind another."""
    other = baseline(name, 2000.0, **changes)
    return result(PROVED, contest(other, 0.5, 0.4), baselines=(OWN_74, other))


def study(name: str | None, proved: bool, seconds: float = 0.0) -> Result:
    url = None if name is None else "sqlite:////tuned/study.db"
    asked = {"study": name, "study_url": url, "budget_seconds": 120.0}
    return result(contest(MINE, 2.2, 0.9), proved=proved, seconds=seconds, **asked)


def of_wrapped(best: dict[str, Any], ahead: int) -> Result:
    now = {"calls": 1, "prefetch": 2}
    effects = [effect(f"wrapped.{name}", now[name], 1.5, 1.4, best[name]) for name in now]
    effects.append(effect("device_prefetch", 0, 1.2, 1.1, ahead))
    usual = baseline("the dataset as it is", 74.0, loader=Wrapped.model_validate(now), device_prefetch=0)
    tuned = profiles.config(loader=Wrapped.model_validate(best), finish="host", device_prefetch=ahead)
    return result(contest(usual, 13.5, 12.0), baselines=(usual,), config=tuned, effects=tuple(effects))


USUAL_500 = baseline("tf.data AUTOTUNE", 500.0, **TF_DATA)
VERDICTS = {
    "proved": result(LIFT),
    "proved, and at the limit of the model": result(LIFT, share_of_model=0.99),
    "likely": result(contest(MINE, 13.5, 12.0, 2), proved=False),
    "the baseline nearest in the proof, not the luckiest": result(contest(THEIRS, 10.0, 9.0)),
    "rounds without the user's own": result(contest(THEIRS, 10.0, 9.0), baselines=(OWN_74, THEIRS)),
    "the user's own beside the usual": result(PROVED, contest(USUAL_500, 2.0, 1.9), baselines=(OWN_74, USUAL_500)),
    "it caches": kept(TF_DATA, KEEPS, THREADS),
    "it caches, effects in another order": kept(TF_DATA, THREADS, KEEPS),
    "so does its rival": kept(CACHED, KEEPS, THREADS),
    "so does its rival, no other effect": kept(CACHED, KEEPS),
    "an effect that is too small": kept(TF_DATA, KEEPS, effect("finish", "host", 1.04, 1.01, "device")),
    "an effect that is not decided": kept(TF_DATA, effect("keep", "none", 2.8, 0.9, "memory")),
    "no effect over the nearest loader": kept(CACHED, effect("loader", "tfdata", 1.01, 0.98, "threads"), OVER_KERAS),
    "plain code is faster still": beside_own("tf.data AUTOTUNE", **TF_DATA),
    "the former configuration is faster still": beside_own("the former configuration"),
    "unsteady, time left": study("autopipe", proved=False, seconds=30.0),
    "unsteady, no time left": study("autopipe", proved=False, seconds=118.0),
    "unsteady, proved, time left": study("autopipe", proved=True, seconds=30.0),
    "unsteady, of a retune": study("retune-2026-01-01T00:00:00", proved=False, seconds=30.0),
    "unsteady, in memory": study(None, proved=False),
    "compared with nothing": result(baselines=(), ceiling=None),
    "the baseline itself": result(key=MINE.key),
    "close": result(contest(MINE, 1.01, 0.9)),
    "the baseline keeps the model busy": result(share_of_model=0.96, baselines=(baseline("mine", 990.0),)),
    "behind, not side by side": result(baselines=(baseline("mine", 1100.0),)),
    "ahead side by side alone": result(contest(MINE, 1.3, 1.2), baselines=(baseline("mine", 1100.0),)),
    "wrapped, one argument": of_wrapped({"calls": 4, "prefetch": 2}, 0),
    "wrapped, two, and ahead": of_wrapped({"calls": 4, "prefetch": 1}, 2),
    "wrapped, ahead": of_wrapped({"calls": 1, "prefetch": 2}, 2),
}


def test_headline_and_action(approved: Approved) -> None:
    approved({name: f"{verdict.headline(found)}\n{verdict.action(found)}" for name, found in VERDICTS.items()})


UNSTEADY = {"images_per_second": Estimate(value=50.0, low=34.0, high=65.0)}
AT_CEILING = {"proved": False, "stop": Stop(reason=Reason.CEILING, message="The model is the limit.")}
TRUSTED = {
    "interrupted": result(stop=CUT, proved=False),
    "not proved": result(proved=False),
    "drifted": result(drift=-0.3),
    "hardly drifted": result(drift=0.01),
    "beside other programs": result(others_cores=1.4),
    "unsteady": result(**UNSTEADY),
    "unsteady and undecided": result(contest(MINE, 1.01, 0.8), **UNSTEADY),
    "too few rounds": result(contest(MINE, 13.5, 12.0, 2), proved=False),
    "at the ceiling": result(baselines=(baseline("mine", 1000.0),), **AT_CEILING),
    "at the ceiling, compared with nothing": result(baselines=(), **AT_CEILING),
    "no difference": result(contest(MINE, 1.5, 0.9)),
    "no difference, below": result(contest(MINE, 0.8, 0.6)),
    "the same rate": result(contest(MINE, 1.01, 0.98)),
    "the baseline itself": result(key=MINE.key),
    "proved": result(contest(MINE, 1.5, 1.4)),
}


def test_trust(approved: Approved) -> None:
    approved({name: verdict.trust_text(found) for name, found in TRUSTED.items()})


def test_gains(approved: Approved) -> None:
    loaders = effect("loader", "keras", 1.6, 1.5), effect("loader", "tfdata", 1.2, 1.1)
    small = effect("device_prefetch", "0", 1.3, 0.9), effect("finish", "host", 1.02, 0.9)
    effects = (effect("keep", "none", 2.8, 2.5), *loaders, *small)
    approved({f"{proved=}": verdict.gains(result(effects=effects, proved=proved)) for proved in (True, False)})


TRIED = (profiles.trial(profiles.config(), 900.0), profiles.trial(MINE.config, 74.0))
ALONE = profiles.ceiling(1250.0)
MINE_ONLY = profiles.trial(MINE.config, 74.0).model_copy(update={"key": MINE.key, "seconds": 2.8})
BEHIND = "its samples are behind a URL (s3://); those on a disk can"
PLAIN = TrialFailure(kind=FailureKind.NOT_PLAIN, phase=Phase.BUILD, message=BEHIND)


def missing(failure: TrialFailure) -> tuple[BaselineResult, ...]:
    return tuple(each.model_copy(update={"images_per_second": None, "failure": failure}) for each in (MINE, THEIRS))


def stopped(reason: Reason) -> dict[str, Any]:
    return {"trials": (MINE_ONLY,), "seconds": 30.0, "stop": Stop(reason=reason, message="Over.")}


def cold(epochs: int | None, share: float | None, regime: str) -> dict[str, Any]:
    return {"epochs": epochs, "resident_share": share, "page_cache": regime}


def tail(samples: int, share: float) -> dict[str, Any]:
    found: dict[str, Any] = {"p50_seconds": 0.08, "p95_seconds": 0.1, "p99_seconds": 2.0, "slowest": "photo 7"}
    reads = ceilings.reads(12.0, 48.0, latency=0.08, tail=SampleTail(samples=samples, slowest_share=share, **found))
    return {"ceiling": ALONE.model_copy(update={"reads": reads})}


ONE_READER = {"loader two: it has one reader": 4, "loader one: it has one reader": 4, "other: no": 1}
SLOW = MINE.model_copy(update={"files_ready": False})
NOTED: dict[str, dict[str, Any]] = {
    "nothing to say": {},
    "why a dataset of one's own has no workers": {"left_out": ONE_READER},
    "which is nothing new of others": {"left_out": ONE_READER, "ceiling": findings.result().ceiling},
    "interrupted": {"stop": CUT},
    **{f"only the baselines, {reason}": stopped(reason) for reason in Reason if reason is not Reason.INTERRUPTED},
    "two epochs": {"epochs": 2},
    "the whole training of one epoch": {"epochs": 1, "whole_training": True},
    "the whole training of two epochs": {"epochs": 2, "whole_training": True},
    "a full disk": {"unsaved": "the disk is full"},
    "one epoch of files that are not in memory": cold(1, 0.25, "warm"),
    "one epoch, measured cold": cold(1, 0.25, "cold"),
    "one epoch of files in memory": cold(1, 0.95, "warm"),
    "one epoch of nobody knows what": cold(1, None, "warm"),
    "two epochs of files that are not in memory": cold(2, 0.25, "warm"),
    "any number of epochs of them": cold(None, 0.25, "warm"),
    "no progressive files": {"progressive_share": 0.0},
    "progressive files": {"progressive_share": 0.75},
    "a batch size that brings little": {"doubled_images_per_second": 1.2 * 1250.0},
    "a batch size that suits the model much better": {"doubled_images_per_second": 1.5 * 1250.0},
    "no baseline can be written": {"baselines": missing(PLAIN)},
    "one baseline cannot be written": {"baselines": (MINE, missing(PLAIN)[1])},
    "baselines crashed": {"baselines": missing(PLAIN.model_copy(update={"kind": FailureKind.CRASHED}))},
    "no time to read a baseline's files": {"baselines": (SLOW, THEIRS), "page_cache": "warm"},
    "no time to drop a baseline's files": {"baselines": (SLOW, THEIRS), "page_cache": "cold"},
    "few reads take most of the time": tail(200, 0.17),
    "they do not": tail(200, 0.05),
    "too few reads to know": tail(12, 0.17),
    "a conversion that pays too late": {"paybacks": (payback(overruled=True),), "epochs": 2},
    "a conversion that needs a permission": {"paybacks": (payback(epochs=1.3, advice=True),), "epochs": None},
    "a conversion for nobody knows how many epochs": {"paybacks": (payback(),), "epochs": None},
    "a conversion that pays": {"paybacks": (payback(),), "epochs": 10},
}


def noted(**changes: Any) -> list[str]:
    """Return the notes of a search with trials beside its baselines."""
    return verdict.notes(result(**{"ceiling": ALONE, "trials": TRIED, **changes}))


def test_notes(approved: Approved) -> None:
    nothing = result(stop=CUT).model_copy(update={"winner": None})
    last = "\n".join([*verdict.notes(nothing), verdict.headline(nothing)])
    approved({**{name: "\n".join(noted(**changes)) for name, changes in NOTED.items()}, "no winner": last})


def test_a_winner_whose_pixels_differ_is_told_of() -> None:
    dali = pytest.importorskip("autopipe.extensions.dali.loader").Dali(num_threads=2)
    assert noted(config=profiles.config(loader=dali)) == [dali.pixels_differ()]
