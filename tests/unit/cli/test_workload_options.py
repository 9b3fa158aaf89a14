"""A workload without code, as it is written on a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.cli.workload_options import WorkloadOptions
from autopipe.errors import WorkloadError


@pytest.fixture
def images(tmp_path: Path) -> str:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            cv2.imwrite(str(tmp_path / "photos" / name / f"{number}.png"), np.zeros((4, 4, 3), np.uint8))
    return str(tmp_path / "photos")


@pytest.mark.parametrize("model", ["mobilenet-v2", "mobilenet v2", " mobilenet_v2", "mobilenet.v2"])
def test_a_models_name_may_be_written_as_elsewhere(images: str, model: str) -> None:
    named = WorkloadOptions(images=images, model=model, batch_size=2).chosen().named
    assert named is not None
    assert named.model == "mobilenet_v2"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "models/mine.keras"}, "`--model` cannot be 'models/mine.keras': .* Such as mobilenet_v2"),
        ({"model": ""}, "`--model` cannot be ''"),
        ({"batch_size": 2_000_000}, "`--batch-size` cannot be 2000000: input should be less than or equal to 1048576"),
        ({"images": "photos\nof mine"}, "`--images` cannot be '.*photos.*of mine'"),
    ],
)
def test_what_an_artefact_cannot_hold_is_named_by_its_option(images: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        WorkloadOptions(**{"images": images, **options}).chosen()


def test_what_is_not_said_of_a_folder_of_images_is_as_usual(images: str) -> None:
    named = WorkloadOptions(images=images, batch_size=2).chosen().named
    assert named is not None
    assert (named.model, named.image_size, named.batch_size) == ("mobilenet_v2", 224, 2)


@pytest.mark.parametrize("options", [{"batch_size": 32}, {"image_size": 224}, {"model": "mobilenet_v2"}])
def test_a_workload_that_says_itself_what_it_trains_takes_no_options_of_images(options: dict[str, Any]) -> None:
    option = f"--{next(iter(options)).replace('_', '-')}"
    with pytest.raises(WorkloadError, match=f"`{option}` goes with `--images`: `train.py:workload` says itself"):
        WorkloadOptions(workload="train.py:workload", **options).chosen()
