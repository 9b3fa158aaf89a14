"""What `Dali` says of itself without DALI: which workloads it cannot feed and why. What it does: installed/."""

import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.extensions.dali.loader import Dali
from autopipe.hardware import gpu
from autopipe.measure.facts import Impossible
from autopipe.pipeline.assembly import make_loader
from autopipe.search import feasible
from autopipe.search import space as spaces
from autopipe.workload.data import arrays, table
from autopipe.workload.ops.planner import make_plan
from tests.fakes.facts import facts
from tests.fakes.sources import Made

DALI = ap.PipelineConfig(loader=Dali(num_threads=2))
ANY_JPEG = ap.Decode(strict=False)


def workload(photos: Path, *ops: ap.Op, **changes: Any) -> ap.Workload:
    return ap.Workload(data=table.Table(photos / "labels.csv"), ops=[*ops, ap.Resize(8, 8)], batch_size=4, **changes)


@pytest.mark.parametrize(
    ("decode", "why"),
    [
        (ap.Decode(), r"damage inside a JPEG file.*Decode\(strict=False\)"),
        (ap.Decode(1, strict=False), r"Decode\(channels=1\) asks for grey"),
        (ap.Decode(strict=False, orientation="exif"), r'Decode\(orientation="exif"\)'),
        (ap.Decode(strict=False, reduce=True), r"Decode\(reduce=\.\.\.\)"),
        (ap.Decode(strict=False, dtype="uint16"), r"to 8 bits, and Decode\(dtype='uint16'\)"),
    ],
)
def test_what_dali_decodes_otherwise_is_left_out(photos: Path, tmp_path: Path, decode: ap.Decode, why: str) -> None:
    if decode.is_deep:
        cv2.imwrite(str(tmp_path / "a.png"), np.zeros((9, 9, 3), np.uint16))
        (tmp_path / "labels.csv").write_text("path,label\n" + "a.png,0\n" * 4)
    work = workload(tmp_path if decode.is_deep else photos, decode)
    left_out = Dali.impossible(make_plan(work))["loader", "dali"]
    with pytest.raises(ap.ConfigError, match=why) as caught:
        make_loader(work, DALI)
    assert left_out in caught.value.message


TWO = Made(8, lambda index: ({"left": np.zeros((8, 8, 3), np.uint8), "right": np.zeros((8, 8, 3), np.uint8)}, index))


@pytest.mark.parametrize(
    ("data", "why"),
    [(arrays.Arrays(np.zeros((8, 9, 9, 3), np.uint8)), "decodes image files"), (TWO, "samples have several parts")],
)
def test_samples_that_are_no_image_file_are_left_out_with_a_reason(data: Any, why: str) -> None:
    work = ap.Workload(data=data, ops=[ap.Resize(8, 8)], batch_size=4)
    assert why in Dali.impossible(make_plan(work))["loader", "dali"]
    with pytest.raises(ap.ConfigError, match=why):
        make_loader(work, DALI)


def test_it_says_what_would_run_and_how_pixels_differ() -> None:
    dali, on_a_card = Dali(num_threads=3, prefetch_queue_depth=4), Dali(num_threads=2, device="gpu")
    assert (dali.worker_count(), dali.buffered_batches()) == (3, 5)
    assert "one level of 256" in str(dali.pixels_differ())
    assert "never measured" in str(on_a_card.pixels_differ())


def test_ops_that_follow_do_not_matter_and_bad_samples_do(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ops in ([ANY_JPEG], [ANY_JPEG, ap.RandomCrop(20, 20)]):
        assert ("loader", "dali") not in Dali.impossible(make_plan(workload(photos, *ops)))
    with pytest.raises(ap.ConfigError, match="on_bad_sample"):  # DALI does not tell of all
        make_loader(workload(photos, ANY_JPEG, on_bad_sample="skip"), DALI)
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with pytest.raises(ap.MissingExtraError, match="the extra `dali` brings it"):
        make_loader(workload(photos, ANY_JPEG), DALI)


def test_a_card_that_is_not_there_is_told_and_its_settings_left(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "detect", lambda: ())
    monkeypatch.setattr(Dali, "missing", classmethod(lambda cls: None))
    work = workload(photos, ANY_JPEG)
    ruled_out = Dali.impossible(make_plan(work)).items()
    known = facts(impossible=[Impossible(parameter=name, value=value, reason=why) for (name, value), why in ruled_out])
    trimmed = feasible.trim(spaces.load("dali", {"cores": 2, "gpus": 0}).only("loader", ["dali"]), known)
    assert trimmed.space["dali.device"].values == ("cpu",)
    assert "dali.device gpu: no NVIDIA card is seen here" in trimmed.left_out
    with pytest.raises(ap.LoaderError, match="no NVIDIA card is seen"):
        make_loader(work, ap.PipelineConfig(loader=Dali(num_threads=2, device="gpu")))
