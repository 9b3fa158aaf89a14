"""Statistics of a few noisy rates; and the table of formats, with what decoding each takes."""

import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pydantic
import pytest

import autopipe as ap
from autopipe.measure.formats import AS_THEY_ARE, formats
from autopipe.measure.rows import Formats, ImageForm
from autopipe.measure.stats import Pooled, Reading, bootstrap_interval, compare_pairs, log_variance, median, student_t
from autopipe.values import Estimate
from autopipe.workload.sample import FieldKind
from tests.fakes.damage import in_classes
from tests.fakes.sources import Made


def test_bootstrap_interval_holds_the_median_and_is_repeatable_and_as_wide_as_it_says() -> None:
    rates = [95.0, 100.0, 101.0, 99.0, 103.0, 98.0, 100.5]
    low, high = bootstrap_interval(rates)
    assert low <= median(rates) <= high
    assert (low, high) == bootstrap_interval(rates)
    assert bootstrap_interval([100.0]) == (-math.inf, math.inf)
    rng = np.random.default_rng(3)
    intervals = [bootstrap_interval(rng.normal(100.0, 5.0, 15), resamples=300) for _ in range(300)]
    assert sum(low <= 100.0 <= high for low, high in intervals) / 300 == pytest.approx(0.95, abs=0.05)


def test_paired_interval_covers_no_difference_in_95_percent_even_with_few_pairs() -> None:
    for pairs in (3, 4, 6):
        rng, undecided = np.random.default_rng(pairs), 0
        for _ in range(1000):
            drift = rng.normal(100.0, 10.0, pairs)  # shared by the pair: what pairing removes
            first, second = drift * rng.normal(1.0, 0.02, pairs), drift * rng.normal(1.0, 0.02, pairs)
            undecided += not compare_pairs((first / second).tolist()).decided
        assert undecided / 1000 == pytest.approx(0.95, abs=0.025)


def test_a_clear_gain_is_seen_through_a_drift_common_to_the_pair() -> None:
    comparison, one = compare_pairs([1.09, 1.11, 1.10, 1.10, 1.10]), compare_pairs([2.0])  # which decides nothing
    assert (comparison.ratio, one.ratio) == pytest.approx((1.10, 2.0), abs=0.001)
    assert (comparison.faster, one.decided) == (True, False)
    for ratios in ([], [0.0], [1.0, -1.0]):  # not of rates
        with pytest.raises(ValueError, match="compare_pairs"):
            compare_pairs(ratios)


def test_students_t_is_that_of_the_tables() -> None:
    table = {(1, 0.05): 12.7062, (2, 0.05): 4.3027, (3, 0.01): 5.8409, (9, 0.002): 4.2968, (30, 0.05): 2.0423}
    assert {key: student_t(*key) for key in table} == pytest.approx(table, abs=1e-4)


def test_the_variance_of_a_logarithm_follows_from_the_interval() -> None:
    spread = 0.03
    rate = Estimate(value=100.0, low=100.0 * math.exp(-1.96 * spread), high=100.0 * math.exp(1.96 * spread))
    assert log_variance(rate) == pytest.approx(spread**2, rel=1e-3)
    assert log_variance(Estimate(value=100.0, low=0.0, high=200.0)) > 0.3**2


def test_an_estimate_is_finite_frozen_and_not_upside_down() -> None:
    for value, low, said in ((math.nan, 0.0, "finite"), (math.inf, 0.0, "finite"), (1.0, 2.0, "must not exceed")):
        with pytest.raises(pydantic.ValidationError, match=said):
            Estimate(value=value, low=low, high=1.0)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Estimate(value=2.0, low=1.0, high=3.0).value = 1.0  # type: ignore[misc]  # what the test is about


# ---------------------------------------------------------------- what all measurements of a search tell together


