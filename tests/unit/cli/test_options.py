"""Options: how they are written, grouped and refused, in a file too; what tune and measure refuse before they begin."""

import inspect
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe import values
from autopipe.api import request
from autopipe.cli import main
from autopipe.cli.options import WorkloadOptions, ready, settings_file
from autopipe.cli.tune import retune, tune
from autopipe.measure.facts import WrappedDataset
from autopipe.pipeline.loaders.wrapped import Wrapped
from tests.fakes.facts import known
from tests.fakes.reports import Approved
from tests.unit.cli.conftest import Autopipe, Patch, photos

pytestmark = pytest.mark.usefixtures("here")
THREADS = ap.PipelineConfig(loader=ap.Threads(workers=2))
WORKLOAD = "train.py:workload"
SECONDS, SIZE, STEP = values.seconds, values.size_bytes, request.accelerator
READ: list[tuple[Callable[..., object], dict[Any, object]]] = [
    (SECONDS, {"90s": 90.0, "3m": 180.0, "1.5h": 5400.0, "15ms": 0.015, 120: 120.0, 0.5: 0.5}),
    (SIZE, {"8G": 8 << 30, "500MiB": 500 << 20, "1.5k": 1536, "7B": 7, 4096: 4096}),
    (STEP, {"15ms": ap.SimulatedAccelerator(0.015), "224ms/400": ap.SimulatedAccelerator(0.224, 400)}),
    (lambda text, _: request.batch_sizes(text), {"16, 32,64": (16, 32, 64)}),
]
NO_SECONDS = ["", "fast", "3x", "-1s", "1h30m", "0s", 0, -1, math.inf, math.nan, True, None, [2]]
WRONG: list[tuple[Callable[..., object], list[Any], str, str]] = [
    (SECONDS, NO_SECONDS, "be", "s"),
    (SIZE, ["", "much", "8 GG"], "be a size", "G"),
    (STEP, ["quick"], "be a duration", "ms"),
]


def test_options_are_numbers_with_a_unit_or_seconds_and_bytes_and_a_bare_text_is_told_what_to_write() -> None:
    for read, right in READ:
        assert {text: read(text, "--option") for text in right} == right
    for read, wrong, must, unit in WRONG:
        for given in wrong:
            with pytest.raises(ap.ConfigError, match=f"`--option` must {must}"):
                read(given, "--option")
        with pytest.raises(ap.ConfigError) as raised:
            read("20", "--option")
        assert f"20{unit}" in str(raised.value.hint)


def test_no_other_batch_size_is_taken_and_nothing_is_started_for_it(autopipe: Autopipe) -> None:
    for text in ("", "many", "0", "16,0", "16,,32", "1.5", "-4", " ", "9" * 5000, "0x10", "²"):
        error = autopipe("measure", "a.py:w", f"--batch-sizes={text}").refused()
        assert ("`batch_sizes` must be whole numbers of 1 or more" in error, len(error) < 400) == (True, True)


def test_parameters_are_held_to_values_of_their_types_and_those_of_any_loader_to_one_loaders() -> None:
    pairs = ["loader=threads,tfdata", "threads.workers=2,4", "tfdata.prefetch=auto,2", "loader.prefetch=auto"]
    held = {"loader": ("threads", "tfdata"), "threads.workers": (2, 4), "tfdata.prefetch": ("auto", 2)}
    assert request.allowed([*pairs, *pairs]) == {**held, "loader.prefetch": ("auto",)}


PAIRS = """kepe=memory loader.worker=4 workers=4 worker=4 keep=disk keep=memroy keep=memory:0% keep
           loader=thread threads.workers=many keep= tfdata.prefetch=soon"""


def test_settings_that_cannot_be(approved: Approved) -> None:
    def refused(pair: str) -> str:
        with pytest.raises(ap.ConfigError) as raised:
            request.allowed([pair])
        assert raised.value.hint or pair == "keep=memory:0%"
        return raised.value.message  # its hint lists what there is, of extensions, too

    approved({pair: refused(pair) for pair in PAIRS.split()})


def test_a_configuration_takes_changes_of_settings_that_it_has_and_each_once() -> None:
    def changed(*pairs: str) -> ap.PipelineConfig:
        return request.changed(THREADS, pairs)

    threads = ap.PipelineConfig(loader=ap.Threads(workers=4), keep="memory", finish="host")
    assert changed("loader.workers=4", "keep=memory", "finish=host") == threads
    # Another loader keeps the workers where it must have some.
    assert changed("loader=processes").loader == ap.Processes(workers=2)
    assert changed("loader=processes", "loader.workers=3").loader == ap.Processes(workers=3)
    hint = "Measure them one by one, or let a tune try them: --only loader.workers=2,4, or only=['loader.workers=2,4']."
    with pytest.raises(ap.ConfigError, match=r"takes one value of each setting, but got loader\.workers=2,4") as raised:
        changed("loader.workers=2,4")
    assert raised.value.hint == hint
    with pytest.raises(ap.ConfigError, match=r"no setting `loader\.workers` of the loader tfdata\.") as raised:
        changed("loader=tfdata", "loader.workers=4")
    hint = str(raised.value.hint)
    assert ("loader.num_parallel_calls" in hint, "loader.workers" in hint) == (True, False)
    with pytest.raises(ap.ConfigError, match="fixed once, but got loader=threads and loader=tfdata,threads") as raised:
        request.allowed(["loader=threads", "keep=none", "loader=tfdata,threads"])
    assert raised.value.hint == "To try all of these values: loader=threads,tfdata"


