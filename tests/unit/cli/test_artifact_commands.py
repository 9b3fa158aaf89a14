"""Commands over an artifact: show, merge, repoint, report, and what retune says at its end."""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path

import pytest

from autopipe import again
from autopipe.api import tuning
from autopipe.artifact import artifact as files
from autopipe.artifact import artifact as joining
from autopipe.artifact import codegen, reference
from autopipe.artifact.artifact import merge
from autopipe.artifact.schema import FileReference, ImagesReference, Profile
from autopipe.cli.output import use_beside
from autopipe.measure import fingerprint
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search import result, settings, study
from autopipe.search import space as spaces
from tests.fakes import findings, images
from tests.fakes.profiles import artifact, config, digest, hardware, profile
from tests.fakes.surface import Surface
from tests.fakes.workload_script import TRAIN
from tests.unit.cli.conftest import Autopipe

HERE = fingerprint.detect()


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        (
            [profile(hardware=hardware(cpu_model="Another")), profile(hardware=HERE)],
            ["profile 1 of 2 ", "profile 2 of 2 (used on this machine)"],
        ),
        (
            [profile()],
            ["note: The artifact's only profile is not of a machine like this one. It is taken all the same."],
        ),
        (
            [profile(hardware=HERE, config={**config(), "loader": {"kind": "theirs"}})],
            ["the package of its loader is missing", "note: The `config` of a profile cannot be used:"],
        ),
    ],
    ids=["of this machine", "of another", "of a loader that is not installed"],
)
def test_show_names_the_profile(autopipe: Autopipe, tmp_path: Path, profiles: list[Profile], said: list[str]) -> None:
    ended = autopipe("show", files.write(artifact(*profiles), tmp_path / "a.json"))
    shown = " ".join(ended.out.split())
    assert ended.status == 0
    assert [words for words in said if words not in shown] == []
    assert ("note:" in shown) is (len(profiles) == 1)


def test_show_as_json_is_the_artifact(autopipe: Autopipe, tmp_path: Path) -> None:
    path = files.write(artifact(), tmp_path / "a.json")
    assert files.parse(autopipe("show", path, "--json").out.encode()) == artifact()


def test_show_of_a_folder_lists_all_artifacts_in_and_below_it(autopipe: Autopipe, tmp_path: Path) -> None:
    one = files.write(artifact(profile(hardware=HERE), profile()), tmp_path / "one.json")
    (tmp_path / "other.json").write_text("{}")
    assert "profile 2 of 2" in autopipe("show", tmp_path).out  # the only one there
    (tmp_path / "deep").mkdir()
    two = files.write(artifact(), tmp_path / "deep" / "two.json")
    assert len(autopipe("show", tmp_path).out.splitlines()) >= 4
    assert set(json.loads(autopipe("show", tmp_path, "--json").out)) == {str(one), str(two)}
    (tmp_path / "empty").mkdir()
    assert "There is no artifact in" in autopipe("show", tmp_path / "empty").refused()
    (tmp_path / "empty" / "autopipe.json").write_text("null")
    assert "autopipe.json` must hold a JSON object, but holds None" in autopipe("show", tmp_path / "empty").refused()


COMMANDS = ["show", "report", "check", "retune", "eject", "repoint {} train.py:workload", "merge {} --out c.json"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("named", "read"),
    [
        ("tuned", "tuned/autopipe.json"),
        ("tuned/other.json", "tuned/other.json"),
        ("", "tuned/autopipe.json"),
        ("", "autopipe.json"),
    ],
    ids=["folder", "file", "where a tune was run", "beside the artifact"],
)
def test_a_command_takes_an_artifact_or_its_folder_or_finds_it(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, named: str, read: str
) -> None:
    if not named and command.startswith("merge"):
        pytest.skip("what is merged is always named")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned").mkdir()
    Path(read).write_text('{"schema_version": 0}')  # of which every command says where it is
    line = command.format(named) if "{}" in command else f"{command} {named}"
    said = autopipe(*line.split()).refused().replace(f"{tmp_path}/", "")
    assert said.startswith(f"error: `{read}` has schema_version=0")


def test_merge_unites_profiles_and_leads_to_the_workload_from_a_new_folder(autopipe: Autopipe, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "one").mkdir()
    named = FileReference(path="../train.py", origin=str(tmp_path / "train.py"))
    one = files.write(artifact(profile(hardware=HERE), workload=named), tmp_path / "one" / "a.json")
    two = files.write(artifact(), tmp_path / "b.json")
    out = tmp_path / "new" / "tuned" / "autopipe.json"
    ended = autopipe("merge", one.rename(one.with_name("autopipe.json")).parent, two, "-o", out)
    assert (ended.status, ended.out) == (0, ""), ended.err
    assert "with 2 profiles" in ended.err
    merged = files.read(out)
    assert {each.hardware.cpu_model for each in merged.profiles} == {HERE.cpu_model, hardware().cpu_model}
    assert merged.workload == FileReference(path="../../train.py", origin=str(tmp_path / "train.py"))


