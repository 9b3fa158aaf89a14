from __future__ import annotations

import pytest

from autopipe.cli import option_values
from autopipe.core.config import PipelineConfig
from autopipe.core.description import WrappedDataset
from autopipe.devices.simulated import SimulatedAccelerator
from autopipe.errors import ConfigError
from autopipe.loaders.grain import Grain
from autopipe.loaders.keras import Keras
from autopipe.loaders.processes import Processes
from autopipe.loaders.threads import Threads
from autopipe.loaders.wrapped import Wrapped

THREADS = PipelineConfig(loader=Threads(workers=2))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("3m", 180.0), ("1.5h", 5400.0), ("15ms", 0.015), ("2min", 120.0)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert option_values.seconds(text, "--budget") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "3x", "-1s", "1h30m"])
def test_what_is_no_duration_is_named_with_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"`--budget` must be a duration"):
        option_values.seconds(text, "--budget")


@pytest.mark.parametrize("option", ["--step", "--memory", "--simulate-step"])
def test_a_number_without_a_unit_is_refused_with_what_to_write(option: str) -> None:
    read = {"--memory": option_values.size, "--simulate-step": option_values.accelerator}.get(
        option, option_values.seconds
    )
    with pytest.raises(ConfigError, match=f"`{option}` must be") as raised:
        read("20", option)
    unit = "G" if option == "--memory" else "ms"
    assert f"{option} 20{unit}" in str(raised.value.hint)
    read(f"20{unit}", option)


@pytest.mark.parametrize(("text", "size"), [("8G", 8 << 30), ("500MiB", 500 << 20), ("1.5k", 1536), ("7B", 7)])
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert option_values.size(text, "--max-memory") == size


@pytest.mark.parametrize("text", ["", "much", "8 GG"])
def test_what_is_no_size_is_named_with_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"`--max-memory` must be a size"):
        option_values.size(text, "--max-memory")


def test_parameters_are_held_to_values_of_their_types() -> None:
    pairs = ["loader=threads,tfdata", "threads.workers=2,4", "keras.use_multiprocessing=false"]
    assert option_values.allowed(pairs) == {
        "loader": ("threads", "tfdata"),
        "threads.workers": (2, 4),
        "keras.use_multiprocessing": (False,),
    }


def test_a_knob_of_any_loader_takes_what_one_of_them_takes() -> None:
    assert option_values.allowed(["loader.workers=4", "loader.prefetch=auto"]) == {
        "loader.workers": (4,),
        "loader.prefetch": ("auto",),
    }


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("cahce=memory", "There is no setting `cahce`. Did you mean `cache`?"),
        ("loader.worker=4", "There is no setting `loader.worker`. Did you mean `loader.workers`?"),
        ("workers=4", "There is no setting `workers`. Did you mean `loader.workers`?"),
        ("worker=4", "There is no setting `worker`. Did you mean `loader.workers`?"),
        ("cache=disk", "`cache` cannot be 'disk'."),
        ("loader=thread", "`loader` cannot be 'thread'. Did you mean `threads`?"),
        ("threads.workers=many", "`threads.workers` cannot be 'many'."),
        ("cache", "A setting must be written key=value, but got 'cache'."),
        ("cache=", "A setting must be written key=value, but got 'cache='."),
    ],
)
def test_a_setting_that_cannot_be_is_named(pair: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        option_values.allowed([pair])
    assert raised.value.message == said


@pytest.mark.parametrize(
    ("pair", "takes"),
    [
        ("threads.workers=0", "a whole number of at least 1 and at most 1024"),
        ("cache_fraction=0.0", "a number of more than 0 and at most 1"),
        ("tfdata.prefetch=soon", "a whole number of at least 0 and at most 1024, or auto"),
        ("cache=disk", "none, memory"),
        ("keras.use_multiprocessing=2", "true or false"),
    ],
)
def test_what_a_setting_takes_is_told_with_its_bounds(pair: str, takes: str) -> None:
    with pytest.raises(ConfigError) as raised:
        option_values.allowed([pair])
    assert raised.value.hint == f"It takes {takes}."


def test_a_configuration_takes_changes() -> None:
    changed = option_values.changed(THREADS, ["loader.workers=4", "cache=memory", "finish=host"])
    assert changed == PipelineConfig(loader=Threads(workers=4), cache="memory", finish="host")


def test_a_configuration_takes_one_value_of_each_setting() -> None:
    with pytest.raises(ConfigError, match=r"takes one value of each setting, but got loader\.workers=2,4") as raised:
        option_values.changed(THREADS, ["loader.workers=2,4"])
    assert raised.value.hint == "Measure them one by one, or have `autopipe tune` try them: --only loader.workers=2,4"


def test_another_loader_keeps_the_workers_where_it_must_have_some() -> None:
    assert option_values.changed(THREADS, ["loader=processes"]).loader == Processes(workers=2)
    assert option_values.changed(THREADS, ["loader=keras", "loader.workers=3"]).loader == Keras(workers=3)
    assert option_values.changed(THREADS, ["loader=grain"]).loader == Grain(num_threads=2)


def test_a_knob_that_this_loader_does_not_have_is_told_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError) as raised:
        option_values.changed(THREADS, ["loader=tfdata", "loader.workers=4"])
    assert raised.value.message.startswith("There is no setting `loader.workers` of the loader tfdata.")
    hint = str(raised.value.hint)
    assert "loader.num_parallel_calls" in hint
    assert "loader.workers" not in hint


