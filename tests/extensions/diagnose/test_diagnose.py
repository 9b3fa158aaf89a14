"""`autopipe diagnose`: the user's own script, as it is. How fast anything runs is not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.fakes.commands import ROOT, Done, autopipe, environment, python, succeeded

pytestmark = pytest.mark.slow

HEAD = """
import importlib.util
import os
import re
import sys
import numpy as np

importlib.util.find_spec("keras")  # as `import tensorflow` does, which may come first
import keras

x, y = np.zeros((64, 8, 8, 3), "float32"), np.zeros((64,), "int32")
model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
"""
SLOW = """
import threading

def batches():
    while True:
        threading.Event().wait(0.05)  # for longer than this model takes
        yield x[:8], y[:8]

print("arguments", sys.argv[1:], __name__)
sys.stdout.flush()
class Notes(keras.callbacks.EarlyStopping):
    def on_train_begin(self, logs=None):
        open("notes.txt", "w")

saves = [keras.callbacks.CSVLogger("log.csv"), Notes()]
more = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: open("more.txt", "w"))
try:
    model.fit(batches(), steps_per_epoch=1000, epochs=1000, callbacks=[saves, more, keras.callbacks.TerminateOnNaN()])
finally:
    model.save("final.keras")
"""
PAUSES = """
import threading

class Pauses(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        threading.Event().wait(0.05)

model.fit(x, y, batch_size=8, epochs=1000, callbacks=[Pauses(), keras.callbacks.TerminateOnNaN()], verbose=0)
"""
GRAIN = """
import grain

data = grain.MapDataset.source(list(range(64))).map(lambda number: (x[number], y[number]))
model.fit(data.batch(8).repeat().to_iter_dataset(), steps_per_epoch=1000, epochs=1000)
"""
TRAINER = """
import autopipe as ap

workload = ap.Workload(data=ap.Arrays(x, y), ops=[], batch_size=8, model=lambda: model)
with ap.build_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1))) as trainer:
    trainer.fit(epochs=1, callbacks=[keras.callbacks.CSVLogger("log.csv")])
model.save("final.keras")
"""
DATASET = """
class Data(keras.utils.PyDataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return x[:8], y[:8]
"""
KERAS_2 = f"""{DATASET}
try:
    model.fit(Data(), epochs=1000, workers=8, use_multiprocessing=True)
except TypeError as error:
    if "again" not in sys.argv:
        raise
    model.fit(Data(), epochs=1000)
"""
LOOPS = {
    "tf.data.Dataset": """
import tensorflow as tf

data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat()
list(data.take(8))
for step, (images, labels) in enumerate(data):  # read
    model.train_on_batch(images.numpy(), labels.numpy())
""",
    "grain DatasetIterator": """
import grain

data = grain.MapDataset.source(list(range(64))).map(lambda number: (x[number], y[number]))
for batch in data.batch(8).repeat().to_iter_dataset():  # read
    model.train_on_batch(*batch)
""",
    "grain DataLoaderIterator": """
import grain

class Source:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return x[index], y[index]

numbers = grain.samplers.IndexSampler(64, shuffle=True, seed=1)
for batch in grain.DataLoader(data_source=Source(), sampler=numbers, operations=[grain.transforms.Batch(8)]):  # read
    model.train_on_batch(*batch)
""",
}
VALIDATES = f"""{DATASET}
class Slow(Data):
    def __getitem__(self, index):
        SLEEP
        return super().__getitem__(index)

model.fit(x, y, batch_size=8, epochs=1000, validation_data=Slow(), verbose=0)
"""
HANGS = f"""{DATASET}
import threading

lock, held = threading.Lock(), threading.Event()

def hold():
    with lock:
        held.set()
        threading.Event().wait()

class Locked(Data):
    def __getitem__(self, index):
        with lock:  # hangs
            return super().__getitem__(index)

threading.Thread(target=hold, daemon=True).start()
held.wait()
model.fit(Locked(workers=2), epochs=1000, verbose=0)
"""
SEVERAL = """
model.fit(x[:8], y[:8], verbose=0)  # one step: nothing to see
for rate in (0.1, 0.01):
    model.optimizer.learning_rate = rate
    model.fit(x, y, batch_size=8, verbose=0, callbacks=keras.callbacks.CSVLogger("log.csv"))
print("fit is", keras.Model.fit.__name__, model.train_function.__qualname__)
model.save("final.keras")
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
    assert watched["alone_images_per_second"] > 0
    assert watched["augmentation"] == ["RandomFlip"]


def test_a_script_finds_its_own_modules_and_none_of_the_working_directory_runs_in_place_of_pythons(
    tmp_path: Path,
) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit(3)")
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside.py").touch()
    (tmp_path / "scripts" / "train.py").write_text("import beside\n" + HEAD + SLOW)
    done = python("-P", "-m", "autopipe", "diagnose", "--json", "--steps", "4", "scripts/train.py", cwd=tmp_path)
    assert len(seen(done)) == 1


def test_callbacks_that_may_write_run_if_that_is_asked_for(tmp_path: Path) -> None:
    (watched,) = seen(run(tmp_path, HEAD + SLOW, "--json", "--callbacks", "--steps", "4"))
    assert watched["left_out"] == []
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "log.csv", "notes.txt", "more.txt"}