def test_merge_refuses_two_workloads_and_a_folder_that_cannot_be_made(autopipe: Autopipe, tmp_path: Path) -> None:
    one = files.write(artifact(), tmp_path / "a.json")
    two = files.write(artifact(profile(workload=digest(batch_size=8))), tmp_path / "b.json")
    error = autopipe("merge", one, two, "-o", tmp_path / "c.json").refused()
    assert "Only artifacts of one workload can be merged" in error
    assert "batch size 32 and 8" in error
    assert not (tmp_path / "c.json").exists()
    assert "cannot be written: Not a directory" in autopipe("merge", one, "--out", one / "autopipe.json").refused()


def test_merge_waits_for_whoever_writes_to_the_same_artifact(tmp_path: Path) -> None:
    out = files.write(artifact(), tmp_path / "a.json")
    other = files.write(artifact(profile(hardware=HERE)), tmp_path / "b.json")
    merging = threading.Thread(target=merge, args=([out, other], out))
    with joining.alone(out):
        merging.start()
        merging.join(0.5)  # where it does not wait it ends in a few milliseconds
        assert merging.is_alive()
        files.write(artifact(profile(hardware=hardware(cpu_model="Third"))), out)
    merging.join(60)
    assert {each.hardware.cpu_model for each in files.read(out).profiles} == {"Third", HERE.cpu_model}


OLD = FileReference(path="../train.py", attribute="workload")


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    """The artifact of a `train.py` that is called `new.py` now."""
    (tmp_path / "tuned").mkdir()
    (tmp_path / "new.py").write_text(TRAIN.replace("workload =", "photos ="))
    path = tmp_path / "tuned" / "autopipe.json"
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(OLD, path.name))
    return files.write(artifact(profile(workload=digest(samples=256, batch_size=4)), workload=OLD), path)


def test_the_artifact_and_its_module_name_the_new_file(
    autopipe: Autopipe, renamed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = autopipe("repoint", "tuned/autopipe.json", "new.py:photos")
    assert (ended.status, ended.out) == (0, "")
    assert "wrote     tuned/autopipe.json and tuned/tuned_pipeline.py" in ended.err
    named = FileReference(path="../new.py", origin=str(tmp_path / "new.py"), attribute="photos")
    assert files.read(renamed).workload == named
    assert reference.beside(renamed) == (True, named)


def test_images_that_were_moved_are_named_by_their_new_folder(autopipe: Autopipe, tmp_path: Path) -> None:
    moved = images.in_classes(tmp_path / "moved", 4, (8, 8))
    path, gone = tmp_path / "autopipe.json", ImagesReference(path="photos", model="vgg16", batch_size=2)
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(gone, path.name))
    files.write(artifact(workload=gone), path)
    command = again.autopipe("repoint", path, "DIR")
    assert f"If they were moved: {command}. " in autopipe("eject", path).refused()
    assert autopipe("repoint", path, moved).status == 0
    named = gone.model_copy(update={"path": "moved"})
    assert (files.read(path).workload, reference.beside(path)) == (named, (True, named))


def test_a_module_of_the_users_own_is_left_and_another_workload_is_told(autopipe: Autopipe, renamed: Path) -> None:
    own = renamed.with_name("tuned_pipeline.py")
    own.write_text("# mine\n")
    ended = autopipe("repoint", renamed, f"{renamed.parents[1] / 'new.py'}:photos")
    assert ended.status == 0
    assert own.read_text() == "# mine\n"
    assert "was added" in ended.err
    assert "batch size" not in ended.err


def test_what_is_not_there_is_refused_and_nothing_is_written(autopipe: Autopipe, renamed: Path) -> None:
    before = renamed.read_text()
    assert "A workload must be named" in autopipe("repoint").refused()
    assert "named by a file or module and an attribute" in autopipe("repoint", renamed, "new.py").refused()
    assert "Did you mean `photos`?" in autopipe("repoint", renamed, f"{renamed.parents[1] / 'new.py'}:foto").refused()
    assert renamed.read_text() == before


NAMED = FileReference(path="train.py")


@functools.cache
def searched(*, fails: bool = False) -> result.Result:
    surface = Surface(cores=4, fails=lambda config: fails)
    space = spaces.load("quick", {"cores": 4, "gpus": 0})
    return study.run(space, surface, surface.facts(), settings.Settings(clock=surface.clock, trials=4)).result