def test_a_simulated_step_is_a_time_perhaps_for_so_many_images_or_a_preset() -> None:
    assert option_values.accelerator("15ms", "--simulate-step") == SimulatedAccelerator(0.015)
    assert option_values.accelerator("224ms/400", "--simulate-step") == SimulatedAccelerator(0.224, 400)
    with pytest.raises(ConfigError, match=r"`--simulate-step` must be a duration"):
        option_values.accelerator("quick", "--simulate-step")


WRAPPED = WrappedDataset(
    as_it_is=PipelineConfig(
        loader=Wrapped.model_validate({"calls": 2, "order": "any"}), finish="host", device_prefetch=0
    ),
    choices={"calls": (1, 2), "order": ("any", "fixed")},
)
USUAL = PipelineConfig(loader=Threads(workers=2))


def test_a_wrapped_dataset_is_measured_as_it_is_or_with_other_parameters() -> None:
    assert option_values.configured(USUAL, WRAPPED, []).loader == Wrapped.model_validate({"calls": 2, "order": "any"})
    changed = option_values.configured(USUAL, WRAPPED, ["wrapped.calls=1", "wrapped.order=fixed", "device_prefetch=2"])
    assert changed.loader == Wrapped.model_validate({"calls": 1, "order": "fixed"})
    assert changed.device_prefetch == 2


def test_any_other_workload_is_measured_with_the_usual_loader() -> None:
    assert option_values.configured(USUAL, None, ["loader.workers=3"]).loader == Threads(workers=3)
    with pytest.raises(ConfigError, match=r"`wrapped\.calls` is a setting of a dataset of ap\.wrap"):
        option_values.configured(USUAL, None, ["wrapped.calls=1"])


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("wrapped.cals=1", "Did you mean `wrapped.calls`"),
        ("wrapped.calls=3", "one of 1, 2"),
        ("loader.workers=2", "`loader.workers`"),
    ],
)
def test_parameters_that_a_wrapped_dataset_has_not_are_refused(pair: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        option_values.configured(USUAL, WRAPPED, [pair])
    assert said in str(raised.value)


def test_a_setting_that_is_held_twice_is_refused_with_all_its_values() -> None:
    with pytest.raises(ConfigError, match="held once, but got loader=threads and loader=tfdata,threads") as raised:
        option_values.allowed(["loader=threads", "cache=none", "loader=tfdata,threads"])
    assert raised.value.hint == "To have all of these values tried: --only loader=threads,tfdata"
    assert option_values.allowed(["cache=none", "cache=none"]) == {"cache": ("none",)}
