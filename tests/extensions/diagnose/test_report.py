"""What is said of a training that was watched, and the code that is given with it."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

import autopipe
from autopipe.extensions.diagnose import child as onlook
from autopipe.extensions.diagnose import watched as training
from tests.extensions.diagnose.test_watched import watched


def test_a_training_that_waits_is_told_by_how_much_and_what_is_next() -> None:
    seen = watched(alone_images_per_second=270.0, waiting_seconds=6.3)
    assert training.sentence(seen) == (
        "63% of the time waits for data: up to 2.7x. `autopipe tune` or `ap.wrap` is the next step."
    )


def test_a_model_that_is_the_limit_is_told_so_with_what_its_augmentation_takes() -> None:
    assert training.sentence(watched()).endswith("nothing to gain from how its data are made.")
    seen = watched(augmentation=("RandomFlip",), without_augmentation_images_per_second=150.0)
    assert training.sentence(seen).endswith(
        "its own augmentation takes 30% of its time, which workers could do instead."
    )
    assert ("augmentation", "RandomFlip in the model: 28.6 ms of its 95.2 ms a step (30%)") in training.rows(seen)
    assert training.to_paste(seen) is None


def test_what_autopipe_feeds_has_a_workload_already() -> None:
    feed = type("Feed", (), {"__module__": "autopipe.frameworks"})()  # as a trainer's, without Keras
    data = onlook.kind_of_data(feed)
    assert ("data", "autopipe (jax)") in training.rows(watched(data=data))
    waits = watched(alone_images_per_second=270.0, waiting_seconds=6.3, data=data)
    assert training.to_paste(waits) is None
    assert "wrap" not in training.sentence(waits)


@pytest.mark.parametrize(
    "data", ["tf.data.Dataset", "keras.utils.PyDataset", "torch DataLoader", "arrays", "a generator", None]
)
def test_the_code_to_paste_is_python_on_public_names(data: str | None) -> None:
    code = training.to_paste(watched(alone_images_per_second=270.0, waiting_seconds=6.3, data=data))
    assert code is not None
    nodes, told = list(ast.walk(ast.parse(code))), set(re.findall(r"\w+", " ".join(re.findall(r"#.*", code))))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert names
    assert {node.id for node in nodes if isinstance(node, ast.Name)} - told == {"ap"}  # what it needs is told
    assert names <= set(autopipe.__all__)
    assert ("wrap" in names) == (data != "arrays")
    assert ('multiprocessing_context="forkserver"' in code) == (data == "torch DataLoader")


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"alone_images_per_second": 300.0}, "65% of the time goes because steps take longer than they do alone"),
        ({"alone_images_per_second": 300.0, "between_seconds": 6.0}, "60% of the time goes between steps"),
        ({"alone_images_per_second": None, "waiting_seconds": 5.0}, "50% of the time waits for data; what the model"),
    ],
)
def test_other_causes_are_named(figures: dict[str, Any], said: str) -> None:
    assert said in training.sentence(watched(**figures))


def test_what_was_left_out_and_warned_of_is_shown() -> None:
    lines = training.rows(watched(left_out=("CSVLogger",), warnings=("Only 3 steps were timed.",)))
    assert ("left out", "CSVLogger: may write files; `--callbacks` runs them") in lines
    assert ("note", "Only 3 steps were timed.") in lines
