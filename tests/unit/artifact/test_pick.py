"""Which profile a machine gets, what a retune tries first, and what a training has learnt, in the artifact."""

import contextlib
import datetime
import re
from pathlib import Path
from typing import Any

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact import factory, pick, schema
from autopipe.artifact.schema import Artifact, Live
from autopipe.errors import ArtifactError
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware, MatchLevel
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.pipeline.switching import SwitchingLoader
from autopipe.reports import profile_report, tables
from autopipe.search.result import Change, Learnt
from autopipe.search.settings import Request
from autopipe.values import Estimate
from autopipe.workload.mode import Mode
from tests.fakes.profiles import (
    GIB,
    H200,
    NOON,
    artifact,
    baseline,
    config,
    digest,
    hardware,
    of_this_machine,
    profile,
    trial,
)
from tests.fakes.reports import printed

HERE = profile()
GPUS = profile(hardware=hardware(cores=32, gpus=(H200, H200)), config=config(loader=Processes(workers=16), devices=2))
SMALL = profile(hardware=hardware(cores=1, memory_bytes=2 * GIB), config=config(loader=Threads(workers=1)))
THREE = artifact(SMALL, HERE, GPUS)
PREDICT, SIMULATED = Request(mode=Mode.PREDICT), Request(simulate=SimulatedAccelerator(0.015))


def of(workers: int, *good: int, **changes: Any) -> schema.Profile:
    """Return a profile whose best has so many workers, with trials of others."""
    ran = tuple(trial(config(loader=Threads(workers=each)), 1.0) for each in good)
    return profile(config=config(loader=Threads(workers=workers)), trials=ran, **changes)


def test_a_machine_of_the_same_models_gets_the_nearest_profile() -> None:
    cases: list[tuple[Hardware, schema.Profile]] = [
        (hardware(cores=4), HERE),
        (hardware(cores=1, memory_bytes=3 * GIB), SMALL),
        (hardware(cores=32, gpus=(H200,)), GPUS),
    ]
    for here, nearest in cases:
        choice = pick.pick(THREE, here)
        assert (choice.profile, choice.match.level) == (nearest, MatchLevel.NEAR)


def test_what_differs_is_named_field_by_field_with_what_to_do() -> None:
    with pytest.raises(ArtifactError, match=r"3 profiles is of this machine.*cores: 2 there, 4 here.*autopipe retune"):
        pick.pick(THREE, hardware(cores=4), strict=True)
    warning = pick.pick(artifact(HERE), hardware(cores=4, memory_bytes=16 * GIB)).warning
    assert "usable cores: 2 there, 4 here; memory: 8 GiB there, 16 GiB here" in str(warning)
    one, two = profile(hardware=hardware(cpu_model="A", cores=16)), profile(hardware=hardware(cpu_model="B", cores=4))
    choice = pick.pick(artifact(one, two), hardware(cpu_model="C"))
    assert (choice.profile, choice.match.level) == (two, MatchLevel.OTHER)
    assert re.search("Its machine differs in processor: B there, C here.*autopipe retune", str(choice.warning))


def test_devices_are_those_here_that_can_share_out_a_batch() -> None:
    shared = "2 of 4 devices, because a batch of 32 cannot be shared between 3."
    for tuned, here, devices, said in ((2, 1, 1, "1 of 2 devices."), (4, 3, 2, shared)):
        known = profile(hardware=hardware(cores=32, gpus=(H200,) * tuned), config=config(devices=tuned))
        choice = pick.pick(artifact(known), hardware(cores=32, gpus=(H200,) * here))
        assert choice.config.devices == devices
        assert str(choice.warning).endswith(f"It trains on {said}")


