"""Options in a file: where it is looked for, what wins, and what is wrong in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from autopipe.cli import main, options
from tests.unit.cli.conftest import Autopipe


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    return tmp_path


def refused(autopipe: Autopipe, *arguments: str) -> str:
    return autopipe("tune", "train.py:workload", *arguments).refused()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[tool.autopipe.tune]\nbudget = "soon"\n'),
        ("autopipe.toml", '[tune]\nbudget = "soon"\n'),
        ("sub/autopipe.toml", '[tune]\nbudget = "soon"\n'),
    ],
)
def test_a_file_in_this_folder_or_above_holds_options_and_the_command_line_wins(
    autopipe: Autopipe, home: Path, file: str, text: str
) -> None:
    (home / file).write_text(text)
    assert "`budget` must be a duration such as 90s, 3m or 15ms, but got 'soon'" in refused(autopipe)
    assert "'later'" in refused(autopipe, "--budget", "later")


def test_the_nearest_file_counts_and_a_project_without_options_is_passed_over(autopipe: Autopipe, home: Path) -> None:
    (home / "autopipe.toml").write_text('[tune]\nbudget = "soon"\n')
    (home / "sub" / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert "'soon'" in refused(autopipe)
    (home / "sub" / "autopipe.toml").write_text('[tune]\nbudget = "near"\n')
    assert "'near'" in refused(autopipe)


def test_folders_that_cannot_be_looked_into_hold_no_options() -> None:
    assert options.settings_file(Path("/", "x" * 300)) == ("", {})  # as root one may look into all that there are


def test_more_output_tells_of_values_origins(autopipe: Autopipe, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "pyproject.toml"
    file.write_text('[tool.autopipe.tune]\nmax-memory = "8G"\nonly = "loader=threads"\nbudget = "soon"\n')
    monkeypatch.setenv("AUTOPIPE_VIRTUAL_DEVICES", "2")
    monkeypatch.setenv("AUTOPIPE_STORAGE", "postgresql://me:secret@host/db")
    said = refused(autopipe, "-v").splitlines()
    assert f"option    --max-memory 8G, from {file}, [tool.autopipe]" in said
    assert f"option    --only ['loader=threads'], from {file}, [tool.autopipe]" in said
    assert "option    --virtual-devices 2, from the environment" in said
    assert "option    --storage postgresql://me@host/db, from the environment" in said
    assert not any(line.startswith("option") for line in refused(autopipe).splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tune]\nbudgt = "2m"', "`tune` in {file} has no option `budgt`. Did you mean `budget`?"),
        ("[tune]\ntrials = 0", "`trials` of `tune` in {file} cannot be 0: "),
        ('[tune]\ntrials = "many"', "`trials` of `tune` in {file} cannot be 'many': "),
        ("[tune]\ntrials = true", "`trials` of `tune` in {file} cannot be True: "),
        ("[tune]\ntrials = 1.5", "`trials` of `tune` in {file} cannot be 1.5: "),
        ("[tune]\nfresh = 1", "`fresh` of `tune` in {file} cannot be 1: it is true or false."),
        ('[tune]\nmode = "serve"', "`mode` of `tune` in {file} cannot be 'serve': "),
        ('[tune]\nbudget = ["1m", "2m"]', "`budget` of `tune` in {file} cannot be"),
        ('tune = "2m"', "`tune` in {file} must be a table of options, but got '2m'."),
        ('[tuen]\nbudget = "2m"', "{file} has options of `tuen`, which is no command. Did you mean `tune`?"),
        ("[tune", "`{file}` cannot be read: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_it(autopipe: Autopipe, home: Path, text: str, said: str) -> None:
    file = home / "autopipe.toml"
    file.write_text(text)
    assert refused(autopipe).startswith(f"error: {said.format(file=file)}")


def test_every_command_takes_its_options_from_a_file(autopipe: Autopipe, home: Path) -> None:
    (home / "autopipe.toml").write_text("[doctor]\nas_json = true\n")
    assert "`doctor`" in autopipe("doctor").refused()
    (home / "autopipe.toml").write_text("[doctor]\njson = true\n")
    assert autopipe("doctor").out.startswith("{")


def test_a_folder_that_was_removed_is_told_of(autopipe: Autopipe, home: Path) -> None:
    (home / "sub").rmdir()
    assert refused(autopipe).startswith("error: The folder that this shell is in was removed.")


SIX = ["--budget", "--images", "--out", "--baseline", "--epochs", "--only"]


def test_the_help_of_tune_has_at_most_eighteen_options_and_the_six_most_used_stand_first(autopipe: Autopipe) -> None:
    lines = autopipe("tune", "--help").out.partition("Options:")[2].splitlines()
    shown = [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]
    assert shown[:6] == SIX
    assert len(shown) <= 18


def test_what_the_help_leaves_out_is_listed_on_the_page_of_reference() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference.md").read_text().partition("## Rare options")[2]
    commands: Any = typer.main.get_command(main.application())
    hidden = {each.opts[0] for command in commands.commands.values() for each in command.params if each.hidden}
    assert hidden == set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE))
