from __future__ import annotations

from autopipe.measure.facts import Ceiling
from autopipe.pipeline.config import ModelSetup
from autopipe.search import feasible
from autopipe.values import Estimate

COUNTS = [ModelSetup(devices) for devices in (1, 2, 4, 8)]


def ceiling(setup: ModelSetup, rate: float) -> Ceiling:
    return Ceiling(
        model_images_per_second=Estimate(value=rate, low=rate, high=rate),
        model_core_seconds_per_image=0.0,
        **setup._asdict(),
    )


def test_more_devices_stop_where_they_no_longer_pay() -> None:
    measured = [ceiling(ModelSetup(1), 1000), ceiling(ModelSetup(2), 1800), ceiling(ModelSetup(4), 1850)]
    found = feasible.pointless(measured, COUNTS)
    assert set(found) == {("devices", 4), ("devices", 8)}
    assert found["devices", 8] == "the model alone is no faster so: 1.03 times the rate of devices 2"
    assert feasible.hopeless(ModelSetup(8, "last", "host"), found)
    assert not feasible.hopeless(ModelSetup(2), found)


def test_what_was_not_measured_is_not_judged() -> None:
    assert feasible.pointless([ceiling(ModelSetup(1), 1000)], COUNTS) == {}


def test_counts_are_compared_in_setups_that_else_are_alike() -> None:
    on_host = ModelSetup(1, "last", "host")
    measured = [ceiling(ModelSetup(1), 1000), ceiling(on_host, 2000), ceiling(ModelSetup(2), 1500)]
    assert feasible.pointless(measured, COUNTS) == {}  # 1.5 times the same finish on one device


def test_another_channel_order_has_to_be_faster() -> None:
    first = ModelSetup(channels="first")
    slower = feasible.pointless([ceiling(ModelSetup(), 1000), ceiling(first, 1010)], [ModelSetup(), first])
    assert slower["channels", "first"] == "the model alone is no faster so: 1.01 times the rate of channels last"
    assert feasible.pointless([ceiling(ModelSetup(), 1000), ceiling(first, 1200)], [ModelSetup(), first]) == {}


def test_setups_that_share_a_process_stay_together_and_the_usual_one_is_first() -> None:
    every = [
        ModelSetup(devices, channels, finish)
        for devices in (4, 1)
        for channels in ("first", "last")
        for finish in ("host", "device")
    ]
    found = feasible.ordered(every)
    assert found[0] == ModelSetup()
    assert [(each.devices, each.channels) for each in found[::2]] == [
        (each.devices, each.channels) for each in found[1::2]
    ]
    assert [each.devices for each in found] == [1] * 4 + [4] * 4


def test_several_steps_by_one_call_have_to_pay_and_fewer_are_not_tried_where_the_most_do_not() -> None:
    usual, eight, many = (ModelSetup(steps_per_execution=count) for count in (1, 8, 32))
    assert feasible.ordered([eight, many, usual]) == [usual, many, eight]
    long = feasible.pointless([ceiling(usual, 1000), ceiling(many, 1010)], [usual, eight, many])
    assert set(long) == {("steps_per_execution", 8), ("steps_per_execution", 32)}
    assert feasible.hopeless(eight, long)
    short = [ceiling(usual, 1000), ceiling(many, 1510)]
    assert feasible.pointless(short, [usual, eight, many]) == {}


def test_a_few_steps_by_one_call_that_seem_to_bring_nothing_do_not_rule_out_many() -> None:
    """On a machine that changes its speed by a sixth, noise hides the gain of eight, and not that of 32."""
    usual, eight, many = (ModelSetup(steps_per_execution=count) for count in (1, 8, 32))
    measured = [ceiling(usual, 1000), ceiling(eight, 1010), ceiling(many, 1900)]
    assert set(feasible.pointless(measured, [usual, eight, many])) == {("steps_per_execution", 8)}


def test_so_many_steps_by_one_call_are_not_tried_where_the_model_was_never_run_so() -> None:
    usual, eight, many = (ModelSetup(steps_per_execution=count) for count in (1, 8, 32))
    measured = [ceiling(usual, 1000), ceiling(eight._replace(finish="host"), 1500)]
    assert set(feasible.useless(measured, [usual, eight, many])) == {("steps_per_execution", 32)}
    assert feasible.useless([], [usual, eight, many]) == {}