def test_of_two_backends_on_one_machine_the_one_in_use_is_taken() -> None:
    tensorflow = profile(hardware=hardware(keras_backend="tensorflow"))
    both = artifact(tensorflow, of(4, hardware=hardware(keras_backend="jax")))
    for backend, known in zip(("tensorflow", "jax"), both.profiles, strict=True):
        assert pick.pick(both, hardware(keras_backend=backend), strict=True).profile == known
    assert tensorflow == pick.pick(both, hardware()).profile  # what Keras uses where nobody chooses
    warning = str(pick.pick(both, hardware(keras_backend="torch")).warning)
    assert "Keras backend: tensorflow there, torch here. To train as it was tuned, set KERAS_BACKEND=tens" in warning
    assert "run `KERAS_BACKEND=torch " in warning  # or the retune would be one for tensorflow


def test_a_warm_start_tries_the_nearest_machines_best_first_then_what_was_only_good_and_nothing_twice() -> None:
    near, far = of(4, 3, hardware=hardware(cores=4)), of(4, hardware=hardware(cpu_model="B"))
    farther = of(8, hardware=hardware(cpu_model="B", cores=64))
    configs = pick.warm_start(artifact(farther, far, near), hardware(cores=3))
    assert [each.loader for each in configs] == [Threads(workers=4), Threads(workers=8), Threads(workers=3)]
    elsewhere = [PipelineConfig(loader=Threads(workers=each)) for each in (5, 2)]
    found = pick.warm_start(artifact(of(2, 3)), hardware(), elsewhere)
    assert [each.loader.worker_count() for each in found] == [2, 5, 3]


@pytest.mark.parametrize("request_", [PREDICT, SIMULATED])
def test_what_was_tuned_for_something_else_lies_beside_the_profile_of_the_training(request_: Request) -> None:
    later = datetime.timedelta(hours=1)
    other = profile(request=request_, config=config(loader=Threads(workers=7)), measured_at=NOON + later)
    both = pick.joined(artifact(other), artifact(HERE))
    assert set(map(str, both.profiles)) == {str(HERE), str(other)}
    assert pick.pick(both, hardware()).profile == HERE
    assert pick.nearest(both, hardware(), request_.asked)[0] == other
    assert pick.nearest(artifact(GPUS, other), hardware())[0] == GPUS
    again = other.model_copy(update={"measured_at": NOON + 2 * later})
    assert set(map(str, pick.with_profile(both, again).profiles)) == {str(HERE), str(again)}
    assert pick.pick(artifact(other), hardware(), strict=True).profile == other  # for want of the training's


def of_model(model: str, **changes: Any) -> schema.Profile:
    return profile(workload=digest(model=model), **changes)


def test_profiles_of_models_that_are_known_to_differ_are_not_of_one_workload() -> None:
    there, here = hardware(cores=8), {"measured_at": NOON + datetime.timedelta(hours=1)}
    with pytest.raises(ArtifactError, match="models' structure"):
        pick.joined(artifact(of_model("b")), artifact(of_model("a", hardware=there)))
    mixed = pick.with_profile(artifact(of_model("a", hardware=there)), of_model("b", **here))  # by a retune
    assert "another model than the artifact's latest" in str(pick.pick(mixed, there).warning)
    assert pick.pick(mixed, hardware()).warning is None
    described_otherwise = hardware(cores=8, packages={"keras": "3.16.0"})
    not_built, simulated = profile(hardware=there), of_model("b", hardware=there, request=SIMULATED)
    for other in (of_model("a", hardware=there), not_built, simulated, of_model("b", hardware=described_otherwise)):
        assert len(pick.merge([artifact(of_model("a")), artifact(other)]).profiles) == 2


def test_a_configuration_of_an_unknown_loader_is_refused_only_when_it_is_chosen() -> None:
    both = artifact(HERE, profile(hardware=hardware(cores=64), config={"loader": {"kind": "thread"}}))
    assert pick.pick(both, hardware()).profile == HERE
    assert pick.warm_start(both, HERE.hardware) == [pick.config_of(HERE)]
    with pytest.raises(ArtifactError, match="Did you mean `threads`"):
        pick.pick(both, hardware(cores=64))


