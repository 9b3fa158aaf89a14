"""Commands over an artifact: show, merge, repoint, report, and what retune says at its end."""

import functools
import json
import threading
from pathlib import Path

import pytest

from autopipe import again
from autopipe.api import tuning
from autopipe.artifact import artifact as files
from autopipe.artifact import codegen, reference
from autopipe.artifact.schema import FileReference, ImagesReference, Profile
from autopipe.cli.output import use_beside
from autopipe.measure import fingerprint
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search import result, settings, study
from autopipe.search import space as spaces
from tests.fakes import damage, findings
from tests.fakes.commands import TRAIN
from tests.fakes.profiles import artifact, config, digest, hardware, profile
from tests.fakes.surface import Surface
from tests.unit.cli.conftest import Autopipe, Patch

HERE = fingerprint.detect()


def test_show_names_the_profile(autopipe: Autopipe, tmp_path: Path) -> None:
    def shown(*profiles: Profile) -> str:
        ended = autopipe("show", files.write(artifact(*profiles), tmp_path / "a.json"))
        assert ended.status == 0
        return " ".join(ended.out.split())

    both = shown(profile(hardware=hardware(cpu_model="Another")), profile(hardware=HERE))
    words = "profile 1 of 2 ", "profile 2 of 2 (used on this machine)", "note:"
    assert [each in both for each in words] == [True, True, False]
    only = "note: The artifact's only profile is not of a machine like this one. It is taken all the same."
    assert only in shown(profile())
    theirs = shown(profile(hardware=HERE, config={**config(), "loader": {"kind": "theirs"}}))
    assert "the package of its loader is missing" in theirs
    assert "note: The `config` of a profile cannot be used:" in theirs


def test_show_of_a_folder_lists_all_artifacts_in_and_below_it(autopipe: Autopipe, tmp_path: Path) -> None:
    one = files.write(artifact(profile(hardware=HERE), profile()), tmp_path / "one.json")
    (tmp_path / "other.json").write_text("{}")
    assert "profile 2 of 2" in autopipe("show", tmp_path).out  # the only one there
    (tmp_path / "deep").mkdir()
    two = files.write(artifact(), tmp_path / "deep" / "two.json")
    assert files.parse(autopipe("show", two, "--json").out.encode()) == artifact()
    assert len(autopipe("show", tmp_path).out.splitlines()) >= 4
    assert set(json.loads(autopipe("show", tmp_path, "--json").out)) == {str(one), str(two)}
    (tmp_path / "empty").mkdir()
    assert "There is no artifact in" in autopipe("show", tmp_path / "empty").refused()
    (tmp_path / "empty" / "autopipe.json").write_text("null")
    assert "autopipe.json` must hold a JSON object, but holds None" in autopipe("show", tmp_path / "empty").refused()


COMMANDS = ["show", "report", "check", "retune", "eject", "repoint {} train.py:workload", "merge {} --out c.json"]
NAMED = {"tuned": "tuned/autopipe.json", "tuned/other.json": "tuned/other.json"}
FOUND = ["tuned/autopipe.json", "autopipe.json"]  # where a tune was run, and beside the artifact


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_takes_an_artifact_or_its_folder_or_finds_it(autopipe: Autopipe, here: Path, command: str) -> None:
    (here / "tuned").mkdir()
    found = [] if command.startswith("merge") else [("", read) for read in FOUND]  # what is merged is always named
    for named, read in (*NAMED.items(), *found):
        Path(read).write_text('{"schema_version": 0}')  # of which every command says where it is
        line = command.format(named) if "{}" in command else f"{command} {named}"
        said = autopipe(*line.split()).refused().replace(f"{here}/", "")
        assert said.startswith(f"error: `{read}` has schema_version=0")
        Path(read).unlink()


