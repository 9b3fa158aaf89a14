"""The scaling law against published figures, and what the command shows. Terms measured here: benchmarks/scaling.py."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from autopipe.errors import ConfigError
from autopipe.extensions.scale import command, model
from autopipe.extensions.scale.model import Interconnect, Limit, Measured
from tests.fakes.ceilings import COSTS
from tests.fakes.commands import autopipe, succeeded
from tests.fakes.reports import printed

TEN_GB = Interconnect(bytes_per_second=10e9, source="a test")


def measured(**changes: object) -> Measured:
    plain: dict[str, object] = {
        "batch_size": 64,
        "step_seconds": {64: 0.1, 32: 0.05, 16: 0.025},
        "gradient_bytes": 100_000_000,
        "interconnect": TEN_GB,
    }
    return Measured(**{**plain, **changes})  # type: ignore[arg-type]


# Images/s of one P100 at batch 64: tensorflow.org/performance/benchmarks (DGX-1, synthetic data); ResNet-101 lies
# between ResNet-50 (219) and ResNet-152 (91.8) by its multiplications (arXiv 1512.03385, table 1: 3.8, 7.6 and 11.3
# billion). Parameters: the models' papers. Efficiencies on 128 servers of 4 GPUs with 25 Gbit/s each: Horovod's
# docs/benchmarks.rst.
@pytest.mark.parametrize(
    ("images_per_second", "parameters", "published"),
    [(142.0, 23.9e6, 0.90), (112.0, 44.5e6, 0.90), (154.0, 138.4e6, 0.68)],
    ids=["Inception V3", "ResNet-101", "VGG-16"],
)
def test_horovods_efficiencies_on_512_gpus_are_met_within_four_points(
    images_per_second: float, parameters: float, published: float
) -> None:
    of_one = measured(
        step_seconds={64: 64 / images_per_second},
        gradient_bytes=int(4 * parameters),
        interconnect=model.INTERCONNECTS["25gbe"],
    )
    assert model.row(of_one, 512, weak=True).efficiency == pytest.approx(published, abs=0.04)


# What users of Keras 2's multi_gpu_model reported: mnist_mlp, one Dense layer, 63 s on one GPU and 100 s on two for 100
# epochs of 469 steps (keras issue 11342); cifar10_resnet, ResNet-20, 27 s and 32 s for 1563 steps of 32 (issue 9543).
# Both steps are far longer than their arithmetic: half the batch is taken to take 97 % of the time.
@pytest.mark.parametrize(
    ("step_ms", "batch_size", "parameters"),
    [(63e3 / 46_900, 128, 0.41e6), (27e3 / 1563, 32, 0.27e6)],
    ids=["mnist_mlp", "cifar10_resnet"],
)
def test_small_models_that_users_found_slower_on_two_gpus_are_called_not_worth_it(
    step_ms: float, batch_size: int, parameters: float
) -> None:
    gpu = measured(
        batch_size=batch_size,
        step_seconds={batch_size: step_ms / 1e3, batch_size // 2: 0.97 * step_ms / 1e3},
        gradient_bytes=int(4 * parameters),
        interconnect=model.INTERCONNECTS["pcie3"],
    )
    rows = [model.row(gpu, devices) for devices in (1, 2)]
    assert rows[1].speedup < model.WORTH
    assert "not worth a device" in model.verdict(gpu, rows)


def test_strong_scaling_shares_a_batch_and_weak_scaling_gives_each_a_whole_one() -> None:
    exchange = 2 * 3 / 4 * 0.01
    strong, weak = model.row(measured(), 4), model.row(measured(), 4, weak=True)
    assert (strong.batch_size, weak.batch_size) == (64, 256)
    assert strong.step_seconds == pytest.approx(0.025 + exchange / 2)
    assert weak.step_seconds == pytest.approx(0.1 + exchange / 2)
    assert strong.efficiency < weak.efficiency < 1
    assert strong.limit is weak.limit is Limit.EXCHANGE
    assert not strong.measured
    one = model.row(measured(), 1)  # is what it was measured to be
    assert (one.step_seconds, one.exchange_seconds, one.efficiency, one.speedup) == (0.1, 0.0, 1.0, 1.0)
    assert (one.images_per_second, one.measured) == (640.0, True)


def test_where_smaller_parts_take_as_long_computing_is_the_limit() -> None:
    fixed = measured(step_seconds={64: 0.1, 32: 0.099}, gradient_bytes=1000)
    row = model.row(fixed, 2)
    assert row.limit is Limit.COMPUTE
    assert row.speedup == pytest.approx(1.01, abs=0.01)
    assert (model.hidden_seconds(0.1, 9.0), model.hidden_seconds(9.0, 0.3)) == pytest.approx((0.05, 0.1))


def test_the_loader_stands_above_all_of_it() -> None:
    few_cores = measured(loader_core_seconds=0.004, cores=4.0)  # 1,000 images/s
    rows = [model.row(few_cores, devices) for devices in (1, 2, 4)]
    assert [each.limit for each in rows[1:]] == [Limit.INPUT, Limit.INPUT]
    assert rows[2].images_per_second == 1000.0
    said = model.verdict(few_cores, rows)
    assert "feeding 2 takes 5 cores without a cache, here are 4" in said
    assert model.row(measured(), 4).cores == 0.0
    assert math.isinf(measured().fed_images_per_second)


def test_samples_that_a_cache_holds_cost_the_cores_only_their_ops_of_every_epoch() -> None:
    assert model.loader_core_seconds(COSTS, cached=False) == pytest.approx(0.74e-3)
    assert model.loader_core_seconds(COSTS, cached=True) == pytest.approx(0.12e-3)
    few_cores = measured(loader_core_seconds=0.004, cores=4.0, cached=True)
    said = model.verdict(few_cores, [model.row(few_cores, devices) for devices in (1, 2, 4)])
    assert "with a cache" in said


def test_what_was_measured_on_several_devices_counts_more_than_the_prediction() -> None:
    both = measured(together={(2, 64): 0.07})
    assert model.row(both, 2).step_seconds == 0.07
    assert model.row(both, 2).measured
    assert model.row(both, 2, predict=True).step_seconds == model.row(measured(), 2).step_seconds
    assert "(predicted)" not in model.verdict(both, [model.row(both, each) for each in (1, 2)])


def test_devices_that_share_a_processor_compute_one_after_the_other() -> None:
    virtual = measured(shared=True, gradient_bytes=0)
    assert model.row(virtual, 2).step_seconds == pytest.approx(0.1)
    assert model.row(virtual, 2).efficiency == pytest.approx(0.5)


def test_between_measurements_lies_a_line_and_below_them_what_starting_a_step_costs() -> None:
    known = measured()
    assert known.compute_seconds(48) == pytest.approx(0.075)
    assert known.compute_seconds(4) == 0.025
    assert known.compute_seconds(128) == pytest.approx(0.2)


def test_the_break_even_is_where_two_devices_take_as_long_as_one() -> None:
    known = measured()
    assert model.pays_from_seconds(known) == pytest.approx(0.015)
    even = measured(step_seconds={64: 0.015, 32: 0.0075, 16: 0.00375})
    assert model.row(even, 2).step_seconds == pytest.approx(0.015)
    assert "below 15 ms a step" in model.verdict(known, [model.row(known, each) for each in (1, 2)])


# ---------------------------------------------------------------- command

MEASURED = measured(
    step_seconds={64: 0.1, 32: 0.052, 16: 0.03},
    interconnect=model.INTERCONNECTS["pcie3"],
    together={(2, 64): 0.06},
    loader_core_seconds=0.001,
    cores=2.0,
)


def shown(*, virtual: bool = False) -> str:
    found = model.judge(MEASURED, [1, 2, 4], virtual=virtual, notes=["4 devices are predicted: there are 2"])
    return printed(command.render(found), 120)


def test_each_number_of_devices_has_a_line_that_says_whether_it_was_measured() -> None:
    text = shown()
    lines = [line.split() for line in text.splitlines()]
    assert ["2", "60", "ms", "4.17", "ms", "1,067", "1.67x", "83%", "compute", "measured"] in lines
    assert sum(line[-1:] == ["predicted"] for line in lines) == 3
    assert "95.4 MiB of gradients a step, over 12 GB/s (PCIe 3.0 x16" in text
    assert "4 devices are predicted: there are 2." in text
    assert "irtual" not in text
    virtual = shown(virtual=True)
    assert "2 virtual" in virtual
    assert "say nothing of GPUs" in virtual


def test_the_document_survives_json_and_holds_both_kinds_of_scaling() -> None:
    found = model.judge(MEASURED, [1, 2, 3], notes=["3 devices cannot share a batch of 64"])
    document = json.loads(json.dumps(command.document(found)))
    assert [row["devices"] for row in document["strong"]] == [1, 2]  # three cannot share 64
    assert [row["devices"] for row in document["weak"]] == [1, 2, 3]
    assert document["fed_images_per_second"] == 2000.0
    assert document["strong"][1]["measured"]


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [("12GB/s", 12e9), ("25Gbit/s", 3.125e9), ("800 MB/s", 8e8), ("1.5gb/s", 1.5e9), ("25gbe", 3.125e9)],
)
def test_an_interconnect_is_a_rate_in_bytes_or_bits_or_a_name(text: str, bytes_per_second: float) -> None:
    assert command.rate_of(text, "--interconnect").bytes_per_second == bytes_per_second


@pytest.mark.parametrize("text", ["12", "12GB", "0GB/s", "pcie5x", "-1GB/s"])
def test_what_is_no_interconnect_is_refused_with_the_names_that_are(text: str) -> None:
    with pytest.raises(ConfigError, match="`--interconnect` must be a rate such as 12GB/s"):
        command.rate_of(text, "--interconnect")


def test_counts_are_whole_numbers_from_one_on() -> None:
    assert command.counts("1, 2,8", "--devices") == [1, 2, 8]
    for text in ("0", "1,,2", "two", "-1", ""):
        with pytest.raises(ConfigError, match="`--devices` must be whole numbers"):
            command.counts(text, "--devices")


# ---------------------------------------------------------------- measured

STEP_SECONDS = 0.04

SCRIPT = """
import numpy as np
import autopipe as ap

images = np.zeros((64, 8, 8, 3), np.uint8)
labels = np.zeros(64, np.int64)
workload = ap.Workload(data=ap.Arrays(images, labels), ops=[ap.Rescale(1 / 255)], batch_size=8, model=lambda: None)
"""


@pytest.mark.slow
def test_what_is_here_is_measured_and_what_is_not_is_predicted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    line = "scale train.py:workload --json --devices 1,2,4 --virtual-devices 2"
    done = succeeded(
        autopipe(*line.split(), "--simulate-step", f"{STEP_SECONDS * 1e3:g}ms/8", cwd=tmp_path, backend="tensorflow")
    )
    found = json.loads(done.stdout)
    one, two, four = found["strong"]
    assert [row["measured"] for row in found["strong"]] == [True, True, False]
    assert one["step_seconds"] >= STEP_SECONDS
    assert two["step_seconds"] >= STEP_SECONDS / 2
    assert four["step_seconds"] >= STEP_SECONDS / 4
    assert found["weak"][1]["batch_size"] == 16
    assert found["virtual"]
    assert found["gradient_bytes"] == 0  # it learns nothing
    assert any("2 virtual devices were asked for" in note for note in found["notes"])
