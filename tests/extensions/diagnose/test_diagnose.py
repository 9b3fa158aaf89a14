"""`autopipe diagnose`: the user's own script, as it is. How fast anything runs is not tested."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.cli.options import Exit
from autopipe.errors import AutopipeError, NothingMeasuredError
from autopipe.extensions.diagnose.paste import written
from autopipe.extensions.diagnose.script import diagnose
from autopipe.extensions.diagnose.watched import Watched
from tests.fakes.commands import ROOT, Done, autopipe, python, succeeded
from tests.unit.cli.conftest import Autopipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEAD = """
import importlib.util
import os
import re
import sys
import threading
import numpy as np

importlib.util.find_spec("keras")  # as `import tensorflow` does, which may come first
import keras

x, y = np.zeros((64, 8, 8, 3), "float32"), np.zeros((64,), "int32")
model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

class Data(keras.utils.PyDataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return x[:8], y[:8]
"""
SLOW = """
def batches():
    while True:
        threading.Event().wait(0.05)  # for longer than this model takes
        yield x[:8], y[:8]

print("arguments", sys.argv[1:], __name__)
sys.stdout.flush()
class Notes(keras.callbacks.EarlyStopping):
    def on_train_begin(self, logs=None):
        open("notes.txt", "w")

    def on_train_batch_end(self, batch, logs=None):
        threading.Event().wait(0.05)

saves = [keras.callbacks.CSVLogger("log.csv"), Notes()]
more = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: open("more.txt", "w"))
try:
    model.fit(batches(), steps_per_epoch=1000, epochs=1000, callbacks=[saves, more, keras.callbacks.TerminateOnNaN()])
finally:
    model.save("final.keras")
"""
TRAINER = """
import autopipe as ap

workload = ap.Workload(data=ap.Arrays(x, y), ops=[], batch_size=8, model=lambda: model)
with ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1))) as trainer:
    trainer.fit(epochs=1, callbacks=[keras.callbacks.CSVLogger("log.csv")])
model.save("final.keras")
"""
LOOP = """
import tensorflow as tf

data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat()
list(data.take(8))
for step, (images, labels) in enumerate(data):  # read
    model.train_on_batch(images.numpy(), labels.numpy())
"""
SLOWER = """
class Slower(Data):
    def __getitem__(self, index):
        threading.Event().wait(0.02)
        return np.arange(8 * index * 192, (8 * index + 8) * 192, dtype="float32").reshape(8, 8, 8, 3), y[:8]

def build_model():
    return model

data = Slower()
"""
SEVERAL = """
model.fit(x[:8], y[:8], verbose=0)  # one step: nothing to see
for rate in (0.1, 0.01):
    model.optimizer.learning_rate = rate
    model.fit(x, y, batch_size=8, verbose=0, callbacks=keras.callbacks.CSVLogger("log.csv"))
print("fit is", keras.Model.fit.__name__, model.train_function.__qualname__)
model.save("final.keras")
"""
FILES = """
import cv2

def read(path):
    return cv2.imread(path).mean()

class Files(Data):
    paths, opened = [f"{number}.png" for number in range(8)], []

    def __getitem__(self, index):
        while index == 3 and "many" in sys.argv:
            self.opened.append(open(self.paths[0]))
        return x[:8] + read(self.paths[index]), y[:8]

for path in Files.paths:
    cv2.imwrite(path, np.zeros((4, 4, 3), "uint8"))
