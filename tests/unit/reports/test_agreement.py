from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from autopipe.measure.outcome import Agreement, Verification
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.reports import tables

FIRST = PipelineConfig(loader=Threads(workers=2))
OTHER = PipelineConfig(loader=TfData(num_parallel_calls=4, prefetch=16, read_ahead=128), cache="memory", finish="host")


def shown(*, compared: bool = True, **other: Any) -> list[str]:
    written = io.StringIO()
    found = Verification(
        agreements=(
            Agreement(config=FIRST, digest="ab", samples=256),
            Agreement(config=OTHER, **{"digest": "ab", "samples": 256, "largest_value": 255.0, **other}),
        ),
        compared=compared,
    )
    Console(file=written, width=80).print(tables.verification(found))
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_a_line_fits_a_terminal_of_80_columns_and_the_verdict_comes_last() -> None:
    lines = shown()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["is", "the", "first", "threads(workers=2)"]
    assert lines[2].startswith("same ")
    assert lines[-1] == "verdict   all 2 configurations give the same batches, over 256 samples."


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"missing": 3, "repeated": 1}, "other samples: 3 missing, 1 repeated"),
        ({"largest_difference": 51.0}, "other pixels, by up to 20.0%"),
        ({"message": "the targets differ"}, "the targets differ"),
    ],
    ids=["samples", "pixels", "targets"],
)
def test_what_does_not_agree_is_told_and_makes_the_verdict(other: dict[str, Any], said: str) -> None:
    lines = shown(**other)
    assert lines[2].startswith(said)
    assert "verdict   1 of 2 configurations do not give the same batches." in lines
    tells_what_to_do = any(
        line.startswith("next      functions of your own must take random numbers") for line in lines
    )
    assert tells_what_to_do == said.startswith("other")


def test_one_level_is_the_same() -> None:
    lines = shown(largest_difference=1.0, digest="cd")
    assert lines[2].startswith("within one level of 256")
    assert "all 2 configurations" in lines[-1]


def test_of_datasets_of_ones_own_only_repeated_samples_are_told() -> None:
    lines = shown(compared=False, repeated=1200)
    assert lines[1].startswith("0 of 256 came before")
    assert lines[2].startswith("1,200 of 256 came before")
    assert "1 of 2 configurations gave samples twice in an epoch" in " ".join(lines[-2:])
    assert "no sample came twice in the first 256 of an epoch" in " ".join(shown(compared=False)[-2:])


@pytest.mark.parametrize("compared", [True, False])
def test_what_could_not_run_is_no_difference(compared: bool) -> None:
    lines = " ".join(shown(compared=compared, message="no more than one worker", digest="", samples=0))
    assert "1 of 2 configurations could not run" in lines
    assert "do not give the same" not in lines
    assert "gave samples twice" not in lines
    found = Verification(agreements=(Agreement(config=FIRST, digest="", samples=0, message="no"),), compared=compared)
    written = io.StringIO()
    Console(file=written).print(tables.verification(found))
    assert "1 of 1 configurations could not run" in written.getvalue()
    assert tables.agrees(found)


def test_a_parameter_that_changes_what_is_trained_is_told_apart_from_repeated_samples() -> None:
    lines = " ".join(shown(compared=False, message="every epoch is the same"))
    assert "0 of 256 came before; every" in lines
    assert "1 of 2 configurations changed what is trained" in lines
    assert "gave samples twice" not in lines


def test_why_a_configuration_cannot_be_used_is_told_whole_and_leaves_room_for_which_it_is() -> None:
    why = "Workers must be importable, but `train` is not. Put what starts them under a main guard, " * 2
    lines = shown(message=why, digest="")
    assert max(map(len, lines)) <= 80
    assert len(lines) < 16
    assert [word for word in why.split() if word not in " ".join(lines)] == []
    assert sum("tfdata(" in line for line in lines) == 1