def test_merge_unites_profiles_and_leads_to_the_workload_from_a_new_folder(autopipe: Autopipe, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (script := tmp_path / "train.py").touch()
    named = FileReference(path="../train.py", origin=str(script))
    one = files.write(artifact(profile(hardware=HERE), workload=named), tmp_path / "one" / "autopipe.json")
    two, out = files.write(artifact(), tmp_path / "b.json"), tmp_path / "new" / "tuned" / "autopipe.json"
    assert "with 2 profiles" in autopipe("merge", one.parent, two, "-o", out).done()
    merged = files.read(out)
    assert {each.hardware.cpu_model for each in merged.profiles} == {HERE.cpu_model, hardware().cpu_model}
    assert merged.workload == FileReference(path="../../train.py", origin=str(script))


def test_merge_refuses_two_workloads_and_a_folder_that_cannot_be_made(autopipe: Autopipe, tmp_path: Path) -> None:
    one = files.write(artifact(), tmp_path / "a.json")
    two = files.write(artifact(profile(workload=digest(batch_size=8))), tmp_path / "b.json")
    error = autopipe("merge", one, two, "-o", tmp_path / "c.json").refused()
    assert ("Only artifacts of one workload can be merged" in error, "batch size 32 and 8" in error) == (True, True)
    assert not (tmp_path / "c.json").exists()
    assert "cannot be written: Not a directory" in autopipe("merge", one, "--out", one / "autopipe.json").refused()


def test_merge_waits_for_whoever_writes_to_the_same_artifact(tmp_path: Path) -> None:
    out = files.write(artifact(), tmp_path / "a.json")
    other = files.write(artifact(profile(hardware=HERE)), tmp_path / "b.json")
    merging = threading.Thread(target=files.merge, args=([out, other], out))
    with files.alone(out):
        merging.start()
        merging.join(0.5)  # where it does not wait it ends in a few milliseconds
        assert merging.is_alive()
        files.write(artifact(profile(hardware=hardware(cpu_model="Third"))), out)
    merging.join(60)
    assert {each.hardware.cpu_model for each in files.read(out).profiles} == {"Third", HERE.cpu_model}


OLD = FileReference(path="../train.py", attribute="workload")


@pytest.fixture
def renamed(here: Path) -> Path:
    """The artifact of a `train.py` that is called `new.py` now."""
    (here / "tuned").mkdir()
    (here / "new.py").write_text(TRAIN.replace("workload =", "photos ="))
    path = here / "tuned" / "autopipe.json"
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(OLD, path.name))
    return files.write(artifact(profile(workload=digest(samples=256, batch_size=4)), workload=OLD), path)


def test_the_artifact_and_its_module_name_the_new_file(autopipe: Autopipe, renamed: Path, here: Path) -> None:
    said = autopipe("repoint", "tuned/autopipe.json", "new.py:photos").done()
    assert "wrote     tuned/autopipe.json and tuned/tuned_pipeline.py" in said
    named = FileReference(path="../new.py", origin=str(here / "new.py"), attribute="photos")
    assert (files.read(renamed).workload, reference.beside(renamed)) == (named, (True, named))


def test_images_that_were_moved_are_named_by_their_new_folder(autopipe: Autopipe, tmp_path: Path) -> None:
    moved = damage.in_classes(tmp_path / "moved", 4, (8, 8))
    path, gone = tmp_path / "autopipe.json", ImagesReference(path="photos", model="vgg16", batch_size=2)
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(gone, path.name))
    files.write(artifact(workload=gone), path)
    assert f"If they were moved: {again.autopipe('repoint', path, 'DIR')}. " in autopipe("eject", path).refused()
    autopipe("repoint", path, moved).done()
    named = gone.model_copy(update={"path": "moved"})
    assert (files.read(path).workload, reference.beside(path)) == (named, (True, named))


def test_a_module_of_the_users_own_is_left_and_another_workload_is_told(autopipe: Autopipe, renamed: Path) -> None:
    own = renamed.with_name("tuned_pipeline.py")
    own.write_text("# mine\n")
    said = autopipe("repoint", renamed, "new.py:photos").done()
    assert own.read_text() == "# mine\n"
    assert ("was added" in said, "batch size" in said) == (True, False)


def test_what_is_not_there_is_refused_and_nothing_is_written(autopipe: Autopipe, renamed: Path) -> None:
    before = renamed.read_text()
    assert "A workload must be named" in autopipe("repoint").refused()
    assert "named by a file or module and an attribute" in autopipe("repoint", renamed, "new.py").refused()
    assert "Did you mean `photos`?" in autopipe("repoint", renamed, "new.py:foto").refused()
    assert renamed.read_text() == before


SCRIPT = FileReference(path="train.py")


@functools.cache
def searched(*, fails: bool = False) -> result.Result:
    surface = Surface(cores=4, fails=lambda config: fails)
    space = spaces.load("quick", {"cores": 4, "gpus": 0})
    return study.run(space, surface, surface.facts(), settings.Settings(clock=surface.clock, trials=4)).result