def test_the_callback_that_takes_the_time_is_named(tmp_path: Path) -> None:
    (watched,) = seen(run(tmp_path, HEAD + PAUSES, "--json", "--callbacks", "--steps", "20"))
    assert any("Of the time of the callbacks, `Pauses` takes" in each for each in watched["warnings"])


def test_the_training_of_a_trainer_that_ends_early_is_told_of_and_writes_nothing(tmp_path: Path) -> None:
    (watched,) = seen(run(tmp_path, HEAD + TRAINER, "--json"))
    assert (watched["data"], watched["left_out"]) == ("autopipe", ["CSVLogger"])
    assert watched["alone_images_per_second"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_arguments_of_keras_2_are_named_with_where_they_go_in_keras_3(tmp_path: Path) -> None:
    said = refused(run(tmp_path, HEAD + KERAS_2))
    assert "workers=8, use_multiprocessing=True" in said
    assert "PyDataset" in said
    (watched,) = seen(run(tmp_path, HEAD + KERAS_2, "--json", "--steps", "4", own=["again"]))
    assert watched["data"] == "keras.utils.PyDataset"


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("zip([x], [x])", "(batch for batch in zip(...))"),
        ("(([x, x], x) for _ in range(9))", "`(a, b), y`"),
        ("x, np.eye(64)", "its loss is categorical_crossentropy"),
        ("((x[:, : 8 - n // 2], y) for n in range(3))", "the first two"),
        ("__import__('tensorflow').data.Dataset.from_tensor_slices((x, y))", "`.batch(32)`"),
        ("x, model.fit_generator(x)", "take generators"),
        ("x, keras.metrics.Mean().reset_states()", "`reset_state`"),
    ],
)
def test_data_that_keras_3_does_not_take_are_told_with_what_it_takes(data: str, hint: str, tmp_path: Path) -> None:
    said = refused(run(tmp_path, f"{HEAD}\nmodel.fit({data}, steps_per_epoch=3)\n", backend="tensorflow"))
    assert hint in said.partition("hint:")[2]


def test_a_script_that_grain_feeds_is_told_what_feeds_it(tmp_path: Path) -> None:
    (watched,) = seen(run(tmp_path, HEAD + GRAIN, "--json", "--steps", "12"))
    assert watched["data"] == "grain IterDataset"
    assert watched["alone_images_per_second"] > 0


@pytest.mark.parametrize("data", LOOPS)
def test_a_loop_without_fit_is_told_of_by_its_line(data: str, tmp_path: Path) -> None:
    script = HEAD + LOOPS[data] + "\nmodel.save('final.keras')\n"
    (watched,) = seen(run(tmp_path, script, "--json", "--steps", "6"))
    line = line_of("# read", script)
    assert (watched["data"], watched["loop"]) == (data, f"train.py:{line}")
    assert watched["batch_size"] == 8
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert any("workers=2" in warning for warning in watched["warnings"]) == ("PyDataset" in data)


def test_a_file_that_ends_a_loop_is_named_beside_what_was_seen_of_it(tmp_path: Path) -> None:
    script = f"""{HEAD}{DATASET}
import cv2

class Files(Data):
    paths = None

    def __getitem__(self, index):
        return x[:8] + cv2.imread(self.paths[index]).mean(), y[:8]

data = Files()
data.paths = [f"{{number}}.png" for number in range(8)]
for path in data.paths[:7]:
    cv2.imwrite(path, np.zeros((4, 4, 3), "uint8"))
open("7.png", "w").close()
for index in range(8):
    model.train_on_batch(*data[index])
"""
    (watched,) = seen(run(tmp_path, script, "--json"))
    assert any("1 of 8 image files" in each and "7.png" in each for each in watched["warnings"])