data = Files()
"""


def run(folder: Path, script: str, *options: str, own: Sequence[str] = (), **variables: str) -> Done:
    """Diagnose a script, which gets its `own` arguments."""
    (folder / "train.py").write_text(script)
    return autopipe("diagnose", *options, "train.py", *own, cwd=folder, **variables)


def line_of(end: str, script: str) -> int:
    """Return the number of the only line that ends so."""
    (line,) = (number for number, text in enumerate(script.splitlines(), 1) if text.endswith(end))
    return line


def seen(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in succeeded(done).stdout.splitlines()]


def refused(done: Done) -> str:
    """Return the error of a script that was not watched, with its hint on one line."""
    assert done.returncode == 3, done.stderr[-3000:]
    said, _, hint = done.stderr.partition("hint:")
    return f"{said}hint: {' '.join(hint.split())}"


def test_a_script_that_waits_is_told_so_and_ended_before_it_writes_anything(tmp_path: Path) -> None:
    script = HEAD.replace("keras.layers.Flatten", "keras.layers.RandomFlip(), keras.layers.Flatten") + SLOW
    done = run(tmp_path, script, "--json", "--steps", "12", own=["--debug", "--json"])
    (watched,) = seen(done)
    assert "arguments ['--debug', '--json'] __main__" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert (watched["data"], watched["left_out"]) == ("a generator", ["CSVLogger", "Notes", "LambdaCallback"])
    assert watched["waiting_seconds"] >= 0.04 * watched["steps"]
    assert (watched["alone_images_per_second"] > 0, watched["augmentation"]) == (True, ["RandomFlip"])
    line = watched["lines"]["lines"][0]
    assert (line["file"], script.splitlines()[line["line"] - 1].strip()) == ("train.py", line["code"])
    assert line["code"].startswith("threading.Event().wait(0.05)")


def test_a_script_finds_its_own_modules_and_none_of_the_working_directory_runs_in_place_of_pythons(
    tmp_path: Path,
) -> None:
    (tmp_path / "scripts").mkdir()
    for name, code in (("socket", "raise SystemExit(3)"), ("json", "raise SystemExit(3)"), ("scripts/beside", "")):
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "scripts" / "train.py").write_text("import beside\n" + HEAD + SLOW)
    done = python("-P", "-m", "autopipe", "diagnose", "--json", "--steps", "4", "scripts/train.py", cwd=tmp_path)
    assert len(seen(done)) == 1


def test_callbacks_that_may_write_run_if_that_is_asked_for_and_the_one_that_takes_the_time_is_named(
    tmp_path: Path,
) -> None:
    (watched,) = seen(run(tmp_path, HEAD + SLOW, "--json", "--callbacks", "--steps", "20"))
    assert watched["left_out"] == []
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "log.csv", "notes.txt", "more.txt"}
    assert any("Of the time of the callbacks, `Notes` takes" in each for each in watched["warnings"])


def test_the_training_of_a_trainer_that_ends_early_is_told_of_and_writes_nothing(tmp_path: Path) -> None:
    (watched,) = seen(run(tmp_path, HEAD + TRAINER, "--json"))
    assert (watched["data"], watched["left_out"]) == ("autopipe", ["CSVLogger"])
    assert watched["alone_images_per_second"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_loop_without_fit_is_told_of_by_its_line(tmp_path: Path) -> None:
    script = HEAD + LOOP + "\nmodel.save('final.keras')\n"
    (watched,) = seen(run(tmp_path, script, "--json", "--steps", "6"))
    found = {"data": "tf.data.Dataset", "loop": f"train.py:{line_of('# read', script)}", "batch_size": 8}
    assert {name: watched[name] for name in found} == found
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_file_that_ends_a_loop_is_named_beside_what_was_seen_of_it(tmp_path: Path) -> None:
    loop = "open('7.png', 'w').close()\nfor index in range(8):\n    model.train_on_batch(*data[index])\n"
    (watched,) = seen(run(tmp_path, HEAD + FILES + loop, "--json"))
    assert any("1 of 8 image files" in each and "7.png" in each for each in watched["warnings"])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("model.fit(Data(), workers=8, use_multiprocessing=True)", "workers=8, use_multiprocessing=True.*PyDataset"),
        ("model.fit(zip([x], [x]))", r"hint:.*\(batch for batch in zip\(...\)\)"),
        ("model.fit((([x, x], x) for _ in range(9)), steps_per_epoch=3)", r"hint:.*`\(a, b\), y`"),
        ("model.fit(x, np.eye(64))", "hint:.*its loss is categorical_crossentropy"),
        ("model.fit(((x[:, : 8 - n // 2], y) for n in range(3)), steps_per_epoch=3)", "hint:.*the first two"),
        ("model.fit(tf.data.Dataset.from_tensor_slices((x, y)))", r"hint:.*`\.batch\(32\)`"),
        ("model.fit([np.ones(3)] * 2, [0] * 2)", r"hint:.*np\.stack"),
        ("tf.data.Dataset.range(2).map(lambda x: x.numpy())", r"hint:.*tf\.numpy_function"),
        (
            "tf.data.Dataset.from_tensors(b'').map(lambda x: tf.image.resize(tf.io.decode_image(x), (8, 8)))",
            "hint:.*expand_animations=False",
        ),
        ("model.fit_generator(x)", "hint:.*take generators"),
        ("keras.metrics.Mean().reset_states()", "hint:.*`reset_state`"),
        (f"{FILES}open('3.png', 'w').close()\nmodel.fit(data, shuffle=False)", r"hint:(?=.*Files\[3\]).*3\.png"),
        (
            f"{FILES}open('3.png', 'w').close()\nmodel.fit(Files(workers=2, use_multiprocessing=True), shuffle=False)",
            r"hint:(?=.*Files\[3\]).*3\.png",
        ),
        (
            f"{FILES}sys.argv.append('many')\nmodel.fit(data, shuffle=False)",
            "^(?!.*cannot be decoded).*hint:.*ulimit -n",
        ),
        (
            "class Files(Data):\n    def __getitem__(self, at):\n"
            "        return np.array([*x[8 * at : 8 * at + 8][: 8 * (at != 3)]]), y[:8]\nmodel.fit(Files(), epochs=2)",
            r"hint:.*`Files\[3\]` has no samples: `__len__`",
        ),
        ("raise RuntimeError('received 0 items of ancdata')", "ulimit -n"),
        ("raise RuntimeError('DataLoader worker (pid 9) is killed by signal: Killed. ')", "if memory is short"),
        ("raise ValueError('environment variable RANK expected, but not set')", "-m autopipe diagnose SCRIPT"),
        (
            "import multiprocessing; multiprocessing.set_start_method('spawn')\n"
            "model.fit(Data(workers=2, use_multiprocessing=True), verbose=0)",
            "No batch came for 20 s: worker processes end before they have made one.*"
            "under `if __name__ == '__main__':`",
        ),
        (
            "for images, labels in tf.data.Dataset.from_tensor_slices((x, y)).batch(8):\n"
            "    images.numpy()\nraise ValueError('no model')",
            "no model.*ended with exit status 1 before enough of a training",
        ),
        ("import autopipe; autopipe.load", "came to its end, but no `fit` of a keras.Model"),
        ("for row in x: model.predict(row[None], verbose=0)", "calls `predict` 64 times"),
        ("for _ in range(3): model.predict(x, verbose=0)", "came to its end, but no `fit` of a keras.Model"),
        ("sys.exit(7)", "ended with exit status 7"),
    ],
)
def test_a_script_that_is_not_seen_to_train_is_told_why_and_what_to_do(code: str, said: str, tmp_path: Path) -> None:
    backend = "tensorflow" if code.startswith("model.fit(") else "jax"
    script = HEAD + "import tensorflow as tf\n" * ("tf." in code) + code
    assert re.search(said, refused(run(tmp_path, script, backend=backend)), re.DOTALL)


def test_every_fit_is_told_of_a_script_that_is_kept_running(tmp_path: Path) -> None:
    told = succeeded(run(tmp_path, HEAD + SEVERAL, "--keep-running")).stdout
    assert (told.count("verdict"), "fit is fit JAXTrainer." in told) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "final.keras", "log.csv"}


@pytest.mark.parametrize("name", ["image_classification", "segmentation"])
def test_scripts_as_keras_io_teaches_them_are_watched_as_they_are(name: str, tmp_path: Path) -> None:
    """On TensorFlow, because their data are tf.data's."""
    images, classes, masks, work = (tmp_path / each for each in ("images", "photos", "annotations/trimaps", "work"))
    generator = np.random.default_rng(0)
    for folder in (images, classes / "cat", classes / "dog", masks, work):
        folder.mkdir(parents=True)
        for number in range(96) if folder != work else ():
            shape, suffix = ((40, 60), "png") if folder == masks else ((40, 60, 3), "jpg")
            pixels = generator.integers(1, 4 if folder == masks else 256, shape, np.uint8)
            parameters = [cv2.IMWRITE_JPEG_PROGRESSIVE, number % 2]
            cv2.imwrite(str(folder / f"{number:02}.{suffix}"), pixels, parameters)
    places = {"PHOTOS": str(classes), "PETS": str(tmp_path), "backend": "tensorflow"}
    script = ROOT / "examples" / "diagnose" / f"{name}.py"
    (watched,) = seen(autopipe("diagnose", "--json", "--steps", "1", script, cwd=work, **places))
    assert (watched["data"], watched["left_out"]) == ("tf.data.Dataset", ["ModelCheckpoint"])
    assert min(watched["alone_images_per_second"], watched["image_files"]["progressive"]) > 0
    assert Path(watched["folder"]) in (images, classes)
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("guarded", [True, False])
def test_the_code_that_a_diagnosis_gives_runs_as_pasted(guarded: bool, tmp_path: Path) -> None:
    top = f"{HEAD}{SLOWER}"
    script = top + ("if __name__ == '__main__':\n    " if guarded else "") + "build_model().fit(data, epochs=1000)\n"
    watched = Watched.model_validate_json(succeeded(run(tmp_path, script, "--json", "--steps", "8")).stdout)
    assert watched.code is not None
    pasted = written(watched.code, watched.data, watched.batch_size)
    assert re.search("Add to train.py.*Then: autopipe tune train.py:workload", pasted)
    lines = [*script.splitlines(), ""]
    at = len(lines) if watched.code.above is None else watched.code.above - 1
    assert guarded == (at == len(lines))
    (tmp_path / "train.py").write_text("\n".join([*lines[:at], pasted, *lines[at:]]))
    succeeded(autopipe("verify", "train.py:workload", cwd=tmp_path))