AFTER = PipelineConfig(loader=Threads(workers=7))
HOUR = datetime.timedelta(hours=1)
LARGE = hardware(cores=32)


def live(**changes: Any) -> Live:
    plain: dict[str, Any] = {
        "hardware": hardware(),
        "config": AFTER.model_dump(mode="json"),
        "images_per_second": Estimate(value=500.0, low=490.0, high=510.0),
        "data_wait_share": 0.25,
        "trained_at": NOON + HOUR,
        "changes": (
            Change(epoch=0, before="threads(workers=2)", after="threads(workers=7)", ratio=1.5, kept=True),
            Change(epoch=1, before="threads(workers=7)", after="processes(workers=2)", kept=False, failure="no room"),
        ),
    }
    return Live(**{**plain, **changes})


def test_a_machine_begins_with_what_its_last_training_has_learnt() -> None:
    cases: list[tuple[Live, Hardware, bool]] = [
        (live(), hardware(), True),
        (live(trained_at=NOON - HOUR), hardware(), False),  # a later tune counts more
        (live(hardware=hardware(cpu_model="Another")), hardware(), False),
        (live(hardware=LARGE), LARGE, True),  # a machine without a profile
    ]
    for learnt, here, used in cases:
        known = Artifact(profiles=(profile(),), live=(learnt,))
        choice, usual = pick.pick(known, here), (pick.config_of(profile()), None, None)
        assert (choice.config, choice.live, choice.warning) == ((AFTER, learnt, None) if used else usual)
        with pytest.raises(ArtifactError, match="not of this machine") if here is LARGE else contextlib.nullcontext():
            pick.pick(known, here, strict=True)


def test_the_last_training_on_a_machine_replaces_those_before_it() -> None:
    others, later = live(hardware=LARGE), live(trained_at=NOON + 2 * HOUR)
    known = Artifact(profiles=(profile(),), live=(live(), others))
    assert pick.with_live(known, later).live == (others, later)
    assert pick.merge([pick.with_live(known, later), known]).live == (others, later)
    assert pick.with_profile(known, profile(measured_at=NOON)).live == known.live


def test_it_is_written_beside_the_profiles_and_read_again_unless_nothing_was_tried(tmp_path: Path) -> None:
    path = of_this_machine(tmp_path, below="tuned", hardware=fingerprint.detect())
    before, tuned = path.read_bytes(), factory.load(path)
    tuned._keep(Learnt(**live(changes=()).model_dump(exclude={"hardware"})))
    assert path.read_bytes() == before
    known = live(trained_at=datetime.datetime.now(datetime.UTC))
    tuned._keep(Learnt(**known.model_dump(exclude={"hardware"})))
    found = files.read(path)
    assert found.profiles == files.parse(before).profiles
    assert [each.changes for each in found.live] == [known.changes]
    assert factory.load(path).config == AFTER
    with factory.load(path).make_loader(tune="live") as loader:
        assert isinstance(loader, SwitchingLoader)


def test_show_and_the_report_tell_what_a_training_has_changed_and_what_that_brought() -> None:
    unmeasured = baseline("keras", 1.0).model_copy(update={"images_per_second": None})
    known = Artifact(profiles=(profile(baselines=(unmeasured,)),), live=(live(),))
    said = printed(tables.profiles(known, known.profiles[0], None, here=hardware(), now=NOON, live=live()), 200)
    assert "live, of a training (used on this machine)" in said
    assert "keras: not measured" in said
    assert "epoch 1: threads(workers=7) in place of threads(workers=2), 1.5x" in said
    page, document = profile_report.html_page(known, profile()), profile_report.document(known, profile())
    assert "What did a training change?" in page
    assert "<td>threads(workers=7)</td><td>threads(workers=2)</td>" in page
    assert all("no room" in text for text in (said, page))
    assert [row["ratio"] for row in document["live"]["rows"]] == [1.5, None]
    assert "live" not in profile_report.document(known, profile(hardware=LARGE))