def readings(rates: dict[str, list[float]], variance: float = 1e-6, *, blocks: bool = False) -> Pooled:
    """Return the estimates from these rates by configuration. With `blocks`, rates of the same place share a block."""
    rows = ((key, at if blocks else None, rate) for key, row in rates.items() for at, rate in enumerate(row))
    return Pooled([(key, Reading(math.log(rate), variance, block)) for key, block, rate in rows])


def test_the_pauses_of_a_configuration_count_although_readings_with_one_are_shaky() -> None:
    paused, steady = Reading(math.log(100.0), 0.3**2), Reading(math.log(150.0), 0.01**2)
    pooled = Pooled([("a", paused), ("a", steady), ("a", paused), ("a", steady), ("b", Reading(math.log(90.0), 1e-4))])
    assert pooled.value("a") == pytest.approx(math.sqrt(100.0 * 150.0), rel=0.01)


def test_a_shaky_configuration_leads_less_surely_than_a_steady_one_and_repeats_make_surer() -> None:
    steady, shaky = (
        Pooled([("a", Reading(math.log(100.0), spread**2)), ("b", Reading(math.log(90.0), 1e-4))])
        for spread in (0.01, 0.5)
    )
    assert shaky.ahead("a", "b")[1] > 5.0 * steady.ahead("a", "b")[1]
    two, four, eight = (
        readings({"a": [100.0] * count, "b": [90.0] * count}, 0.05**2).ahead("a", "b")[1] for count in (2, 4, 8)
    )
    assert two >= four >= eight < two


def test_what_a_block_is_off_is_left_out_of_the_difference() -> None:
    rates = {"a": [100.0, 50.0, 75.0, 130.0], "b": [90.0, 45.0, 67.5, 117.0]}
    together = readings(rates, blocks=True)
    ahead, doubt = together.ahead("a", "b")
    assert math.exp(ahead) == pytest.approx(100 / 90, rel=0.01)
    assert doubt < 0.01
    assert together.drift > together.noise
    assert readings(rates).ahead("a", "b")[1] > 5 * doubt
    some = {**rates, "b": [90.0, 45.0]}  # which ran in some blocks only
    assert math.exp(readings(some, blocks=True).ahead("a", "b")[0]) == pytest.approx(100 / 90, rel=0.01)


def test_the_noise_is_what_repeats_show_and_a_usual_one_before_there_are_any() -> None:
    assert readings({"a": [100.0], "b": [200.0]}).noise == pytest.approx(0.03, rel=0.1)
    assert readings({"a": [100.0, 100.1, 99.9], "b": [200.0, 200.1, 199.8]}).noise < 0.006
    assert readings({"a": [100.0, 130.0, 90.0], "b": [200.0, 170.0, 240.0]}).noise > 0.1
    assert readings({"a": [100.0], "b": [200.0]}).freedom == 1


RAW = "raw pixels"
FORMS = [AS_THEY_ARE, "JPEG 95", "JPEG 90", "PNG, fast", RAW]


def smooth(height: int, width: int, seed: int = 0, channels: int = 3) -> Any:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, channels), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, channels)


def encoded(pixels: Any, ending: str = ".png") -> bytes:
    return bytes(cv2.imencode(ending, pixels)[1])


class Encoded(Made):
    x_kind = FieldKind.ENCODED


class Pairs(Encoded):
    y_kind = FieldKind.ENCODED


def of(source: Any, *ops: ap.Op) -> ap.Workload:
    return ap.Workload(data=source, ops=list(ops), batch_size=1)


def asked(source: Any, *ops: ap.Op) -> Formats:
    return formats(of(source, *ops))


def rows(found: Formats, part: str = "x") -> dict[str, ImageForm]:
    return {form.name: form for form in found.forms if form.part == part}


