"""SECURITY.md, rule by rule: what somebody who can edit `autopipe.json`, and nothing else, can have run."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.artifact import codegen
from autopipe.artifact.artifact import stored
from autopipe.artifact.schema import FileReference
from autopipe.measure import fingerprint
from tests.fakes.commands import TRAIN, forgotten
from tests.fakes.profiles import of_this_machine

EVIL = """
def main():
    open(__file__.replace("evil.py", "ran"), "w").close()
main()
"""


def use_module(artifact: Path) -> None:
    runpy.run_path(str(artifact.with_name("tuned_pipeline.py")))["make_loader"]().close()


def use_load(artifact: Path) -> None:
    ap.load(artifact).make_loader().close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workload with functions beside it, its artifact and module in tuned/, and a file to be tricked into running."""
    home = tmp_path / "home"
    home.mkdir()
    with forgotten(tmp_path):
        of_this_machine(home, below="tuned", hardware=fingerprint.detect())
    functions = "\ndef make():\n    return workload\n\ndef danger():\n    open(__file__ + '.ran', 'w').close()\n"
    (home / "train.py").write_text(TRAIN + functions)
    for place in (home, home / "tuned"):
        (place / "evil.py").write_text(EVIL)
    monkeypatch.chdir(home)
    with forgotten(tmp_path):
        yield home


def _edit(project: Path, workload: dict[str, Any] | None) -> Path:
    """Do what the attacker can: change the workload that the artifact names."""
    path = project / "tuned" / "autopipe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "workload": workload}))
    return path


def _ran(project: Path) -> list[str]:
    return [path.name for path in project.rglob("*ran")]


WORKLOAD = {"kind": "file", "path": "../train.py", "attribute": "workload"}
HOSTILE = [
    {**WORKLOAD, "path": "../evil.py"},
    {**WORKLOAD, "path": "evil.py", "attribute": "main"},
    {**WORKLOAD, "attribute": "danger"},
    {"kind": "module", "module": "pdb", "attribute": "main"},
    {"kind": "module", "module": "evil", "attribute": "main"},
    {"kind": "images", "path": "..", "model": "VGG16"},
]


@pytest.mark.parametrize("workload", HOSTILE, ids=lambda each: f"{each['kind']}-{each.get('attribute')}")
@pytest.mark.parametrize("use", [use_module, use_load, stored])
def test_no_artifact_chooses_what_a_module_or_command_runs(project: Path, workload: dict[str, Any], use: Any) -> None:
    path = _edit(project, workload)
    with pytest.raises(ap.ArtifactError, match="One of the two was changed") as caught:
        use(path)
    assert ("autopipe repoint" in str(caught.value.hint), _ran(project)) == (True, [])


def test_where_the_workload_once_lay_is_the_codes_matter_too(project: Path) -> None:
    path = _edit(project, {**WORKLOAD, "origin": str(project / "evil.py")})
    (project / "train.py").unlink()
    with pytest.raises(ap.ArtifactError, match="is gone"):
        use_load(path)
    assert _ran(project) == []


@pytest.mark.parametrize(
    ("workload", "error", "said"),
    [
        (HOSTILE[0], ap.ArtifactError, "must stay inside its folder"),
        (HOSTILE[3], ap.ArtifactError, "beside it names the same"),
        (HOSTILE[5], ap.ArtifactError, "must stay inside its folder"),
        ({**HOSTILE[2], "path": "train.py"}, ap.WorkloadError, "what an artifact alone names is not called"),
    ],
)
def test_without_a_module_files_of_the_own_folder_are_named_and_no_function_is_called(
    project: Path, workload: dict[str, Any], error: type[Exception], said: str
) -> None:
    (project / "tuned" / "train.py").write_text((project / "train.py").read_text())
    path = _edit(project, workload)
    path.with_name("tuned_pipeline.py").unlink()
    with pytest.raises(error, match=said):
        use_load(path)
    assert _ran(project) == []


def test_a_function_that_the_module_names_is_called(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tune was of `train.py:make`: the user named it."""
    named = FileReference(path="../train.py", attribute="make")
    path = _edit(project, named.model_dump(exclude_none=True))
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(named, path.name))
    monkeypatch.chdir("/")
    use_module(path)