def stored(folder: Path, **changes: object) -> tuple[Path, Profile]:
    """Write an artifact of this machine, and its module."""
    (folder / "train.py").touch()
    (folder / "tuned_pipeline.py").write_text(codegen.text_for(SCRIPT, "autopipe.json"))
    known = profile(hardware=HERE, **changes)
    return files.write(artifact(known, workload=SCRIPT), folder / "autopipe.json"), known


def retuned(autopipe: Autopipe, patch: Patch, done: tuning.Retuned, *arguments: object, status: int = 0) -> list[str]:
    """Return what is said of a retune that found this."""
    patch.setattr(tuning, "rerun", lambda *_, **__: done)
    ended = autopipe("retune", *arguments)
    assert ended.status == status, ended.err
    return ended.err.splitlines()


def found(known: Profile, *, converted: bool = False) -> tuning.Retuned:
    return tuning.Retuned(result=searched(), profile=known, converted=converted)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("simulated", [False, True])
def test_a_retune_says_what_is_new_and_next(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: Patch, *, same: bool, simulated: bool
) -> None:
    request = settings.Request(simulate=SimulatedAccelerator(0.01) if simulated else None)
    path, known = stored(tmp_path, request=request, workload=digest(model="fedcba9876543210"))
    winner = known if same else profile(hardware=HERE, request=request, workload=known.workload, key="another")
    said = retuned(autopipe, monkeypatch, found(winner), path)
    trains = use_beside(path, winner)
    assert ("make_trainer" in trains) is not simulated
    assert [f"{kind} configuration" in "".join(said) for kind in ("a new", "the same")] == [not same, same]
    assert said[-2:] == [f"next      {trains}", f"          {again.autopipe('check', path)}"]


def test_a_retune_that_is_interrupted_says_how_to_go_on(autopipe: Autopipe, tmp_path: Path, monkeypatch: Patch) -> None:
    def early(*_: object, **__: object) -> tuning.Retuned:
        raise KeyboardInterrupt

    path, _ = stored(tmp_path)
    cut = result.Stop(reason=result.Reason.INTERRUPTED, message="Interrupted.")
    done = tuning.Retuned(result=searched(fails=True).model_copy(update={"stop": cut}))
    line = f"to go on  {again.autopipe('retune', path)}"
    assert line in retuned(autopipe, monkeypatch, done, path, "--fresh", status=130)
    monkeypatch.setattr(tuning, "rerun", early)
    ended = autopipe("retune", path, "--fresh")
    assert (ended.status, line in ended.err.splitlines()) == (130, True)


def test_samples_to_be_converted_first_are_told_of(autopipe: Autopipe, tmp_path: Path, monkeypatch: Patch) -> None:
    path, known = stored(tmp_path, config=config(keep="array"))
    convert = again.autopipe("convert", f"{tmp_path / 'train.py'}:workload", "--to", "array")
    line = f"before    {convert} --out {tmp_path / 'converted' / 'array'}"
    for converted, lines in ((False, [line]), (True, [])):
        said = retuned(autopipe, monkeypatch, found(known, converted=converted), path)
        assert [each for each in said if each.startswith("before")] == lines


@pytest.fixture
def tuned(here: Path) -> Path:
    (here / "tuned").mkdir()
    return files.write(artifact(findings.profile()), here / "tuned" / "autopipe.json").parent


@pytest.mark.parametrize("named", [(), ("tuned",)])
def test_a_report_is_written_beside_the_artifact(autopipe: Autopipe, tuned: Path, named: tuple[str, ...]) -> None:
    assert json.loads(autopipe("report", "--json", *named).out)["verdict"]
    assert not (tuned / "report.html").exists()
    assert autopipe("report", *named).done() == "wrote     tuned/report.html\n"
    assert (tuned / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((tuned / "report.json").read_text())["schema_version"] == 1


def test_what_cannot_be_written_is_refused(autopipe: Autopipe, tuned: Path) -> None:
    before = (tuned / "autopipe.json").read_text()
    for out, said in {
        "nowhere/report.html": "cannot be written",
        "mine.json": "\nhint: Name the page: mine.html\n",
        "tuned/autopipe.html": "`tuned/autopipe.json` is an artifact.\n\nhint: Give the page another name",
    }.items():
        assert said in autopipe("report", "--out", out).refused()
    assert ((tuned / "autopipe.json").read_text(), Path("mine.json").exists()) == (before, False)