def stored(folder: Path, **changes: object) -> tuple[Path, Profile]:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").touch()
    known = profile(hardware=fingerprint.detect(), **changes)
    return files.write(artifact(known, workload=NAMED), folder / "autopipe.json"), known


def retuned(
    autopipe: Autopipe,
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    known: Profile,
    *options: str,
    converted: bool = False,
) -> list[str]:
    """Return what is said of a retune that wrote this profile."""
    done = tuning.Retuned(result=searched(), profile=known, converted=converted)
    monkeypatch.setattr(tuning, "rerun", lambda *_, **__: done)
    ended = autopipe("retune", path, *options)
    assert ended.status == 0, ended.err
    return ended.err.splitlines()


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("simulated", [False, True])
def test_a_retune_says_whether_the_configuration_is_new_and_what_to_do_next(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, same: bool, simulated: bool
) -> None:
    request = settings.Request(simulate=SimulatedAccelerator(0.01) if simulated else None)
    trained = digest(model="fedcba9876543210")
    path, known = stored(tmp_path, request=request, workload=trained)
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(NAMED, path.name))
    found = known if same else stored(tmp_path / "other", key="another", request=request, workload=trained)[1]
    said = retuned(autopipe, monkeypatch, path, found)
    trains = use_beside(path, found)
    assert ("make_trainer" in trains) is not simulated
    assert ("a new configuration" in "".join(said)) is not same
    assert ("the same configuration" in "".join(said)) is same
    assert said[-2:] == [f"next      {trains}", f"          {again.autopipe('check', path)}"]


def test_a_module_of_another_is_not_named(autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, known = stored(tmp_path)
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(NAMED, "another.json"))
    options = ("--workload", "my train.py:workload", "--allow-outside")
    said = retuned(autopipe, monkeypatch, path, known, *options)
    assert said[-1] == f"next      {again.autopipe('check', path, *options)}"


@pytest.mark.parametrize("early", [True, False])
def test_a_retune_that_is_interrupted_says_how_to_go_on(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    cut = result.Stop(reason=result.Reason.INTERRUPTED, message="Interrupted.")
    done = tuning.Retuned(result=searched(fails=True).model_copy(update={"stop": cut}))

    def run(*_: object, **__: object) -> tuning.Retuned:
        if early:
            raise KeyboardInterrupt
        return done

    path, _ = stored(tmp_path)
    monkeypatch.setattr(tuning, "rerun", run)
    ended = autopipe("retune", path, "--fresh")
    assert ended.status == 130
    assert f"to go on  {again.autopipe('retune', path)}" in ended.err.splitlines()


@pytest.mark.parametrize("converted", [False, True])
def test_samples_that_have_to_be_converted_first_are_told_of(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, converted: bool
) -> None:
    path, known = stored(tmp_path, config=config(keep="array"))
    said = retuned(autopipe, monkeypatch, path, known, converted=converted)
    convert = again.autopipe("convert", f"{tmp_path / 'train.py'}:workload", "--to", "array")
    line = f"before    {convert} --out {tmp_path / 'converted' / 'array'}"
    assert [each for each in said if each.startswith("before")] == ([] if converted else [line])


# ---------------------------------------------------------------- report


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tuned"
    folder.mkdir()
    files.write(artifact(findings.profile()), folder / "autopipe.json")
    return folder


@pytest.mark.parametrize("named", [(), ("tuned",)])
def test_a_report_is_written_beside_the_artifact(autopipe: Autopipe, tuned: Path, named: tuple[str, ...]) -> None:
    ended = autopipe("report", *named)
    assert (ended.status, ended.out) == (0, "")
    assert ended.err == "wrote     tuned/report.html\n"
    assert (tuned / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((tuned / "report.json").read_text())["schema_version"] == 1


def test_its_figures_are_printed_as_json_and_nothing_is_written(autopipe: Autopipe, tuned: Path) -> None:
    assert json.loads(autopipe("report", "--json").out)["verdict"]
    assert not (tuned / "report.html").exists()


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "nowhere/report.html"), "cannot be written"),
        (("--out", "mine.json"), "\nhint: Name the page: mine.html\n"),
        (("--out", "tuned/autopipe.html"), "`tuned/autopipe.json` is an artifact.\n\nhint: Give the page another name"),
    ],
)
def test_what_cannot_be_written_is_refused(autopipe: Autopipe, arguments: tuple[str, ...], said: str) -> None:
    before = Path("tuned/autopipe.json").read_text()
    assert said in autopipe("report", *arguments).refused()
    assert Path("tuned/autopipe.json").read_text() == before
    assert not Path("mine.json").exists()