def test_a_loop_before_an_error_in_which_nothing_is_trained_is_no_training(tmp_path: Path) -> None:
    script = f"""{HEAD}
import tensorflow as tf

for images, labels in tf.data.Dataset.from_tensor_slices((x, y)).batch(8):
    images.numpy()
raise ValueError("no model")
"""
    assert "ended with exit status 1 before enough of a training" in refused(run(tmp_path, script))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [("", ["Files[3]", "Thumbs.db"]), ("workers=2, use_multiprocessing=True", ["Files[3]", "Thumbs.db"])],
)
def test_a_batch_that_ends_a_fit_is_named_with_its_file(arguments: str, named: list[str], tmp_path: Path) -> None:
    script = f"""{HEAD}{DATASET}
import cv2

def read(path):
    return cv2.imread(path).mean()

class Files(Data):
    def __getitem__(self, index):
        return x[:8] + read("Thumbs.db" if index == 3 else "0.png"), y[:8]

cv2.imwrite("0.png", np.zeros((4, 4, 3), "uint8"))
open("Thumbs.db", "w").close()
model.fit(Files({arguments}), shuffle=False)
"""
    hint = refused(run(tmp_path, script)).partition("hint:")[2]
    assert all(each in hint for each in named)


def test_files_are_not_called_damaged_if_none_can_be_opened_any_more(tmp_path: Path) -> None:
    script = f"""{HEAD}{DATASET}
import cv2

class Files(Data):
    def __getitem__(self, index):
        cv2.imread(self.paths[index])
        while index == 3:
            self.opened.append(open(self.paths[0]))
        return x[:8], y[:8]

data = Files()
data.paths, data.opened = [f"{{number}}.png" for number in range(8)], []
for path in data.paths:
    cv2.imwrite(path, np.zeros((4, 4, 3), "uint8"))
model.fit(data, shuffle=False)
"""
    hint = refused(run(tmp_path, script)).partition("hint:")[2]
    assert "ulimit -n" in hint
    assert "cannot be decoded" not in hint


def test_a_batch_without_samples_that_ends_a_fit_is_named(tmp_path: Path) -> None:
    script = f"""{HEAD}{DATASET}
class Files(Data):
    def __getitem__(self, index):
        return np.array([each for each in x[8 * index : 8 * index + 8][: 8 * (index != 3)]]), y[:8]

model.fit(Files(), epochs=2)
"""
    hint = refused(run(tmp_path, script)).partition("hint:")[2]
    assert "`Files[3]` has no samples: `__len__`" in hint


def test_a_script_of_a_package_runs_as_its_module(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "data.py").write_text(HEAD)
    fit = "from .data import model, x, y\nif __name__ == '__main__':\n    model.fit(x, y, batch_size=4, epochs=4)\n"
    (tmp_path / "package" / "train.py").write_text(fit)
    (watched,) = seen(autopipe("diagnose", "--json", "--steps", "6", "package/train.py", cwd=tmp_path))
    assert watched["batch_size"] == 4


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("received 0 items of ancdata", "ulimit -n"),
        ("DataLoader worker (pid 9) is killed by signal: Killed. ", "if memory is short"),
        ("environment variable RANK expected, but not set", "-m autopipe diagnose SCRIPT"),
    ],
)
def test_what_is_known_of_an_error_of_workers_is_said(error: str, said: str, tmp_path: Path) -> None:
    assert said in " ".join(refused(run(tmp_path, f"raise RuntimeError({error!r})")).split())


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_a_slow_validation_is_a_part_of_the_epoch_with_its_own_lines(backend: str, tmp_path: Path) -> None:
    script = HEAD + VALIDATES.replace("SLEEP", "threading.Event().wait(0.2)")
    (watched,) = seen(run(tmp_path, f"import threading\n{script}", "--json", "--steps", "12", backend=backend))
    epochs = watched["epochs"]
    assert epochs["validation_seconds"] >= epochs["validation_waiting_seconds"] >= 1.4 * epochs["count"]
    assert [line["code"] for line in watched["validation_lines"]["lines"]] == ["threading.Event().wait(0.2)"]
    assert watched["lines"] is None or "Event" not in watched["lines"]["lines"][0]["code"]


def test_steps_that_jax_does_behind_the_host_are_no_part_of_the_validation(tmp_path: Path) -> None:
    script = f"""{HEAD}
class Slow(keras.layers.Layer):
    def call(self, x):
        wide = keras.ops.ones((500, 500)) * keras.ops.mean(x)
        for _ in range(4):
            wide = keras.ops.matmul(wide, wide) * 1e-4
        return x + keras.ops.mean(wide)

model = keras.Sequential([Slow(), *model.layers])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, batch_size=8, epochs=1000, validation_data=(x[:8], y[:8]), verbose=0)
"""
    (watched,) = seen(run(tmp_path, script, "--json", "--steps", "16", backend="jax"))
    epochs = watched["epochs"]
    assert epochs["steps_seconds"] > 2 * (epochs["validation_seconds"] + epochs["between_seconds"])


