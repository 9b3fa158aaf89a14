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
