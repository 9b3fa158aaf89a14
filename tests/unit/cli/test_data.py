"""`autopipe convert`, `doctor --data`, `verify` and `eject --to`, which run in the process of the command: here."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe import again
from autopipe.artifact import verifying
from autopipe.measure.outcome import Agreement, Verification
from autopipe.measure.trial import supervise, workload_import
from autopipe.measure.trial.child import Log
from autopipe.pipeline.assembly import make_loader
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search import searching
from autopipe.workload.ops.decode import decode
from tests.unit.cli.conftest import Autopipe, Patch, photos

TRAIN = """
import autopipe as ap
workload = ap.Workload(data={data}, ops=[ap.Decode(), ap.Resize(16, 16), ap.RandomFlip()], batch_size=2)
"""
WORKLOAD = "train.py:workload"


@pytest.fixture
def home(here: Path, cache: Path) -> Path:
    """The working directory, with two classes of four images, and a workload of them."""
    (here / "train.py").write_text(TRAIN.format(data="ap.ImageFolder('photos')"))
    return photos(here / "photos").parent


def refused(autopipe: Autopipe, *arguments: object) -> str:
    error = autopipe(*arguments).refused()
    assert error.startswith("error: ")
    return error


def test_parts_are_written_apart_and_joined_in_a_folder_that_is_named_as_it_is(home: Path, autopipe: Autopipe) -> None:
    convert = "convert", WORKLOAD, "--out", "set [final]"
    for part in ("0/2", "1/2"):
        said = autopipe(*convert, "--shard", part).err
        assert f"next      when every part is written: {again.autopipe(*convert)}\n" in said
    assert "wrote     0 samples to set [final] in" in autopipe(*convert).err
    # A folder of images needs no code and may be smaller than a batch.
    assert "wrote     8 samples" in autopipe("convert", "--images", "photos", "--image-size", 16).err


@pytest.mark.parametrize(("option", "keep"), [("--to=array", "array"), ("--cut=1", "array:1")])
def test_it_writes_where_loaders_look(
    home: Path, autopipe: Autopipe, monkeypatch: Patch, option: str, keep: str
) -> None:
    named = f"{home / WORKLOAD}"
    monkeypatch.chdir("/")
    said = autopipe("convert", named, option, "--verify").done()
    assert f"wrote     8 samples to {home}/converted/{keep.replace(':', '-')} in" in said
    assert "verified  every file, and 8 samples against the source" in said
    if keep == "array":
        assert "keeps     samples after 2 ops: 6.1 KiB" in said  # 8 times 16 x 16 x 3 and a label of 8 bytes
        assert "or        samples after 1 op: 56.3 KiB  (--cut 1)" in said
    monkeypatch.chdir(home.parent)
    made, files = workload_import.load_workload(named), ap.PipelineConfig(loader=ap.Threads(workers=1))
    with make_loader(made, files) as one, make_loader(made, files.model_copy(update={"keep": keep})) as other:
        for batch, kept in zip(one.epoch(0), other.epoch(0), strict=True):
            np.testing.assert_equal(tuple(kept), tuple(batch))


WRONG: list[tuple[tuple[str, ...], str]] = [
    ((WORKLOAD, "--to", "aray"), "Did you mean `array`?"),
    ((WORKLOAD, "--to", "parquet"), "`to` must be a form that is written, one of array, tfrecord"),
    ((WORKLOAD, "--cut", "0"), "The form array keeps these samples after 1 or 2 of the first ops, but got 0"),
    ((WORKLOAD, "--by", "nobody=here", "--shard", "0/2"), "`by` writes all parts, but `shard` asks for one"),
    ((WORKLOAD, "--by", "nobody=here"), "`by` must be NAME=ADDRESS with the name of an extension"),
    ((WORKLOAD, "--out", "photos"), "must hold nothing else, but `photos` has 2 other files"),
    (("train.py:worklaod",), "Did you mean `workload`?"),
    ((), "A workload must be given"),
    ((WORKLOAD, "--images", "photos"), "`--images`, not both, but got train.py:workload and photos"),
    (("unread.py:workload",), "NameError"),
    (("--images", "s3://me:hunter2@bucket/photos"), "must not hold a user name or password"),
]


def test_wrong_options_are_named(home: Path, autopipe: Autopipe) -> None:
    (home / "unread.py").write_text(TRAIN.format(data="photos"))
    for arguments, said in WRONG:
        error = refused(autopipe, "convert", *arguments)
        assert (said in error, "hunter2" in error) == (True, False)


def test_bad_data_is_named(home: Path, autopipe: Autopipe) -> None:
    (home / "photos" / "emu").mkdir()
    shutil.copy(home / "photos" / "cat" / "0.png", home / "photos" / "emu")
    assert autopipe("convert", WORKLOAD, "--out", "one").done().startswith("warning: Only one image is in `emu`")
    file = home / "photos" / "cat" / "1.jpg"
    file.write_bytes(file.read_bytes()[:-200])
    assert "cat/1.jpg" in autopipe("convert", WORKLOAD).refused()
    shutil.rmtree(home / "photos")
    assert "photos` does not exist." in refused(autopipe, "convert", "--images", "photos")


def test_the_doctor_counts_progressive_files_and_prints_what_rewrites_them(home: Path, autopipe: Autopipe) -> None:
    ended = autopipe("doctor", "--data", "photos")
    assert "progressive JPEG none of 8 images" in " ".join(ended.out.split())
    assert "next" not in ended.out
    assert "`photo` does not exist. Did you mean `photos`?" in refused(autopipe, "doctor", "--data", "photo")
    assert "nowhere.py` is not a file" in refused(autopipe, "doctor", "--script", "nowhere.py")
    slow = (home / "photos").rename(home / "my {} photos")
    for path in slow.rglob("*.jpg"):
        cv2.imwrite(str(path), decode(path.read_bytes(), 3), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])
    ended = autopipe("doctor", "--data", slow)
    assert "progressive JPEG 4 of 8 images. They take 1.5 to 3 times" in " ".join(ended.out.split())
    label, line = ended.out.splitlines()[-1].split(maxsplit=1)
    found = json.loads(autopipe("doctor", "--data", slow, "--json").out)["data"]
    assert (label, found) == ("next", {"files": 8, "looked_at": 8, "progressive": 4})
    if shutil.which("jpegtran") is None:
        pytest.skip("the command needs jpegtran")
    damaged = Path("cat", "1.jpg")
    (slow / damaged).write_bytes((slow / damaged).read_bytes()[:-200])
    before = {path.relative_to(slow): path.read_bytes() for path in slow.rglob("*.*g")}
    subprocess.run(line, shell=True, cwd="/", capture_output=True, check=False)  # a damaged file has it end with 123
    after = {name: (slow.with_name(f"{slow.name}-baseline") / name).read_bytes() for name in before}
    assert {name: (slow / name).read_bytes() for name in before} == before
    assert after.pop(damaged) == before[damaged]
    for name, data in after.items():
        assert not ap.Decode.is_progressive(data)
        np.testing.assert_array_equal(decode(data, 3), decode(before[name], 3))


def damage(path: Path, at: bytes) -> None:
    data = path.read_bytes()
    middle = (data.index(at) + len(data)) // 2
    path.write_bytes(data[:middle] + bytes(range(100, 116)) + data[middle + 16 :])


def test_every_damaged_file_is_listed_with_its_reason_and_the_command_fails(home: Path, autopipe: Autopipe) -> None:
    dogs = home / "photos" / "dog"
    verify = "verify", "--files", "--images", home / "photos", "--batch-size", 2
    (odd := dogs / os.fsdecode(b"caf\xe9.jpg")).write_bytes(b"")  # a name that is no text
    bad, _, advice = autopipe(*verify).out.splitlines()
    assert ("dog/caf\\udce9.jpg" in bad, 'on_bad_sample="skip"' in advice) == (True, True)
    ended = autopipe(*verify, "--json")
    found = json.loads(ended.out)
    assert (ended.status, found["samples"], len(found["bad"])) == (1, 9, 1)
    assert "dog/caf\\udce9.jpg" in found["bad"][0]["name"]
    odd.unlink()
    damage(home / "photos" / "cat" / "1.jpg", b"\xff\xda")
    damage(home / "photos" / "cat" / "0.png", b"IDAT")
    (dogs / "2.png").write_bytes(b"")
    (dogs / "3.jpg").unlink()
    os.mkfifo(dogs / "target")
    (dogs / "3.jpg").symlink_to("target")
    ended = autopipe(*verify)
    *damaged, verified, advice = ended.out.splitlines()
    reasons = {"cat/0.png": "cannot decode the image", "cat/1.jpg": "the JPEG is damaged"}
    reasons |= {"dog/2.png": "is empty", "dog/3.jpg": "must be a regular file"}
    for line, (name, reason) in zip(damaged, reasons.items(), strict=True):
        assert line.startswith(f"bad       {home / 'photos' / name}: ")
        assert reason in line
    assert (ended.status, verified) == (1, "verified  8 samples: 4 cannot be used")
    assert "more than the 1 %" in advice


def test_a_wrapped_dataset_is_refused(home: Path, autopipe: Autopipe) -> None:
    (home / "train.py").write_text(
        "import autopipe as ap, numpy as np\n"
        "class Data:\n    def __len__(self): return 2\n    def __getitem__(self, number): return np.zeros((2, 4))\n"
        "workload = ap.wrap(lambda workers=0: Data(), model=None, parameters={'workers': [0]})\n"
    )
    assert "reads its own files" in refused(autopipe, "verify", "--files", WORKLOAD)


def test_what_could_not_run_has_an_exit_code_of_its_own(autopipe: Autopipe, monkeypatch: Patch) -> None:
    def status(*agreements: Agreement) -> int:
        def verify(runner: supervise.TrialRunner, **_: object) -> Verification:
            assert runner.launch.simulate is not None  # batches are compared without the workload's model
            return Verification(agreements=agreements, compared=False)

        monkeypatch.setattr(
            verifying, "verify", verify
        )  # a real one takes half a minute: README's is in test_readme.py
        return autopipe("verify", WORKLOAD).status

    config = ap.PipelineConfig(loader=ap.Threads(workers=1))
    could_not = Agreement(config=config, digest="", samples=0, message="it forks")
    twice = Agreement(config=config, digest="ab", samples=9, repeated=3)
    fine = Agreement(config=config, digest="ab", samples=9)
    assert [status(fine), status(fine, twice), status(fine, could_not), status(twice, could_not)] == [0, 1, 3, 1]
    forks = could_not.model_copy(update={"config": ap.PipelineConfig(loader=Wrapped(use_multiprocessing=True))})
    assert [status(fine, forks), status(fine, forks, could_not), status(forks)] == [0, 3, 3]


def test_what_trials_warn_of_is_said_once(autopipe: Autopipe, monkeypatch: Patch) -> None:
    def warns(runner: supervise.TrialRunner, **options: object) -> Verification:
        for _ in range(2):
            runner.on_event(Log(text="3 files are left out."))
        return Verification(agreements=())

    def fails(runner: supervise.TrialRunner) -> NoReturn:
        warns(runner)
        raise ap.WorkloadError("It ends here.")

    monkeypatch.setattr(verifying, "verify", warns)
    assert autopipe("verify", WORKLOAD).err == "warning: 3 files are left out.\n"
    monkeypatch.setattr(searching, "description", fails)
    assert autopipe("measure", WORKLOAD).err == "warning: 3 files are left out.\nerror: It ends here.\n"


TALKS = """
import autopipe as ap
print("which importing it prints")

def dark(image):
    print("which an op prints")
    return image // 2

workload = ap.Workload(data=ap.ImageFolder("photos"), ops=[ap.Decode(), ap.Resize(4, 4), ap.Map(dark)], batch_size=2)
"""


def test_stdout_holds_the_result_alone_whatever_the_workload_prints(home: Path, autopipe: Autopipe) -> None:
    (home / "talks.py").write_text(TALKS)
    eject = "eject", "--to", "keras", "--workload", "talks.py:workload"
    ended = autopipe(*eject)
    assert ended.status == 0, ended.err
    compile(ended.out, "plain.py", "exec")
    assert "prints\n" not in ended.out
    assert "which an op prints\n" in ended.err
    ended = autopipe("verify", "--files", "--json", "talks.py:workload")
    assert (ended.status, ended.out[:1], ended.out[-2:]) == (0, "{", "}\n")
    assert "which an op prints\n" in ended.err
    error = autopipe(*eject, "--out", "photos").refused()
    assert error.splitlines()[-1] == "hint: Name a file in this folder: photos/plain_pipeline.py"
