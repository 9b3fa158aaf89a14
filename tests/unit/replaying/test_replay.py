"""`benchmarks/replay.py`: what it prints, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import replay

from autopipe.search import library
from tests.unit.replaying.conftest import record, surface


@dataclasses.dataclass(frozen=True)
class Ended:
    status: object
    out: str
    err: str


Replayed = Callable[..., Ended]


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Replayed:
    """Run `replay.py ARGUMENTS` here, and return how it ended."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["replay.py", *map(str, arguments)])
        status: object = 0
        try:
            replay.main()
        except SystemExit as end:
            status = end.code
        said = capsys.readouterr()
        return Ended(status, said.out, said.err)

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    machine = surface(cores=2)
    record(tmp_path / "table.jsonl", library.load("quick", {"cores": 2, "gpus": 0}), machine, "quick")
    return tmp_path / "table.jsonl"


def test_replay_shows_the_regret_of_each_sampler(replayed: Replayed, recorded: Path) -> None:
    ended = replayed(recorded, "--sampler", "surrogate", "--sampler", "random", "--seeds", 2, "--trials", 8)
    assert ended.status == 0
    head, *rows = ended.out.splitlines()
    assert head.split() == ["sampler", "after", "5", "after", "8"]
    assert [row.split()[0] for row in rows] == ["surrogate", "random"]


def test_replay_on_other_machines_compares_a_tune_from_nothing_with_a_retune(
    replayed: Replayed, recorded: Path
) -> None:
    ended = replayed(recorded, "--other-machines", 2, "--trials", 8)
    assert ended.status == 0
    assert [line.split("  ")[0] for line in ended.out.splitlines()[1:3]] == ["tune from nothing", "retune"]
    assert "where a tune from nothing is after 8 trials" in ended.out


def test_replay_as_json_has_the_regret_after_every_trial(replayed: Replayed, recorded: Path) -> None:
    ended = replayed(recorded, "--sampler", "random", "--seeds", 2, "--trials", 6, "--json")
    document = json.loads(ended.out)
    assert list(document) == ["random"]
    assert len(document["random"]["median"]) == len(document["random"]["worst"]) == 6


def test_replay_shows_how_good_the_winners_of_proofs_are(replayed: Replayed, recorded: Path) -> None:
    common = (recorded, "--sampler", "surrogate", "--seeds", 2, "--trials", 8, "--proof")
    regrets = json.loads(replayed(*common, "--json").out)["winners"]
    assert len(regrets) == 2
    assert all(0.0 <= each < 0.2 for each in regrets)
    assert "Winners of a proof are" in replayed(*common).out


def test_replay_searches_a_part_of_a_table(replayed: Replayed, recorded: Path) -> None:
    common = (recorded, "--sampler", "random", "--seeds", 2, "--trials", 6, "--json")
    best = [json.loads(replayed(*common, *only).out)["random"]["median"][-1] for only in ((), ("--only", "keep=none"))]
    assert best[0] != best[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "keep=nun"), "nun"),
        (("--sampler", "randon"), "Did you mean `random`?"),
        (("--space", "quik"), "Did you mean `quick`?"),
    ],
)
def test_replay_names_the_near_one(replayed: Replayed, recorded: Path, arguments: tuple[str, ...], said: str) -> None:
    ended = replayed(recorded, *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


def test_replay_of_no_table_is_refused(replayed: Replayed, recorded: Path) -> None:
    assert "Did you mean `table.jsonl`?" in replayed(recorded.with_name("tabel.jsonl")).err
    recorded.write_text("{}\n")
    ended = replayed(recorded)
    assert ended.status == 2
    assert "is no header of a table" in ended.err