def wrapped(**arguments: Any) -> Wrapped:
    return Wrapped.model_validate(arguments)


AS_IT_IS = ap.PipelineConfig(loader=wrapped(calls=2, order="any"), finish="host", device_prefetch=0)
WRAPPED = WrappedDataset(as_it_is=AS_IT_IS, choices={"calls": (1, 2), "order": ("any", "fixed")})


def test_a_wrapped_dataset_is_measured_as_it_is_or_with_other_parameters_and_no_other_takes_them() -> None:
    assert request.configured(THREADS, WRAPPED, []).loader == AS_IT_IS.loader
    changed = request.configured(THREADS, WRAPPED, ["wrapped.calls=1", "wrapped.order=fixed", "device_prefetch=2"])
    assert (changed.loader, changed.device_prefetch) == (wrapped(calls=1, order="fixed"), 2)
    assert request.configured(THREADS, None, ["loader.workers=3"]).loader == ap.Threads(workers=3)
    with pytest.raises(ap.ConfigError, match=r"`wrapped\.calls` is a setting of a dataset of ap\.wrap"):
        request.configured(THREADS, None, ["wrapped.calls=1"])
    for pair, said in (
        ("wrapped.cals=1", "Did you mean `wrapped.calls`"),
        ("wrapped.calls=3", "one of 1, 2"),
        ("loader.workers=2", "`loader.workers`"),
    ):
        with pytest.raises(ap.ConfigError) as raised:
            request.configured(THREADS, WRAPPED, [pair])
        assert said in str(raised.value)


def test_a_models_name_may_be_written_as_elsewhere_and_the_rest_is_as_usual(here: Path) -> None:
    images = str(photos(here / "photos", each=2))
    for model in ("mobilenet-v2", " mobilenet_v2", "mobilenet.v2", None):
        named = known(WorkloadOptions(images=images, model=model, batch_size=2).target().named)
        assert (named.model, named.image_size, named.batch_size) == ("mobilenet_v2", 224, 2)
    assert [inspect.signature(ready(each)).parameters["trials"].default for each in (tune, retune)] == [30, 15]


OF_IMAGES = "`{}` goes with `--images`, but `train.py:workload` has its own"
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"images": ".", "model": "a/mine.keras"}, "`--model` cannot be 'a/mine.keras': .* Such as mobilenet_v2"),
    ({"images": ".", "model": ""}, "`--model` cannot be ''"),
    ({"images": ".", "batch_size": 2_000_000}, "`--batch-size` cannot be 2000000: input should be .* to 1048576"),
    ({"images": "photos\nof mine"}, "`--images` cannot be '.*photos.*of mine'"),
    ({"workload": WORKLOAD, "batch_size": 32}, OF_IMAGES.format("--batch-size")),
    ({"workload": WORKLOAD, "image_size": 224}, OF_IMAGES.format("--image-size")),
    ({"workload": WORKLOAD, "model": "mobilenet_v2"}, OF_IMAGES.format("--model")),
]


def test_options_of_images_that_cannot_be_are_named() -> None:
    for options, said in OPTIONS:
        with pytest.raises(ap.WorkloadError, match=said):
            WorkloadOptions(**options).target()


def refused(autopipe: Autopipe, *arguments: str) -> str:
    return autopipe("tune", WORKLOAD, *arguments).refused()


IMPOSSIBLE = {
    "--space defualt": "Did you mean `default`?",
    "--only loadr=threads": "There is no setting `loadr`. Did you mean `loader`?",
    "--space quick --only loader=wrapped": "`loader` may be threads, processes, tfdata",
    "--space quick --only loader.workers=99": "`loader.workers` cannot be 99 in this space.",
    "--bugdet 2m": "No such option: --bugdet. Did you mean `--budget`?",
    "--trials 0": "--trials",
    "--seed 4294967296": "but got 4294967296.",
    "--baseline keras": "but got 'keras'.",
    "--page-cache lukewarm": "--page-cache",
}


def test_impossible_options_start_nothing(autopipe: Autopipe, here: Path, monkeypatch: Patch) -> None:
    for options, said in IMPOSSIBLE.items():
        assert said in refused(autopipe, *options.split())
    monkeypatch.setenv("KERAS_BACKEND", "jx")
    backends = "KERAS_BACKEND must be one of jax, numpy, openvino, tensorflow, torch, but got 'jx'"
    assert backends in refused(autopipe)
    assert list(here.iterdir()) == []  # no folder that nothing was written to