def test_an_option_that_cannot_be_is_refused_by_name(autopipe: Autopipe) -> None:
    assert autopipe("diagnose", "--time", "soon", "a.py").refused().startswith("error: `time` must be a duration")
    assert "`time` must be at least 0.1 s, but got '1ms'" in autopipe("diagnose", "--time", "1ms", "a.py").refused()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "`nowhere.py` is not there"),
        ({"script": "nowhere.ipynb"}, "is a notebook.*Diagnose.*in ap.watch"),
        ({"script": 3}, "`script` must be the path of a training script, but got 3"),
        ({"time": 0}, "`time` must be longer than 0 s"),
        ({"steps": 0}, "`steps` must be a whole number of 1 or more, but got 0"),
    ],
)
def test_what_python_asks_for_and_cannot_have_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(AutopipeError, match=said):
        diagnose(**{"script": "nowhere.py", **options})


@pytest.mark.parametrize("named", [["-m", "package.train"], ["package.train"], ["-m", "package"], ["package/train.py"]])
def test_a_module_or_a_script_of_a_package_runs_as_after_python(
    named: list[str], autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()  # without __init__.py, as a namespace
    (tmp_path / "package/data.py").touch()
    for name in ("train", "__main__"):
        code = "import sys; from . import data; open('ran', 'w').write(' '.join([__spec__.name, *sys.argv[1:]]))"
        (tmp_path / f"package/{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert autopipe("diagnose", *named, "--epochs", "3").status == Exit.NOTHING_MEASURED  # it trains nothing
    assert Path("ran").read_text() == f"package.{'train' if 'train' in named[-1] else '__main__'} --epochs 3"


def test_a_signal_that_comes_while_the_script_is_being_started_ends_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def started(*arguments: Any, **named: Any) -> Any:
        process = start(*arguments, **named)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(5)\n")
    monkeypatch.setattr(subprocess, "Popen", started)
    outside = list[int]()  # what SIGTERM does outside a diagnosis
    before = signal.signal(signal.SIGTERM, lambda number, frame: outside.append(number))
    try:
        with pytest.raises(NothingMeasuredError, match="was ended by signal 15 before enough of a training was seen"):
            diagnose(script)
        assert outside == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert outside == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