def test_each_form_is_there_with_its_bytes_and_its_error() -> None:
    sizes = [len(encoded(smooth(60, 80, seed))) for seed in range(3)]
    found = asked(Encoded(3, lambda index: (encoded(smooth(60, 80, index)), index)), ap.Decode(), ap.Resize(60, 80))
    forms = rows(found)
    assert (found.samples, list(forms)) == (3, FORMS)
    assert forms[AS_THEY_ARE].bytes_per_image == pytest.approx(np.mean(sizes))
    assert forms[RAW].bytes_per_image == 60 * 80 * 3
    good, less = forms.pop("JPEG 95"), forms.pop("JPEG 90")
    assert 0 < good.mean_error < less.mean_error < 20
    assert good.bytes_per_image > less.bytes_per_image
    assert [form.mean_error for form in forms.values()] == [0.0] * 3


def test_the_error_of_a_jpeg_is_that_of_its_pixels() -> None:
    image = smooth(48, 64)
    jpeg = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
    back = np.asarray(cv2.imdecode(jpeg, cv2.IMREAD_COLOR_RGB)).astype(float)
    file = encoded(image[..., ::-1])
    form = rows(asked(Encoded(1, lambda index: file), ap.Decode(), ap.Resize(48, 64)))["JPEG 90"]
    assert (form.mean_error, form.bytes_per_image) == pytest.approx((np.abs(back - image).mean(), len(jpeg)))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_masks_are_offered_lossless_forms_only(dtype: Any, channels: int) -> None:
    mask = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (16, 16, channels)).astype(dtype)
    source = Pairs(3, lambda index: (encoded(smooth(16, 16, index), ".tiff"), encoded(mask)))
    found = asked(source, ap.Decode(), ap.Resize(8, 8))
    assert (list(rows(found)), list(masks := rows(found, "y"))) == (FORMS, [AS_THEY_ARE, "PNG, fast", RAW])
    assert {form.mean_error for form in masks.values()} == {0.0}
    assert masks[RAW].bytes_per_image == mask.nbytes


@pytest.mark.parametrize(("dtype", "others"), [("uint16", ["PNG, fast"]), ("float32", [])])
def test_images_of_more_bits_are_offered_forms_that_keep_them(dtype: Any, others: list[str]) -> None:
    image = (np.random.default_rng(0).random((16, 20)) * 65535).astype(dtype)
    found = rows(asked(Encoded(3, lambda index: encoded(image, ".tiff")), ap.Decode(1, dtype=dtype), ap.Resize(8, 8)))
    assert {name: form.mean_error for name, form in found.items()} == dict.fromkeys([AS_THEY_ARE, *others, RAW], 0.0)
    assert found[RAW].bytes_per_image == image.nbytes


def test_nothing_is_written_and_bad_samples_are_left_out(tmp_path: Path) -> None:
    folder = in_classes(tmp_path / "photos", 8, (20, 20))
    sorted(folder.rglob("*.png"))[3].write_bytes(b"\x89PNG nothing")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    workload = ap.Workload(data=ap.ImageFolder(folder), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=8)
    assert formats(workload).samples == 7
    some = Encoded(4, lambda index: encoded(smooth(8, 8)) if index in (0, 3) else b"no image")
    assert asked(some, ap.Decode()).samples == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def batches() -> Any:
    yield np.zeros((2, 4, 4, 3), np.float32), np.zeros(2)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (of(ap.Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4))), r"`x` \(image\), `y` \(label\)"),
        (of(ap.Arrays(np.zeros((4, 7), np.float32))), r"image files that.*`x` \(array\)"),
        (of(Encoded(4, lambda index: encoded(smooth(8, 8))),
            ap.Map(lambda data: cv2.imdecode(np.frombuffer(data, "B"), 1))),
         r"`x` \(encoded\), and the ops are \[Map"),
        (ap.wrap(batches, model=lambda: None, steps=1), "reads its own files"),
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_anew_is_refused(workload: ap.Workload, said: str) -> None:
    with pytest.raises((ap.ConfigError, ap.WorkloadError), match=said):
        formats(workload)