def test_threads_that_wait_for_ever_are_told_of_by_their_line(tmp_path: Path) -> None:
    said = refused(run(tmp_path, HEAD + HANGS))
    at = f"train.py:{line_of('# hangs', HEAD + HANGS)} `with lock:  # hangs`."
    assert f"No batch came for 20 s, and nothing computes: its threads wait at {at}" in said
    assert "nobody gives it back in the forked process" not in said


def test_spawned_workers_that_train_as_they_begin_are_told_of(tmp_path: Path) -> None:
    spawn = "import multiprocessing; multiprocessing.set_start_method('spawn')\n"
    fit = "model.fit(Data(workers=2, use_multiprocessing=True), verbose=0)\n"
    said = refused(run(tmp_path, f"{spawn}{HEAD}{DATASET}{fit}"))
    assert "No batch came for 20 s: worker processes end before they have made one" in said
    assert "under `if __name__ == '__main__':`" in said.partition("No batch came")[2]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_what_binds_the_script_to_fewer_cores_is_named(tmp_path: Path) -> None:
    lowest = "psutil.Process().cpu_affinity([psutil.Process().cpu_affinity()[0]])"
    (tmp_path / "blas.py").write_text(f"import psutil\n{lowest}\n")
    call = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    for bind, said in (("import blas", "`import blas`"), (f"import os\n{call}", f"train.py:2 `{call}`")):
        (watched,) = seen(run(tmp_path, bind + HEAD + SLOW, "--json", "--steps", "4"))
        cores = len(os.sched_getaffinity(0))
        assert watched["bound"].startswith(f"{said} bound this process to 1 of its {cores} cores")


def test_every_fit_is_told_of_a_script_that_is_kept_running(tmp_path: Path) -> None:
    told = succeeded(run(tmp_path, HEAD + SEVERAL, "--keep-running")).stdout
    assert told.count("verdict") == 2
    assert "fit is fit JAXTrainer." in told
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "final.keras", "log.csv"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import autopipe; autopipe.load", "came to its end, but no `fit` of a keras.Model"),  # it imports NumPy first
        (HEAD + "for row in x: model.predict(row[None], verbose=0)", "calls `predict` 64 times"),
        (HEAD + "for _ in range(3): model.predict(x, verbose=0)", "came to its end, but no `fit` of a keras.Model"),
        ("raise ValueError('its own')", "ended with exit status 1 before enough of a training was seen"),
        ("import sys; sys.exit(7)", "ended with exit status 7"),
    ],
)
def test_a_script_without_a_training_is_told_so(tmp_path: Path, script: str, said: str) -> None:
    told = refused(run(tmp_path, script))
    assert said in told
    assert ("ValueError: its own" in told) == ("its own" in script)


def test_a_job_that_is_ended_takes_the_script_along(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; print('begun', flush=True); time.sleep(600)")
    command = [sys.executable, "-m", "autopipe", "diagnose", "train.py"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "was ended by signal 15 before enough of a training was seen" in said


@pytest.mark.parametrize("name", ["image_classification", "segmentation"])
def test_scripts_as_keras_io_teaches_them_are_watched_as_they_are(name: str, tmp_path: Path) -> None:
    """On TensorFlow, because their data are tf.data's."""
    images, classes, masks, work = (tmp_path / each for each in ("images", "photos", "annotations/trimaps", "work"))
    for folder in (images, classes / "cat", classes / "dog", masks, work):
        folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(96):
        file, image = f"{number:02}.jpg", generator.integers(0, 256, (40, 60, 3), np.uint8)
        cv2.imwrite(str(images / file), image, [cv2.IMWRITE_JPEG_PROGRESSIVE, number % 2])
        place = classes / ("cat" if number % 2 else "dog") / file
        cv2.imwrite(str(place), image, [cv2.IMWRITE_JPEG_PROGRESSIVE, number % 2])
        cv2.imwrite(str(masks / f"{number:02}.png"), generator.integers(1, 4, (40, 60), np.uint8))
    places = {"PHOTOS": str(classes), "PETS": str(tmp_path), "backend": "tensorflow"}
    script = ROOT / "examples" / "diagnose" / f"{name}.py"
    (watched,) = seen(autopipe("diagnose", "--json", "--steps", "1", script, cwd=work, **places))
    assert (watched["data"], watched["left_out"]) == ("tf.data.Dataset", ["ModelCheckpoint"])
    assert watched["alone_images_per_second"] > 0
    assert watched["image_files"]["progressive"] > 0
    assert Path(watched["folder"]) in (images, classes)
    assert list(work.iterdir()) == []