def test_what_cannot_be_written_to_is_refused_first(autopipe: Autopipe, here: Path, monkeypatch: Patch) -> None:
    (here / "file").touch()
    (here / "out").mkdir()
    error = refused(autopipe, "--out", "file")
    assert error.startswith("error: `--out` must be a folder that can be made, but got 'file'")
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)  # as root one may write anywhere
    error = refused(autopipe, "--out", "out")
    assert error == "error: `--out` must be writable, but 'out' is not.\n\nhint: Choose another with --out DIR.\n"
    (here / "train.py").write_text("from pathlib import Path\n\nPath(__file__).with_name('imported').touch()\n")
    error = autopipe("measure", WORKLOAD, "--trace", "nowhere/trace.json").refused()
    assert error.startswith("error: `--trace` must name a file that can be written to")
    assert not (here / "imported").exists()


def test_the_nearest_file_holds_options_but_the_command_line_wins(
    autopipe: Autopipe, here: Path, monkeypatch: Patch
) -> None:
    (sub := here / "sub").mkdir()
    monkeypatch.chdir(sub)
    (sub / "pyproject.toml").write_text('[project]\nname = "x"\n')  # which has no options, so is passed over
    files = {here / "pyproject.toml": "tool.autopipe.tune", here / "autopipe.toml": "tune"}
    for number, (file, table) in enumerate({**files, sub / "autopipe.toml": "tune"}.items()):
        file.write_text(f'[{table}]\nbudget = "soon {number}"\n')
        assert f"`budget` must be a duration such as 90s, 3m or 15ms, but got 'soon {number}'" in refused(autopipe)
        assert "'later'" in refused(autopipe, "--budget", "later")
    assert settings_file(Path("/", "x" * 300)) == ("", {})  # which one may not look into
    shutil.rmtree(sub)
    assert refused(autopipe).startswith("error: The folder that this shell is in was removed.")


def test_more_output_tells_of_values_origins(autopipe: Autopipe, here: Path, monkeypatch: Patch) -> None:
    file = here / "pyproject.toml"
    file.write_text('[tool.autopipe.tune]\nmax-memory = "8G"\nonly = "loader=threads"\nbudget = "soon"\n')
    monkeypatch.setenv("AUTOPIPE_VIRTUAL_DEVICES", "2")
    monkeypatch.setenv("AUTOPIPE_STORAGE", "postgresql://me:secret@host/db")
    assert {line for line in refused(autopipe, "-v").splitlines() if line.startswith("option")} >= {
        f"option    --max-memory 8G, from {file}, [tool.autopipe]",
        f"option    --only ['loader=threads'], from {file}, [tool.autopipe]",
        "option    --virtual-devices 2, from the environment",
        "option    --storage postgresql://me@host/db, from the environment",
    }
    assert not any(line.startswith("option") for line in refused(autopipe).splitlines())


IN_FILE = {
    '[tune]\nbudgt = "2m"': "`tune` in {file} has no option `budgt`. Did you mean `budget`?",
    "[tune]\ntrials = 0": "`trials` of `tune` in {file} cannot be 0: ",
    '[tune]\ntrials = "many"': "`trials` of `tune` in {file} cannot be 'many': ",
    "[tune]\ntrials = true": "`trials` of `tune` in {file} cannot be True: ",
    "[tune]\ntrials = 1.5": "`trials` of `tune` in {file} cannot be 1.5: ",
    "[tune]\nfresh = 1": "`fresh` of `tune` in {file} cannot be 1: it is true or false.",
    '[tune]\nmode = "serve"': "`mode` of `tune` in {file} cannot be 'serve': ",
    '[tune]\nbudget = ["1m", "2m"]': "`budget` of `tune` in {file} cannot be",
    'tune = "2m"': "`tune` in {file} must be a table of options, but got '2m'.",
    '[tuen]\nbudget = "2m"': "{file} has options of `tuen`, which is no command. Did you mean `tune`?",
    "[tune": "`{file}` cannot be read: ",
}


def test_what_is_wrong_in_a_file_is_named_with_it(autopipe: Autopipe, here: Path) -> None:
    file = here / "autopipe.toml"
    for text, said in IN_FILE.items():
        file.write_text(text)
        assert refused(autopipe).startswith(f"error: {said.format(file=file)}")


def test_every_command_takes_its_options_from_a_file(autopipe: Autopipe, here: Path) -> None:
    (here / "autopipe.toml").write_text("[doctor]\nas_json = true\n")
    assert "`doctor`" in autopipe("doctor").refused()
    (here / "autopipe.toml").write_text("[doctor]\njson = true\n")
    assert autopipe("doctor").out.startswith("{")


def test_the_help_of_tune_has_at_most_eighteen_options_and_the_others_are_on_a_page(autopipe: Autopipe) -> None:
    lines = autopipe("tune", "--help").out.partition("Options:")[2].splitlines()
    shown = [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]
    assert shown[:6] == ["--budget", "--images", "--out", "--baseline", "--epochs", "--only"]  # the most used
    assert len(shown) <= 18
    page = (Path(__file__).parents[3] / "docs" / "reference.md").read_text().partition("## Rare options")[2]
    commands: Any = main.application()
    hidden = {each.opts[0] for command in commands.commands.values() for each in command.params if each.hidden}
    assert hidden == set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE))
