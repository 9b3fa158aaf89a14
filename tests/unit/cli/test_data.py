"""`autopipe convert`, `verify` and `eject --to`, which run in the process of the command: here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe import again
from autopipe.artifact import verifying
from autopipe.errors import WorkloadError
from autopipe.hardware import machine
from autopipe.measure.outcome import Agreement, Verification
from autopipe.measure.trial import supervise, workload_import
from autopipe.measure.trial.child import Log
from autopipe.pipeline.assembly import build_loader
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search import searching
from autopipe.workload.ops.decode import decode
from tests.unit.cli.conftest import Autopipe, photos

TRAIN = """
import autopipe as ap
workload = ap.Workload(data={data}, ops=[ap.Decode(), ap.Resize(16, 16), ap.RandomFlip()], batch_size=2)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two classes of four images."""
    photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def workload(home: Path) -> str:
    """Write a workload file, and return its name."""
    (home / "train.py").write_text(TRAIN.format(data="ap.ImageFolder('photos')"))
    return f"{home / 'train.py'}:workload"


def test_the_size_of_each_cut_is_shown(home: Path, autopipe: Autopipe) -> None:
    ended = autopipe("convert", workload(home))
    assert "keeps     samples after 2 ops: 6.1 KiB" in ended.err  # 8 times 16 x 16 x 3 and a label of 8 bytes
    assert "or        samples after 1 op: 56.3 KiB  (--cut 1)" in ended.err


def test_parts_are_written_apart_and_joined_in_a_folder_that_is_named_as_it_is(home: Path, autopipe: Autopipe) -> None:
    named = workload(home)
    for part in ("0/2", "1/2"):
        said = autopipe("convert", named, "--out", "set [final]", "--shard", part).err
        join = again.autopipe("convert", named, "--out", "set [final]")
        assert f"next      when every part is written: {join}\n" in said
    assert "wrote     0 samples to set [final] in" in autopipe("convert", named, "--out", "set [final]").err


def test_a_folder_of_images_needs_no_code_and_may_be_smaller_than_a_batch(home: Path, autopipe: Autopipe) -> None:
    assert "wrote     8 samples" in autopipe("convert", "--images", "photos", "--image-size", 16).err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "aray"), "Did you mean `array`?"),
        (("--to", "parquet"), "`to` must be a form that is written, one of array, tfrecord"),
        (("--cut", "0"), "The form array keeps these samples after 1 or 2 of the first ops, but got 0"),
        (("--by", "nobody=here", "--shard", "0/2"), "`by` writes all parts, but `shard` asks for one"),
        (("--by", "nobody=here"), "`by` must be NAME=ADDRESS with the name of an extension"),
        (("--out", "photos"), "must hold nothing else, but `photos` has 2 other files"),
    ],
)
def test_wrong_options_are_named(home: Path, autopipe: Autopipe, options: tuple[str, ...], said: str) -> None:
    error = autopipe("convert", workload(home), *options).refused()
    assert error.startswith("error: ")
    assert said in error


# ---------------------------------------------------------------- progressive JPEG files


@pytest.fixture
def slow(home: Path) -> Path:
    """The photos, their JPEG files as progressive ones."""
    for path in (home / "photos").rglob("*.jpg"):
        cv2.imwrite(str(path), decode(path.read_bytes(), 3), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])
    return home / "photos"


def test_the_doctor_counts_progressive_files_and_prints_what_rewrites_them(slow: Path, autopipe: Autopipe) -> None:
    slow = slow.rename(slow.with_name("my {} photos"))
    ended = autopipe("doctor", "--data", slow)
    assert "progressive JPEG 4 of 8 images. They take 1.5 to 3 times" in " ".join(ended.out.split())
    label, line = ended.out.splitlines()[-1].split(maxsplit=1)
    assert label == "next"
    found = json.loads(autopipe("doctor", "--data", slow, "--json").out)["data"]
    assert found == {"files": 8, "looked_at": 8, "progressive": 4}
    if shutil.which("jpegtran") is None:
        pytest.skip("the command needs jpegtran")
    (slow / "cat" / "1.jpg").write_bytes((slow / "cat" / "1.jpg").read_bytes()[:-200])
    before = {path.relative_to(slow): path.read_bytes() for path in slow.rglob("*.*g")}
    subprocess.run(line, shell=True, cwd="/", capture_output=True, check=False)  # a damaged file has it end with 123
    assert all((slow / name).read_bytes() == data for name, data in before.items())
    new = slow.with_name(f"{slow.name}-baseline")
    damaged = Path("cat", "1.jpg")
    assert (new / damaged).read_bytes() == before.pop(damaged)
    for name, data in before.items():
        after = (new / name).read_bytes()
        assert not ap.Decode.is_progressive(after)
        np.testing.assert_array_equal(decode(after, 3), decode(data, 3))


def test_the_doctor_says_that_no_file_is_progressive_or_that_there_is_no_folder(home: Path, autopipe: Autopipe) -> None:
    ended = autopipe("doctor", "--data", "photos")
    assert "progressive JPEG none of 8 images" in " ".join(ended.out.split())
    assert "next" not in ended.out
    assert "`photo` does not exist. Did you mean `photos`?" in autopipe("doctor", "--data", "photo").refused()


@pytest.mark.skipif(len(machine.allowed()) < 2, reason="there is one core only")
def test_the_doctor_names_the_line_of_a_script_that_takes_cores_away(tmp_path: Path, autopipe: Autopipe) -> None:
    bind = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    (tmp_path / "pinned.py").write_text(f"import os\n{bind}\n")
    before = machine.allowed()
    try:
        said = "".join(autopipe("doctor", "--script", tmp_path / "pinned.py").out.split())  # long paths are folded
    finally:
        os.sched_setaffinity(0, before)
    assert "1usableof" in said
    wanted = f"pinned.py:2 `{bind}` bound this process to 1 of its {len(before)} cores"
    assert "".join(wanted.split()) in said
    assert "nowhere.py` is not a file" in autopipe("doctor", "--script", tmp_path / "nowhere.py").refused()


# ---------------------------------------------------------------- bad data, named


@pytest.mark.parametrize("kind", ["missing", "truncated"])
def test_bad_data_is_named(home: Path, autopipe: Autopipe, kind: str) -> None:
    if kind == "missing":
        shutil.rmtree(home / "photos")
    else:
        file = home / "photos" / "cat" / "1.jpg"
        file.write_bytes(file.read_bytes()[:-200])
    error = autopipe("convert", workload(home)).refused()
    assert error.startswith("error: ")
    assert ("photos` does not exist." if kind == "missing" else "cat/1.jpg") in error
    assert "Traceback" not in error


def test_a_class_of_one_image_is_warned_of(home: Path, autopipe: Autopipe) -> None:
    (home / "photos" / "emu").mkdir()
    shutil.copy(home / "photos" / "cat" / "0.png", home / "photos" / "emu")
    ended = autopipe("convert", workload(home))
    assert ended.status == 0
    assert ended.err.startswith("warning: Only one image is in `emu`")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train.py:worklaod"], "Did you mean `workload`?"),
        ([], "A workload must be given"),
        (["train.py:workload", "--images", "photos"], "`--images`, not both, but got train.py:workload and photos"),
        (["unread.py:workload"], "NameError"),
    ],
    ids=str,
)
def test_a_workload_that_is_not_had_is_named(home: Path, autopipe: Autopipe, arguments: list[str], said: str) -> None:
    workload(home)
    (home / "unread.py").write_text(TRAIN.format(data="photos"))
    error = autopipe("convert", *arguments).refused()
    assert error.startswith("error: ")
    assert said in error


def test_a_password_in_the_url_of_images_is_refused_and_not_repeated(autopipe: Autopipe) -> None:
    ended = autopipe("convert", "--images", "s3://me:hunter2@bucket/photos")
    assert ended.status != 0
    assert "must not hold a user name or password" in ended.err
    assert "hunter2" not in ended.err


@pytest.mark.parametrize(
    ("options", "name", "cut"), [(("--to", "array"), "array", "deepest"), (("--cut", 1), "array-1", 1)]
)
def test_it_writes_where_loaders_look(
    home: Path, autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch, options: tuple[Any, ...], name: str, cut: Any
) -> None:
    named = workload(home)
    monkeypatch.chdir("/")
    ended = autopipe("convert", named, *options, "--verify")
    assert (ended.status, ended.out) == (0, "")
    assert f"wrote     8 samples to {home}/converted/{name}" in ended.err
    assert "verified  every file, and 8 samples against the source" in ended.err
    monkeypatch.chdir(home.parent)
    made, files = workload_import.load_workload(named), ap.PipelineConfig(loader=ap.Threads(workers=1))
    kept = files.model_copy(update={"keep": "array" if cut == "deepest" else f"array:{cut}"})
    with build_loader(made, files) as one, build_loader(made, kept) as other:
        for batch, kept_batch in zip(one.epoch(0), other.epoch(0), strict=True):
            for part, kept_part in zip(batch, kept_batch, strict=True):
                np.testing.assert_array_equal(part, kept_part)


# ---------------------------------------------------------------- verify


def damage(path: Path, at: bytes) -> None:
    data = path.read_bytes()
    middle = (data.index(at) + len(data)) // 2
    path.write_bytes(data[:middle] + bytes(range(100, 116)) + data[middle + 16 :])


def test_every_damaged_file_is_listed_with_its_reason_and_the_command_fails(home: Path, autopipe: Autopipe) -> None:
    damage(home / "photos" / "cat" / "1.jpg", b"\xff\xda")
    damage(home / "photos" / "cat" / "0.png", b"IDAT")
    (home / "photos" / "dog" / "2.png").write_bytes(b"")
    (home / "photos" / "dog" / "3.jpg").unlink()
    os.mkfifo(home / "photos" / "dog" / "target")
    (home / "photos" / "dog" / "3.jpg").symlink_to("target")
    ended = autopipe("verify", "--files", "--images", home / "photos", "--batch-size", 2)
    assert ended.status == 1
    *bad, verified, advice = ended.out.splitlines()
    reasons = {"cat/0.png": "cannot decode the image", "cat/1.jpg": "the JPEG is damaged"}
    reasons |= {"dog/2.png": "is empty", "dog/3.jpg": "must be a regular file"}
    for line, (name, reason) in zip(bad, reasons.items(), strict=True):
        assert line.startswith(f"bad       {home / 'photos' / name}: ")
        assert reason in line
    assert verified == "verified  8 samples: 4 cannot be used"
    assert "more than the 1 %" in advice


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_file_whose_name_is_no_text_is_listed(home: Path, autopipe: Autopipe, options: tuple[str, ...]) -> None:
    (home / "photos" / "dog" / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"")
    ended = autopipe("verify", "--files", *options, "--images", home / "photos", "--batch-size", 2)
    assert ended.status == 1
    names = [ended.out]
    if options:
        found = json.loads(ended.out)
        names = [each["name"] for each in found["bad"]]
        assert (found["samples"], len(names)) == (9, 1)
    assert "dog/caf\\udce9.jpg" in names[0]


def test_a_wrapped_dataset_is_refused(home: Path, autopipe: Autopipe) -> None:
    (home / "train.py").write_text(
        "import autopipe as ap, keras, numpy as np\n"
        "class Data(keras.utils.PyDataset):\n"
        "    def __len__(self): return 2\n"
        "    def __getitem__(self, number): return np.zeros((2, 4)), np.zeros(2)\n"
        "workload = ap.wrap(lambda workers=0: Data(workers=workers), model=None, parameters={'workers': [0]})\n"
    )
    assert "reads its own files" in autopipe("verify", "--files", "train.py:workload").refused()


def test_batches_are_compared_without_the_workloads_model(autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = []

    def verify(runner: supervise.TrialRunner, **_: object) -> Verification:
        simulated.append(runner.launch.simulate is not None)
        return Verification(agreements=())

    monkeypatch.setattr(verifying, "verify", verify)  # a real one takes half a minute: README's is in test_readme.py
    assert autopipe("verify", "train.py:workload").status == 0
    assert simulated == [True]


def test_what_could_not_run_has_an_exit_code_of_its_own(autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(*agreements: Agreement) -> int:
        found = Verification(agreements=agreements, compared=False)
        monkeypatch.setattr(verifying, "verify", lambda runner, **_: found)
        return autopipe("verify", "train.py:workload").status

    config = ap.PipelineConfig(loader=ap.Threads(workers=1))
    could_not = Agreement(config=config, digest="", samples=0, message="it forks")
    twice = Agreement(config=config, digest="ab", samples=9, repeated=3)
    fine = Agreement(config=config, digest="ab", samples=9)
    assert [status(fine), status(fine, twice), status(fine, could_not), status(twice, could_not)] == [0, 1, 3, 1]
    forks = could_not.model_copy(update={"config": ap.PipelineConfig(loader=Wrapped(use_multiprocessing=True))})
    assert [status(fine, forks), status(fine, forks, could_not), status(forks)] == [0, 3, 3]


def test_what_trials_warn_of_is_said_once(autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def warns(runner: supervise.TrialRunner, **options: object) -> Verification:
        for _ in range(2):
            runner.on_event(Log(text="3 files are left out."))
        return Verification(agreements=())

    def fails(runner: supervise.TrialRunner) -> NoReturn:
        warns(runner)
        raise WorkloadError("It ends here.")

    monkeypatch.setattr(verifying, "verify", warns)
    assert autopipe("verify", "train.py:workload").err == "warning: 3 files are left out.\n"
    monkeypatch.setattr(searching, "description", fails)
    said = autopipe("measure", "train.py:workload").err
    assert said == "warning: 3 files are left out.\nerror: It ends here.\n"


# ---------------------------------------------------------------- eject

TALKS = """
import autopipe as ap

