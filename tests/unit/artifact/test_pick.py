from __future__ import annotations

import datetime
from typing import Any

import pytest

from autopipe.artifact import pick, schema
from autopipe.errors import ArtifactError
from autopipe.measure.fingerprint import Hardware, MatchLevel
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.search.settings import Request
from autopipe.workload.mode import Mode
from tests.fakes.profiles import GIB, H200, NOON, artifact, config, digest, hardware, profile, trial

SMALL = profile(hardware=hardware(cores=1, memory_bytes=2 * GIB), config=config(loader=Threads(workers=1)))
HERE = profile()
GPUS = profile(hardware=hardware(cores=32, gpus=(H200, H200)), config=config(loader=Processes(workers=16), devices=2))
THREE = artifact(SMALL, HERE, GPUS)


@pytest.mark.parametrize(
    ("here", "nearest"),
    [
        (hardware(cores=4), HERE),
        (hardware(cores=1, memory_bytes=3 * GIB), SMALL),
        (hardware(cores=32, gpus=(H200,)), GPUS),
    ],
)
def test_a_machine_of_the_same_models_gets_the_nearest_profile(here: Hardware, nearest: schema.Profile) -> None:
    choice = pick.pick(THREE, here)
    assert nearest == choice.profile
    assert MatchLevel.NEAR is choice.match.level


def test_what_differs_is_named_field_by_field_with_what_to_do() -> None:
    with pytest.raises(ArtifactError, match=r"3 profiles is of this machine.*cores: 2 there, 4 here.*autopipe retune"):
        pick.pick(THREE, hardware(cores=4), strict=True)
    warning = pick.pick(artifact(HERE), hardware(cores=4, memory_bytes=16 * GIB)).warning
    assert warning is not None
    assert "usable cores: 2 there, 4 here; memory: 8 GiB there, 16 GiB here" in warning
    assert "autopipe retune" in warning


@pytest.mark.parametrize(
    ("tuned", "here", "devices", "said"),
    [(2, 1, 1, "1 of 2 devices."), (4, 3, 2, "2 of 4 devices, because a batch of 32 cannot be shared between 3.")],
)
def test_devices_are_those_here_that_can_share_out_a_batch(tuned: int, here: int, devices: int, said: str) -> None:
    known = profile(hardware=hardware(cores=32, gpus=(H200,) * tuned), config=config(devices=tuned))
    choice = pick.pick(artifact(known), hardware(cores=32, gpus=(H200,) * here))
    assert choice.config.devices == devices
    assert str(choice.warning).endswith(f"It trains on {said}")


def test_an_unknown_machine_gets_the_nearest_profile_with_a_warning() -> None:
    one, two = profile(hardware=hardware(cpu_model="A", cores=16)), profile(hardware=hardware(cpu_model="B", cores=4))
    choice = pick.pick(artifact(one, two), hardware(cpu_model="C"))
    assert (choice.profile, choice.match.level) == (two, MatchLevel.OTHER)
    assert "The nearest is taken all the same. Its machine differs in processor: B there, C here" in str(choice.warning)
    assert "autopipe retune" in str(choice.warning)


def test_of_two_backends_on_one_machine_the_one_in_use_is_taken() -> None:
    tensorflow = profile(hardware=hardware(keras_backend="tensorflow"))
    jax = profile(hardware=hardware(keras_backend="jax"), config=config(loader=Threads(workers=4)))
    both = artifact(tensorflow, jax)
    assert jax == pick.pick(both, hardware(keras_backend="jax"), strict=True).profile
    assert tensorflow == pick.pick(both, hardware(keras_backend="tensorflow"), strict=True).profile
    assert tensorflow == pick.pick(both, hardware()).profile  # what Keras uses where nobody chooses
    warning = str(pick.pick(both, hardware(keras_backend="torch")).warning)
    assert "Keras backend: tensorflow there, torch here. To train as it was tuned, set KERAS_BACKEND=tens" in warning
    assert "run `KERAS_BACKEND=torch " in warning  # or the retune would be one for tensorflow


def test_a_warm_start_tries_the_nearest_machines_best_first_and_nothing_twice() -> None:
    near = profile(
        hardware=hardware(cores=4), config=config(loader=Threads(workers=4)),
        trials=(trial(config(loader=Threads(workers=3)), 1.0),),
    )  # fmt: skip
    far = profile(hardware=hardware(cpu_model="B"), config=config(loader=Threads(workers=4)))
    farther = profile(hardware=hardware(cpu_model="B", cores=64), config=config(loader=Threads(workers=8)))
    configs = pick.warm_start(artifact(farther, far, near), hardware(cores=3))
    assert [Threads(workers=4), Threads(workers=8), Threads(workers=3)] == [config.loader for config in configs]


def test_a_warm_start_tries_what_was_best_elsewhere_before_what_was_only_good() -> None:
    here = profile(trials=(trial(config(loader=Threads(workers=3)), 1.0),))
    elsewhere = PipelineConfig(loader=Threads(workers=5))
    found = pick.warm_start(artifact(here), hardware(), [elsewhere, pick.config_of(here)])
    assert [each.loader.worker_count() for each in found] == [2, 5, 3]


PREDICT, SIMULATED = Request(mode=Mode.PREDICT), Request(simulate=SimulatedAccelerator(0.015))


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


def test_profiles_of_another_model_are_not_of_one_workload() -> None:
    there, here = hardware(cores=8), {"measured_at": NOON + datetime.timedelta(hours=1)}
    with pytest.raises(ArtifactError, match="models' structure"):
        pick.joined(artifact(of_model("b")), artifact(of_model("a", hardware=there)))
    mixed = pick.with_profile(artifact(of_model("a", hardware=there)), of_model("b", **here))  # by a retune
    assert "another model than the artifact's latest" in str(pick.pick(mixed, there).warning)
    assert pick.pick(mixed, hardware()).warning is None


@pytest.mark.parametrize(
    "other",
    [
        of_model("a", hardware=hardware(cores=8)),
        profile(hardware=hardware(cores=8)),  # whose model was not built
        of_model("b", hardware=hardware(cores=8), request=SIMULATED),
        of_model("b", hardware=hardware(cores=8, packages={"keras": "3.16.0"})),  # which describes layers otherwise
    ],
)
def test_models_that_are_not_known_to_differ_are_merged(other: schema.Profile) -> None:
    assert len(pick.merge([artifact(of_model("a")), artifact(other)]).profiles) == 2


def test_a_configuration_of_an_unknown_loader_is_refused_only_when_it_is_chosen() -> None:
    both = artifact(HERE, profile(hardware=hardware(cores=64), config={"loader": {"kind": "thread"}}))
    assert pick.pick(both, hardware()).profile == HERE
    with pytest.raises(ArtifactError, match="Did you mean `threads`"):
        pick.pick(both, hardware(cores=64))


def test_a_configuration_of_a_package_that_is_missing_here_stops_nothing_but_itself() -> None:
    unknown = profile(hardware=hardware(cores=3), config={"loader": {"kind": "of a plugin"}})
    found = pick.warm_start(artifact(HERE, unknown), HERE.hardware)
    assert [each.key() for each in found] == [pick.config_of(HERE).key()]
