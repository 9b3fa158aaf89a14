"""Options: how they are written, grouped and refused; what tune and measure refuse before they start anything."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe import values
from autopipe.api import request
from autopipe.cli.options import Command, WorkloadOptions, ready
from autopipe.cli.tune import retune, tune
from autopipe.errors import ConfigError, WorkloadError
from autopipe.measure.facts import WrappedDataset
from autopipe.pipeline.loaders.wrapped import Wrapped
from tests.fakes.reports import Approved
from tests.unit.cli.conftest import Autopipe, photos

THREADS = ap.PipelineConfig(loader=ap.Threads(workers=2))


SECONDS, SIZE, STEP = values.seconds, values.size_bytes, request.accelerator


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        *((SECONDS, text, value) for text, value in (("90s", 90.0), ("3m", 180.0), ("1.5h", 5400.0), ("15ms", 0.015))),
        *((SECONDS, 120, 120.0), (SECONDS, 0.5, 0.5), (SIZE, 4096, 4096)),
        *((SIZE, text, value) for text, value in (("8G", 8 << 30), ("500MiB", 500 << 20), ("1.5k", 1536), ("7B", 7))),
        (lambda text, _: request.batch_sizes(text), "16, 32,64", (16, 32, 64)),
        *((STEP, "15ms", ap.SimulatedAccelerator(0.015)), (STEP, "224ms/400", ap.SimulatedAccelerator(0.224, 400))),
    ],
)
def test_durations_and_sizes_are_numbers_with_a_unit_or_seconds_and_bytes_and_batch_sizes_whole_numbers(
    read: Callable[..., object], text: str | float, value: object
) -> None:
    assert read(text, "--option") == value


@pytest.mark.parametrize("given", [0, -1, float("inf"), float("nan"), "0s", True, None, [2]])
def test_a_duration_comes_to_an_end_and_is_longer_than_nothing(given: object) -> None:
    with pytest.raises(ConfigError, match="`budget` must be"):
        SECONDS(given, "budget")


@pytest.mark.parametrize(
    ("read", "texts", "must", "unit"),
    [
        (SECONDS, ["", "fast", "3x", "-1s", "1h30m"], "be a duration", "s"),
        (SIZE, ["", "much", "8 GG"], "be a size", "G"),
        (STEP, ["quick"], "be a duration", "ms"),
    ],
)
def test_what_has_no_such_unit_is_named_with_its_option_and_a_bare_number_with_what_to_write(
    read: Callable[..., object], texts: list[str], must: str, unit: str
) -> None:
    for text in texts:
        with pytest.raises(ConfigError, match=f"`--option` must {must}"):
            read(text, "--option")
    with pytest.raises(ConfigError) as raised:
        read("20", "--option")
    assert f"20{unit}" in str(raised.value.hint)


@pytest.mark.parametrize("text", ["", "many", "0", "16,0", "16,,32", "1.5", "-4", " ", "9" * 5000, "0x10", "²"])
def test_no_other_batch_size_is_taken_and_nothing_is_started_for_it(autopipe: Autopipe, text: str) -> None:
    with pytest.raises(ConfigError, match=r"`batch_sizes` must be whole numbers of 1 or more") as raised:
        request.batch_sizes(text)
    assert len(raised.value.message) < 300
    assert "must be whole numbers" in autopipe("measure", "a.py:w", f"--batch-sizes={text}").refused()


def test_parameters_are_held_to_values_of_their_types_and_those_of_any_loader_to_one_loaders() -> None:
    pairs = ["loader=threads,tfdata", "threads.workers=2,4", "tfdata.prefetch=auto,2", "loader.prefetch=auto"]
    assert request.allowed(pairs) == {
        "loader": ("threads", "tfdata"),
        "threads.workers": (2, 4),
        "tfdata.prefetch": ("auto", 2),
        "loader.prefetch": ("auto",),
    }


PAIRS = (
    "kepe=memory", "loader.worker=4", "workers=4", "worker=4", "keep=disk", "keep=memroy", "keep=memory:0%", "keep",
    "loader=thread", "threads.workers=many", "keep=", "tfdata.prefetch=soon",
)  # fmt: skip


def test_settings_that_cannot_be(approved: Approved) -> None:
    def refused(pair: str) -> str:
        with pytest.raises(ConfigError) as raised:
            request.allowed([pair])
        assert raised.value.hint or pair == "keep=memory:0%"
        return raised.value.message  # its hint lists what there is, of extensions, too

    approved({pair: refused(pair) for pair in PAIRS})


def test_a_configuration_takes_changes() -> None:
    changed = request.changed(THREADS, ["loader.workers=4", "keep=memory", "finish=host"])
    assert changed == ap.PipelineConfig(loader=ap.Threads(workers=4), keep="memory", finish="host")


def test_a_configuration_takes_one_value_of_each_setting() -> None:
    with pytest.raises(ConfigError, match=r"takes one value of each setting, but got loader\.workers=2,4") as raised:
        request.changed(THREADS, ["loader.workers=2,4"])
    assert raised.value.hint == (
        "Measure them one by one, or let a tune try them: --only loader.workers=2,4, or only=['loader.workers=2,4']."
    )


def test_another_loader_keeps_the_workers_where_it_must_have_some() -> None:
    assert request.changed(THREADS, ["loader=processes"]).loader == ap.Processes(workers=2)
    assert request.changed(THREADS, ["loader=processes", "loader.workers=3"]).loader == ap.Processes(workers=3)


def test_a_knob_that_this_loader_does_not_have_is_told_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError) as raised:
        request.changed(THREADS, ["loader=tfdata", "loader.workers=4"])
    assert raised.value.message.startswith("There is no setting `loader.workers` of the loader tfdata.")
    hint = str(raised.value.hint)
    assert "loader.num_parallel_calls" in hint
    assert "loader.workers" not in hint


WRAPPED = WrappedDataset(
    as_it_is=ap.PipelineConfig(
        loader=Wrapped.model_validate({"calls": 2, "order": "any"}), finish="host", device_prefetch=0
    ),
    choices={"calls": (1, 2), "order": ("any", "fixed")},
)


def test_a_wrapped_dataset_is_measured_as_it_is_or_with_other_parameters_and_no_other_takes_them() -> None:
    assert request.configured(THREADS, WRAPPED, []).loader == Wrapped.model_validate({"calls": 2, "order": "any"})
    changed = request.configured(THREADS, WRAPPED, ["wrapped.calls=1", "wrapped.order=fixed", "device_prefetch=2"])
    assert changed.loader == Wrapped.model_validate({"calls": 1, "order": "fixed"})
    assert changed.device_prefetch == 2
    assert request.configured(THREADS, None, ["loader.workers=3"]).loader == ap.Threads(workers=3)
    with pytest.raises(ConfigError, match=r"`wrapped\.calls` is a setting of a dataset of ap\.wrap"):
        request.configured(THREADS, None, ["wrapped.calls=1"])


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
        request.configured(THREADS, WRAPPED, [pair])
    assert said in str(raised.value)


def test_a_setting_that_is_held_twice_is_refused_with_all_its_values() -> None:
    with pytest.raises(ConfigError, match="fixed once, but got loader=threads and loader=tfdata,threads") as raised:
        request.allowed(["loader=threads", "keep=none", "loader=tfdata,threads"])
    assert raised.value.hint == "To try all of these values: loader=threads,tfdata"
    assert request.allowed(["keep=none", "keep=none"]) == {"keep": ("none",)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    height: int = 1
    width: int = 2


TALL = Size(height=5)
called: list[object] = []


def draw(name: str, size: Size = TALL, *, fill: bool = False) -> None:
    called[:] = [name, size, fill]


def parameters(command: Command) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(ready(command)).parameters


def test_a_group_is_an_option_for_each_field_in_its_place_with_the_commands_defaults() -> None:
    found = parameters(draw)
    assert list(found) == ["name", "height", "width", "fill", "context", "verbose", "log_level"]
    assert [found[name].default for name in ("height", "width")] == [5, 2]
    assert found["height"].annotation is int
    ready(draw)(name="box", height=3, width=4, fill=True, context=None, verbose=False, log_level="warning")
    assert called == ["box", Size(height=3, width=4), True]
    assert (parameters(tune)["trials"].default, parameters(retune)["trials"].default) == (30, 15)


@pytest.fixture
def images(tmp_path: Path) -> str:
    return str(photos(tmp_path / "photos", each=2))


@pytest.mark.parametrize("model", ["mobilenet-v2", " mobilenet_v2", "mobilenet.v2", None])
def test_a_models_name_may_be_written_as_elsewhere_and_the_rest_is_as_usual(images: str, model: str | None) -> None:
    named = WorkloadOptions(images=images, model=model, batch_size=2).target().named
    assert named is not None
    assert (named.model, named.image_size, named.batch_size) == ("mobilenet_v2", 224, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "models/mine.keras"}, "`--model` cannot be 'models/mine.keras': .* Such as mobilenet_v2"),
        ({"model": ""}, "`--model` cannot be ''"),
        ({"batch_size": 2_000_000}, "`--batch-size` cannot be 2000000: input should be less than or equal to 1048576"),
        ({"images": "photos\nof mine"}, "`--images` cannot be '.*photos.*of mine'"),
    ],
)
def test_what_an_artifact_cannot_hold_is_named_by_its_option(images: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        WorkloadOptions(**{"images": images, **options}).target()


@pytest.mark.parametrize("options", [{"batch_size": 32}, {"image_size": 224}, {"model": "mobilenet_v2"}])
def test_a_workload_that_says_itself_what_it_trains_takes_no_options_of_images(options: dict[str, Any]) -> None:
    option = f"--{next(iter(options)).replace('_', '-')}"
    with pytest.raises(WorkloadError, match=f"`{option}` goes with `--images`, but `train.py:workload` has its own"):
        WorkloadOptions(workload="train.py:workload", **options).target()


# ---------------------------------------------------------------- what starts nothing


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--space", "defualt"), "Did you mean `default`?"),
        (("--only", "loadr=threads"), "There is no setting `loadr`. Did you mean `loader`?"),
        (("--space", "quick", "--only", "loader=wrapped"), "`loader` may be threads, processes, tfdata"),
        (("--space", "quick", "--only", "loader.workers=99"), "`loader.workers` cannot be 99 in this space."),
        (("--bugdet", "2m"), "No such option: --bugdet. Did you mean `--budget`?"),
        (("--trials", "0"), "--trials"),
        (("--seed", "4294967296"), "but got 4294967296."),
        (("--baseline", "keras"), "but got 'keras'."),
        (("--page-cache", "lukewarm"), "--page-cache"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_impossible_options_start_nothing(autopipe: Autopipe, home: Path, options: tuple[str, ...], said: str) -> None:
    assert said in autopipe("tune", "train.py:workload", *options).refused()
    assert list(home.iterdir()) == []  # no folder that nothing was written to


def test_a_misspelt_backend_starts_nothing(autopipe: Autopipe, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jx")
    error = autopipe("tune", "train.py:workload").refused()
    assert "KERAS_BACKEND must be one of jax, numpy, openvino, tensorflow, torch, but got 'jx'" in error
    assert list(home.iterdir()) == []


def test_an_unusable_folder_is_refused(autopipe: Autopipe, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    (home / "out").mkdir()
    error = autopipe("tune", "train.py:workload", "--out", "file").refused()
    assert error.startswith("error: `--out` must be a folder that can be made, but got 'file'")
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)  # as root one may write anywhere
    error = autopipe("tune", "train.py:workload", "--out", "out").refused()
    assert error == "error: `--out` must be writable, but 'out' is not.\n\nhint: Choose another with --out DIR.\n"


def test_a_trace_that_cannot_be_written_is_refused_before_any_import(autopipe: Autopipe, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from pathlib import Path\n\nPath(__file__).with_name('imported').touch()\n")
    error = autopipe("measure", f"{script}:workload", "--trace", tmp_path / "nowhere" / "trace.json").refused()
    assert error.startswith("error: `--trace` must name a file that can be written to")
    assert not (tmp_path / "imported").exists()
