"""The cost model's order, and predictions for another machine by it. What was measured is made up, so that relations
between predictions are known. And `autopipe whatif` on an artifact.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autopipe import again
from autopipe.artifact import artifact as files
from autopipe.errors import ConfigError
from autopipe.extensions.whatif import command, prediction
from autopipe.extensions.whatif.prediction import Measured, WhatIf, correction, predict
from autopipe.measure import fingerprint
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.search.result import DeviceCount
from autopipe.search.space import to_config
from autopipe.values import Estimate
from tests.fakes import ceilings
from tests.fakes.ceilings import SLOW_READS, reads
from tests.fakes.profiles import about, artifact, baseline, config, profile, trial
from tests.unit.cli.conftest import Autopipe

OPS = (
    OpCost(name="read", part="fixed", seconds_per_image=0.0001),
    OpCost(name="Decode", part="fixed", seconds_per_image=0.0009),
)
READS = reads(*(count / 0.0101 for count in (1, 4, 16, 64)))
WAITING = (OPS[0].model_copy(update={"wait_seconds_per_image": 0.01}), OPS[1])
CONFIG = PipelineConfig(loader=Threads(workers=2))
CACHED = CONFIG.model_copy(update={"keep": "memory"})
WAITS = (ceilings.OPS[0].model_copy(update={"native": False, "wait_seconds_per_image": 0.02}), *ceilings.OPS[1:])
GIB = 2**30


# ---------------------------------------------------------------- the cost model: the order matters, not the figure


def known(**other: Any) -> Ceiling:
    usual = {"op_costs": ceilings.OPS, "compact_bytes": 150_528, "finished_bytes": 602_112, "model": 4000.0}
    return ceilings.ceiling(**{"transfer_seconds_per_image": 0.00003, **usual, **other})


def waiting(**other: Any) -> Ceiling:
    return known(**{"op_costs": WAITS, "reads": SLOW_READS, "model": 1000.0, **other})


def of(**params: Any) -> PipelineConfig:
    return ceilings.config(**params)


def test_no_prediction_exceeds_the_model_or_the_cores_and_a_step_waits_for_batches_not_sent_ahead() -> None:
    assert predict(of(keep="memory"), known()) <= 4000.0
    assert predict(of(workers=8), known()) <= 2 / 0.00073
    assert predict(of(), known(model_core_seconds=0.002)) < 0.5 * predict(of(), known())
    assert (prediction.model_rate(of(devices=4), known()), prediction.model_rate(of(channels="first"), known())) == (
        16_000.0,
        4000.0,
    )
    many = known(cores=64.0)
    assert predict(of(workers=64, devices=2), many) > 1.9 * predict(of(workers=64), many)
    # A step waits for the transfer unless batches are sent ahead.
    slow, in_place = known(transfer_seconds_per_image=0.0001), known(transfer_seconds_per_image=None)
    sent, ahead = (predict(of(device_prefetch=count), slow) for count in (0, 2))
    assert 1 / sent == pytest.approx(1 / ahead + 0.0001)
    assert predict(of(device_prefetch=0), in_place) == predict(of(device_prefetch=2), in_place)
    assert prediction.transfer_seconds(of(finish="host"), known()) == pytest.approx(0.00012)  # four times the bytes


def test_the_order_is_right() -> None:
    chains = [
        [of(workers=2), of(workers=1)],
        [to_config({"loader": "resident", "resident.workers": 2}), of(keep="memory"), of(keep="memory:50%"), of()],
        [of(keep="array"), of(keep="array:1"), of()],
        [of(finish="device"), of(finish="host")],
        [of(queue_size=8), of(queue_size=1)],
        [of(device_prefetch=2), of(device_prefetch=0)],
    ]
    for chain in chains:
        found = [predict(config, known()) for config in chain]
        assert found == sorted(set(found), reverse=True), chain


def test_reads_bring_what_was_measured_and_workers_allow_and_a_cache_ends_the_waiting() -> None:
    found = [predict(of(workers=workers), waiting()) for workers in (2, 16)]
    assert found == pytest.approx([2 / 0.02083, 16 / 0.02083], rel=0.05)
    for keep in ("memory", "array", "tfrecord"):
        assert predict(of(keep=keep), waiting(depths={"tfrecord": 0})) > 900
    assert predict(of(keep="encoded"), waiting()) == pytest.approx(predict(of(), known(model=1000.0)), rel=0.1)
    narrow = waiting(reads=reads(50, 190, 200, latency=0.0201))
    assert predict(of(workers=64), narrow) == pytest.approx(200, rel=0.01)
    few = waiting(reads=SLOW_READS.model_copy(update={"rungs": SLOW_READS.rungs[:3]}))
    ahead = [predict(of(**{"threads.read_ahead": count}), few) for count in (4, 16, 128)]
    assert ahead[0] < ahead[1] == ahead[2]


def test_the_lock_is_shared_and_workers_elsewhere_have_their_cores(elsewhere: Callable[[int], PipelineConfig]) -> None:
    locked = OpCost(name="Map", part="fresh", seconds_per_image=0.005, lock_seconds_per_image=0.005)
    held = known(op_costs=(*ceilings.OPS, locked))
    processes = to_config({"loader": "processes", "processes.workers": 2, "processes.queue_size": 8})
    assert predict(of(workers=2), held) <= 200
    assert 1.5 * predict(of(workers=2), held) < predict(processes, held)
    for cores, gain in ((2.0, False), (None, True)):
        there = known(model=1e6, cores_elsewhere=cores)
        two, sixteen = (predict(elsewhere(workers), there) for workers in (2, 16))
        assert sixteen > 4 * two if gain else sixteen < 1.2 * two


# ---------------------------------------------------------------- another machine


def ceiling(model: float = 10_000.0, **other: Any) -> Ceiling:
    usual = {"model_core_seconds_per_image": 0.0, "op_costs": OPS, "cores": 2.0}
    return Ceiling(model_images_per_second=Estimate(value=model, low=model, high=model), **{**usual, **other})


def measured(of: Ceiling, *, wrong_by: float = 1.0, config: PipelineConfig = CONFIG, more: Any = ()) -> Measured:
    rate = wrong_by * predict(config, of)
    return Measured(ceiling=of, batch_size=32, winner=config, pairs=[(config, rate), *more])


def asked(study: Measured, **machine: Any) -> WhatIf:
    return prediction.what_if(study, prediction.Machine(**machine))


def rate(study: Measured, **machine: Any) -> float:
    return asked(study, **machine).images_per_second.value


def test_images_go_with_the_cores_from_what_was_measured_and_workers_follow_until_the_model_is_the_limit() -> None:
    study = measured(ceiling(), wrong_by=0.8)
    found = asked(study)
    assert (found.notes, WhatIf.model_validate_json(found.model_dump_json())) == ((), found)
    for cores in (1.0, 2.0, 4.0):
        there = asked(study, cores=cores)
        assert there.images_per_second.value == pytest.approx(study.pairs[0][1] * cores / 2, rel=0.02)
        assert (there.config.loader.worker_count(), there.limit_kind) == (cores, "op")
    there = asked(measured(ceiling(model=1950.0)))  # the cores allow 2,000
    assert there.images_per_second.value < 0.9 * 1950
    assert (there.limit, there.limit_kind) == (1950.0, "model")
    assert there.sentence.startswith("the model is the limit")


def test_a_model_on_the_cores_grows_with_them_and_a_step_that_is_given_is_that_of_each_device() -> None:
    on_cores = measured(ceiling(model=100.0, model_core_seconds_per_image=0.019))
    beside = measured(ceiling(model=100.0, model_core_seconds_per_image=0.001))
    given = {"step_seconds": 0.1}
    machines = ((on_cores, {"cores": 4}), (beside, {"cores": 4}), (on_cores, given))
    found = [asked(study, **machine).model_images_per_second for study, machine in machines]
    found.append(asked(on_cores, **given, devices=4, batch_size=64).model_images_per_second)
    assert found == pytest.approx([200, 100, 320, 2560])


# Images/s of one P100 at batch 64: tensorflow.org/performance/benchmarks (DGX-1, synthetic data); ResNet-101 lies
# between ResNet-50 (219) and ResNet-152 (91.8) by its multiplications (arXiv 1512.03385, table 1: 3.8, 7.6 and 11.3
# billion). Parameters: the models' papers. Efficiencies on 128 servers of 4 GPUs with 25 Gbit/s each: Horovod's
# docs/benchmarks.rst.
@pytest.mark.parametrize(
    ("images_per_second", "parameters", "published"),
    [(142.0, 23.9e6, 0.90), (112.0, 44.5e6, 0.90), (154.0, 138.4e6, 0.68)],
    ids=["Inception V3", "ResNet-101", "VGG-16"],
)
def test_horovods_efficiencies_are_met(images_per_second: float, parameters: float, published: float) -> None:
    batch = 512 * 64
    machine = {"devices": 512, "batch_size": batch, "interconnect": prediction.INTERCONNECTS["25gbe"]}
    study = measured(ceiling(gradient_bytes=int(4 * parameters)))
    there = asked(study, **machine, step_seconds=batch / images_per_second)
    assert there.model_images_per_second / (512 * images_per_second) == pytest.approx(published, abs=0.04)


# What users of Keras 2's multi_gpu_model reported: mnist_mlp, one Dense layer, 63 s on one GPU and 100 s on two for 100
# epochs of 469 steps (keras issue 11342); cifar10_resnet, ResNet-20, 27 s and 32 s for 1563 steps of 32 (issue 9543).
# Both steps are far longer than their arithmetic: twice the batch is taken to take 6 % more time.
@pytest.mark.parametrize(("step_seconds", "parameters"), [(63 / 46_900, 0.41e6), (27 / 1563, 0.27e6)])
def test_small_models_that_were_slower_on_two_gpus_are_not_worth_it(step_seconds: float, parameters: float) -> None:
    study, alone = measured(ceiling(32 / step_seconds, gradient_bytes=int(4 * parameters))), 32 / step_seconds
    study = dataclasses.replace(study, doubled_images_per_second=2 * alone / 1.06)
    assert asked(study, devices=2).model_images_per_second < 1.05 * alone


def test_devices_exchange_gradients_beside_at_most_half_of_it_and_a_third_of_their_work() -> None:
    study = measured(ceiling(model=320.0, gradient_bytes=100_000_000))  # 0.1 s a step of 32
    ten = dataclasses.replace(prediction.INTERCONNECTS["pcie3"], bytes_per_second=10e9)
    slow = dataclasses.replace(ten, bytes_per_second=1e9)
    for between, exchange in ((ten, 0.015 / 2), (slow, 0.15 - 0.025 / 3)):
        there = asked(study, devices=4, interconnect=between)
        assert there.model_images_per_second == pytest.approx(32 / (0.025 + exchange))
        assert any("95.4 MiB of gradients" in note for note in there.notes)
    on_four = measured(ceiling(model=32 / 0.0325, gradient_bytes=100_000_000, devices=4))
    on_four = dataclasses.replace(on_four, interconnect=ten)
    assert asked(on_four, devices=1).model_images_per_second == pytest.approx(320)
    # Devices that were measured are not predicted.
    study = measured(ceiling(model=300.0, gradient_bytes=10**9))
    study = dataclasses.replace(study, devices={1: 300.0, 2: 330.0})
    there = asked(study, devices=2)
    assert (round(there.model_images_per_second, 6), there.notes) == (330, ())


def test_more_reads_at_a_time_make_up_for_a_longer_latency() -> None:
    read_ahead = PipelineConfig(loader=Threads(workers=2, read_ahead=20))
    study = measured(ceiling(model=1000.0, op_costs=WAITING, reads=READS), config=read_ahead)
    longer = asked(study, read_latency_seconds=0.02)
    assert (longer.config.loader.reads_at_once() or 0) > 20
    assert longer.images_per_second.value == pytest.approx(rate(study), rel=0.1)
    assert rate(study, read_latency_seconds=2.0) < 0.5 * rate(study)


def test_nothing_is_predicted_beyond_the_limit() -> None:
    for wrong_by, cores in itertools.product((0.5, 1.0, 3.0), (1, 2, 16, 1000)):
        there = asked(measured(ceiling(), wrong_by=wrong_by), cores=float(cores))
        assert there.images_per_second.value <= there.limit <= there.model_images_per_second
        assert there.limit <= max(1.0, wrong_by) * cores * 1000 * 1.01  # an image takes 1 ms of a core
        assert there.images_per_second.low <= there.images_per_second.value <= there.images_per_second.high


def test_the_range_is_as_wide_as_predictions_were_wrong_and_each_way_of_feeding_is_corrected_by_its_own() -> None:
    of = ceiling()
    configs = [PipelineConfig(loader=Threads(workers=2, queue_size=size)) for size in (4, 6, 10, 12)]
    right = [(each, predict(each, of)) for each in configs]
    wrong = [(each, guess * (1.5 if number % 2 else 0.7)) for number, (each, guess) in enumerate(right)]
    assert correction(measured(of, more=right))[1] == 0.05
    assert correction(measured(of, more=wrong))[1] > 0.25
    factor, _ = correction(measured(of, wrong_by=0.8, more=[(CACHED, 500.0)]))
    assert correction(measured(of, wrong_by=0.8))[1] == 0.15  # nothing to tell it by
    assert factor(CACHED) == pytest.approx(500.0 / predict(CACHED, of))
    assert [factor(CONFIG), factor(CONFIG.model_copy(update={"finish": "host"}))] == pytest.approx([0.8, 0.8])


def test_what_to_buy_comes_with_the_largest_gain_first() -> None:
    loader_bound, model_bound = asked(measured(ceiling())).buys, asked(measured(ceiling(model=300.0))).buys
    assert [buy.what for buy in loader_bound[:2]] == ["memory for all samples", "4 cores instead of 2"]
    assert [buy.gain for buy in loader_bound] == sorted((buy.gain for buy in loader_bound), reverse=True)
    assert model_bound[0].what == "2 devices instead of 1"
    assert [buy.gain for buy in model_bound[1:]] == pytest.approx([0] * len(model_bound[1:]), abs=20)


def with_sizes(cache_bytes: int | None, memory_bytes: int, *more: Any) -> Measured:
    return dataclasses.replace(measured(ceiling(), more=more), cache_bytes=cache_bytes, memory_bytes=memory_bytes)


def test_samples_are_held_where_there_is_room_for_them_or_memory_is_offered_by_its_size() -> None:
    study = with_sizes(10 * GIB, 4 * GIB)
    assert [asked(study, memory_bytes=gib * GIB).config.keep for gib in (8, 12, 13)] == ["none", "none", "memory"]
    half = CONFIG.model_copy(update={"keep": "memory:50%"})
    cached, part = (with_sizes(10 * GIB, 64 * GIB, (each, predict(each, ceiling()))) for each in (CACHED, half))
    assert (asked(cached).config.keep, asked(cached, memory_bytes=8 * GIB).config.keep) == ("memory", "none")
    assert asked(part, memory_bytes=8 * GIB).config.keep == "memory:50%"
    only = dataclasses.replace(measured(ceiling(), config=CACHED), cache_bytes=8 * GIB, memory_bytes=16 * GIB)
    assert [asked(only, memory_bytes=gib * GIB).config.keep for gib in (1, 0)] == ["none", "none"]
    assert "memory for all samples" in {buy.what for buy in asked(only, memory_bytes=0).buys}
    (bought, *_), (held, other, *_) = (asked(with_sizes(10 * GIB, gib * GIB)).buys for gib in (4, 64))
    assert (bought.what, bought.cache_bytes) == ("memory for all samples", 10 * GIB)
    assert (held.what, held.gain) == ("a cache of all samples, for which there is room", bought.gain)
    assert (held.cache_bytes, other.cache_bytes) == (10 * GIB, None)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"cores": 4.0}, None),
        ({"cores": 5.0}, "cores by a factor of 2.5"),
        ({"cores": 0.5}, "cores by a factor of 4"),
        ({"batch_size": 256}, "the batch by a factor of 8"),
        ({"step_seconds": 1e-4}, "the model's rate by a factor of 32"),
        ({"read_latency_seconds": 0.1}, "Reads were not measured"),
        ({"memory_bytes": 2.0**36}, "What all samples take in memory is not known"),
        ({"devices": 2}, "The exchange of gradients is left out"),
        ({"devices": 3, "step_seconds": 0.01}, "3 devices cannot share a batch of 32 evenly"),
        ({"cores": 4.0, "busy": 1e-4}, "is taken to be no faster with more"),
        ({"cores": 1.0, "busy": 1e-4}, None),
        ({"cores": 4.0, "busy": 1e-5}, None),
    ],
)
def test_what_is_beyond_twice_what_was_measured_or_not_known_is_said(machine: dict[str, Any], said: str) -> None:
    known = {name: value for name, value in machine.items() if name != "busy"}
    notes = asked(measured(ceiling(model_core_seconds_per_image=machine.get("busy", 0.0))), **known).notes
    assert said in " ".join(notes) if said else notes == ()


# ---------------------------------------------------------------- the command


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    more = {"trials": (trial(config(keep="memory"), 1400.0),), "ceiling": ceiling(), "cache_bytes": 300 * GIB}
    here = profile(hardware=fingerprint.detect(), config=config(), images_per_second=about(1500.0), **more)
    return files.write(artifact(here), tmp_path / "autopipe.json")


def test_another_machine_is_told_with_what_to_buy(autopipe: Autopipe, tuned: Path) -> None:
    done = autopipe("whatif", str(tuned), "--cores", "16", "--step", "5ms", "--devices", "4", "--batch", "256")
    assert done.status == 0, done.err
    for said in ("predicted", "would bring", "32 cores instead of 16", "by a factor of 8", "samples (300 GiB)"):
        assert said in done.out
    for cores in ("inf", "1e300", "0"):  # nobody has such a machine
        assert "--cores" in autopipe("whatif", str(tuned), "--cores", cores).refused()


def test_it_is_told_as_json_without_a_loader_that_is_not_installed(autopipe: Autopipe, tuned: Path) -> None:
    (here,) = files.read(tuned).profiles
    theirs = trial({**config(), "loader": {"kind": "theirs"}}, 1200.0)
    result = here.result.model_copy(update={"trials": (*here.result.trials, theirs)})
    files.write(artifact(here.model_copy(update={"result": result})), tuned)
    found = json.loads(autopipe("whatif", str(tuned), "--json").out)
    assert Estimate.model_validate(found["images_per_second"]).value == pytest.approx(1500, rel=0.1)
    assert found["pairs"] == 2


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_profile_without_costs_is_refused(autopipe: Autopipe, is_wrapped: bool, tmp_path: Path) -> None:
    as_it_is = {"baselines": (baseline("the dataset as it is", 500.0, loader={"kind": "wrapped"}),)}
    old = artifact(profile(hardware=fingerprint.detect(), **as_it_is if is_wrapped else {}))
    path = files.write(old, tmp_path / "my model.json")
    error = autopipe("whatif", str(path)).refused()
    assert ("ops of a wrapped dataset cannot be told apart" if is_wrapped else "does not keep") in error
    assert (again.autopipe("retune", path) in error) is not is_wrapped  # which would not help


def test_an_interconnect_is_a_rate_in_bytes_or_bits_or_a_name_and_else_refused() -> None:
    known = {"12GB/s": 12e9, "25Gbit/s": 3.125e9, "800 MB/s": 8e8, "1.5gb/s": 1.5e9, "25gbe": 3.125e9}
    assert {text: command.rate_of(text, "--interconnect").bytes_per_second for text in known} == known
    for text in ("12", "12GB", "0GB/s", "pcie5x", "-1GB/s"):
        with pytest.raises(ConfigError, match="`--interconnect` must be a rate such as 12GB/s"):
            command.rate_of(text, "--interconnect")


def test_the_exchange_that_a_tune_has_measured_is_taken(autopipe: Autopipe, tmp_path: Path) -> None:
    two = DeviceCount(devices=2, model_images_per_second=15_000.0, exchange_seconds=0.01)
    costs = ceiling(gradient_bytes=10**8)
    here = profile(hardware=fingerprint.detect(), ceiling=costs, devices=(DeviceCount(devices=1), two))
    path = files.write(artifact(here), tmp_path / "a.json")
    assert "at 10 GB/s (measured between 2 devices)" in " ".join(autopipe("whatif", path, "--devices", "4").out.split())


PAGE = (Path(prediction.__file__).with_name("README.md")).read_text()


@pytest.mark.parametrize("line", re.findall(r"^autopipe (whatif .*)$", PAGE, re.M))
def test_the_docs_commands_run(autopipe: Autopipe, tuned: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.chdir(tuned.parent)
    done = autopipe(*line.split())
    assert done.status == 0, done.err