print("which importing it prints")


def dark(image):
    print("which an op prints")
    return image // 2


workload = ap.Workload(data=ap.ImageFolder("photos"), ops=[ap.Decode(), ap.Resize(4, 4), ap.Map(dark)], batch_size=2)
"""


@pytest.fixture
def talks(home: Path) -> str:
    """A workload that prints."""
    (home / "talks.py").write_text(TALKS)
    return "talks.py:workload"


def test_stdout_holds_the_code_alone_whatever_the_workload_prints(talks: str, autopipe: Autopipe) -> None:
    ended = autopipe("eject", "--to", "keras", "--workload", talks)
    assert ended.status == 0, ended.err
    compile(ended.out, "plain.py", "exec")
    assert "prints\n" not in ended.out
    assert "which an op prints\n" in ended.err


def test_what_ops_print_is_not_in_a_document(talks: str, autopipe: Autopipe) -> None:
    ended = autopipe("verify", "--files", "--json", talks)
    assert (ended.status, ended.out[:1], ended.out[-2:]) == (0, "{", "}\n")
    assert "which an op prints\n" in ended.err


def test_a_folder_for_the_code_is_not_told_the_artifacts_name(talks: str, autopipe: Autopipe) -> None:
    error = autopipe("eject", "--to", "keras", "--workload", talks, "--out", "photos").refused()
    assert error.splitlines()[-1] == "hint: Name a file in this folder: photos/plain_pipeline.py"
