"""The table of conversions, and what is said of them."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console

from autopipe.core.config import PipelineConfig
from autopipe.core.value import Estimate
from autopipe.loaders.threads import Threads
from autopipe.reports import payback_table
from autopipe.search.conversions import Payback


def row(
    epochs: float | None = 3.25,
    *,
    overruled: bool = False,
    advice: bool = False,
    saved: float = 12.0,
    seconds: float = 30.0,
) -> Payback:
    return Payback(
        config=PipelineConfig(loader=Threads(workers=2), storage="array"),
        rate=Estimate(value=21_000.0, low=20_000.0, high=22_000.0),
        cut=2,
        convert_seconds=Estimate(value=seconds, low=0.9 * seconds, high=1.1 * seconds),
        bytes=3 * 2**30,
        free_bytes=50 * 2**30,
        saved_seconds=saved,
        epochs=epochs,
        overruled=overruled,
        advice=advice,
    )


def printed(shown: Payback, width: int) -> str:
    written = io.StringIO()
    Console(file=written, width=width).print(payback_table.table([shown]))
    return written.getvalue()


def line(shown: Payback) -> str:
    return " ".join(printed(shown, 140).splitlines()[-1].split())


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (row(), "array, 2 ops 21,000 27 to 33 s 3 GiB 50 GiB 12 s 3.2"),
        (row(seconds=600.0, saved=240.0), "array, 2 ops 21,000 9.0 to 11 min 3 GiB 50 GiB 4.0 min 3.2"),
        (row(None, saved=-1.0), "array, 2 ops 21,000 27 to 33 s 3 GiB 50 GiB nothing never"),
        (row(0.0), "array, 2 ops 21,000 27 to 33 s 3 GiB 50 GiB 12 s at once"),
    ],
)
def test_a_line_has_time_room_gain_and_epochs(shown: Payback, said: str) -> None:
    assert line(shown) == said


def test_in_eighty_columns_each_form_is_one_line_in_which_nothing_is_cut_off() -> None:
    config = PipelineConfig(loader=Threads(workers=2), storage="tfrecord")
    wide = row(0.0, seconds=9.9 * 60, saved=12.5 * 60)
    wide = dataclasses.replace(wide, config=config, bytes=321 * 2**20 + 9 * 2**16, free_bytes=99 * 2**30 + 2**29)
    head, below, only = printed(wide, 80).splitlines()
    assert only.split() == line(wide).split()
    assert "…" not in head + below + only


def test_an_interval_that_one_shard_does_not_show_is_not_made_up() -> None:
    once = dataclasses.replace(row(), convert_seconds=Estimate(value=30.0, low=30.0, high=30.0))
    assert "21,000 30 s 3 GiB" in line(once)


def test_the_row_that_the_rule_keeps_from_winning_is_named() -> None:
    (said,) = payback_table.sentences([row(overruled=True)], 2)
    assert said == (
        "threads(workers=2) storage=array would win by its 21,000 images/s, but its conversion pays after 3.2 epochs "
        "and the training takes 2."
    )
    assert payback_table.sentences([row()], 10) == []


def test_what_only_wants_the_users_leave_is_advice() -> None:
    (said,) = payback_table.sentences([row(1.3, advice=True, seconds=2.6)], None)
    assert said == (
        "As array: 21,000 images/s, 2.6 s to convert, pays after 1.3 epochs: `--convert` takes it, "
        "`--epochs N` weighs it."
    )
    (late,) = payback_table.sentences([row(None, advice=True)], None)
    assert "to convert, never pays" in late
    (early,) = payback_table.sentences([row(0.0, advice=True)], None)
    assert "to convert, pays at once" in early


def test_without_known_epochs_it_is_said_that_nothing_was_charged() -> None:
    (said,) = payback_table.sentences([row()], None)
    assert "conversions were not charged" in said
    assert payback_table.sentences([], None) == []


def test_the_document_is_json_with_null_for_never() -> None:
    (found,) = json.loads(json.dumps(payback_table.document([row(None)])))
    assert (found["storage"], found["cut"], found["epochs_to_pay"]) == ("array", 2, None)
    assert found["convert_seconds"]["value"] == 30.0
