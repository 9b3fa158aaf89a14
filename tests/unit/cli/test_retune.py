"""What `autopipe retune` says at its end. Whole retunes: tests/integration/test_cli_tune.py."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autopipe import again
from autopipe.api import retuning
from autopipe.cli.output import use
from autopipe.search import library, study
from autopipe.search.result import SearchResult
from autopipe.search.settings import Settings
from autopipe.tuned import artifact as files
from autopipe.tuned import codegen, fingerprint
from autopipe.tuned.request import Request, SimulatedStep
from autopipe.tuned.schema import FileReference, Profile
from tests.fakes.profiles import artifact, config, profile
from tests.fakes.surface import Surface
from tests.unit.api.test_unmeasured import Failing
from tests.unit.cli.conftest import Autopipe

NAMED = FileReference(path="train.py")


def searched(surface: Surface) -> SearchResult:
    space = library.load("quick", {"cores": 4, "gpus": 0})
    return study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=4))


def stored(folder: Path, **changes: object) -> tuple[Path, Profile]:
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
    done = retuning.Retuned(result=searched(Surface(cores=4)), profile=known, converted=converted)
    monkeypatch.setattr(retuning, "run", lambda *_, **__: done)
    ended = autopipe("retune", path, *options)
    assert ended.status == 0, ended.err
    return ended.err.splitlines()


@pytest.mark.parametrize("same", [False, True])
def test_only_a_configuration_that_was_not_there_before_is_called_new(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, same: bool
) -> None:
    path, known = stored(tmp_path)
    found = known if same else known.model_copy(update={"key": "another"})
    said = "\n".join(retuned(autopipe, monkeypatch, path, found))
    assert ("a new configuration" in said) is not same
    assert ("the same configuration" in said) is same


@pytest.mark.parametrize("simulated", [False, True])
def test_what_to_do_next_is_said_as_after_a_tune(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, simulated: bool
) -> None:
    request = Request(simulate=SimulatedStep(step_seconds=0.01) if simulated else None)
    path, known = stored(tmp_path, request=request)
    module = path.with_name("tuned_pipeline.py")
    module.write_text(codegen.text_for(NAMED, path.name))
    said = retuned(autopipe, monkeypatch, path, known)
    assert said[-2:] == [f"next      {use(module, simulated=simulated)}", f"          {again.autopipe('check', path)}"]


def test_without_a_module_for_the_artefact_there_is_none_to_train_with(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, known = stored(tmp_path)
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(NAMED, "another.json"))
    options = ("--workload", "my train.py:workload", "--allow-outside")
    said = retuned(autopipe, monkeypatch, path, known, *options)
    assert said[-1] == f"next      {again.autopipe('check', path, *options)}"


def test_samples_that_have_to_be_converted_first_are_told_of(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, known = stored(tmp_path, config=config(storage="array"))
    said = retuned(autopipe, monkeypatch, path, known)
    convert = again.autopipe("convert", f"{tmp_path / 'train.py'}:workload", "--to", "array")
    assert f"before    {convert} --out {tmp_path / 'converted' / 'array'}" in said


def test_samples_that_lie_converted_already_are_not(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, known = stored(tmp_path, config=config(storage="array"))
    said = retuned(autopipe, monkeypatch, path, known, converted=True)
    assert not any(line.startswith("before") for line in said)


@pytest.mark.parametrize("early", [True, False])
def test_a_retune_that_is_interrupted_says_how_to_go_on(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    done = retuning.Retuned(result=dataclasses.replace(searched(Failing()), interrupted=True))

    def run(*_: object, **__: object) -> retuning.Retuned:
        if early:
            raise KeyboardInterrupt
        return done

    path, _ = stored(tmp_path)
    monkeypatch.setattr(retuning, "run", run)
    ended = autopipe("retune", path, "--fresh")
    assert ended.status == 130
    assert f"to go on  {again.autopipe('retune', path)}" in ended.err.splitlines()
