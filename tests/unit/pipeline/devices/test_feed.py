from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pytest

from autopipe.errors import AutopipeError, ModelError, OpError
from autopipe.pipeline.devices.feed import Fault, Placement, Stream, TimedLoader, ahead, class_weights, replayed
from autopipe.pipeline.devices.strategy import DeviceStrategy
from tests.fakes.loader import ArrayLoader, blobs


class Host(DeviceStrategy):
    devices = 1

    def __init__(self, looks_ahead: bool = False) -> None:
        self.looks_ahead = looks_ahead

    def scope(self) -> Any:
        raise NotImplementedError

    def place(self, array: Any) -> Any:
        return array


def stream(loader: ArrayLoader, steps: int, placement: Placement | None = None) -> Stream:
    return Stream(loader, placement or Placement(Host()), Fault(), first=(0, 0), steps=steps)


@pytest.mark.parametrize(("transfers", "handed"), [(True, 4), (False, 1)])
def test_batches_are_placed_before_they_are_asked_for_if_that_transfers_them(transfers: bool, handed: int) -> None:
    loader = ArrayLoader(*blobs(40), 4)
    walk = stream(loader, 10, placement=Placement(Host(looks_ahead=transfers), prefetch=3)).take(10)
    next(walk)
    assert len(loader.handed) == handed
    assert len(list(walk)) == 9


def test_ahead_never_waits_for_an_item_that_is_not_needed_yet() -> None:
    waiting = 0
    source = itertools.count()
    items = ahead(source, 2, lambda: waiting > 0)
    assert next(items) == 0
    assert next(source) == 1  # nothing beyond the first item was taken
    waiting = 1
    assert next(items) == 2
    assert next(source) == 5


class Foreign(ArrayLoader):
    """Hands over a framework's own dataset, which fails in the framework's own words."""

    found: OpError | None = None

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        yield next(self.batches(epoch, start))
        raise RuntimeError("{{function_node ...}} Unexpected end of the file")

    def diagnose(self, error: Exception) -> AutopipeError | None:
        assert "Unexpected end" in str(error)
        return self.found


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the others take no native datasets")
@pytest.mark.parametrize("wrapped", [lambda loader: loader, TimedLoader])
def test_a_frameworks_error_is_raised_as_what_the_loader_finds_behind_it(wrapped: Any) -> None:
    loader = Foreign(*blobs(12), 4)
    with pytest.raises(RuntimeError, match="Unexpected end"):  # if it finds nothing
        list(stream(loader, 3).take(3))
    loader.found = OpError("Decode on sample 7 (7.jpg): the file is cut short")
    loader.found.__cause__ = cause = ValueError("the file is cut short")
    fault = Fault()
    with pytest.raises(OpError, match=r"7\.jpg") as caught, fault.raised_as_itself():
        list(Stream(wrapped(loader), Placement(Host()), fault, first=(0, 0), steps=3).take(3))
    assert caught.value is loader.found
    assert caught.value.__cause__ is cause


def test_a_replay_of_several_passes_reads_on_and_begins_a_pass_again_that_was_left() -> None:
    loader = ArrayLoader(*blobs(12), 4, shuffle=False)
    with replayed(loader, Placement(Host()), Fault(), 3, passes=3) as feed:
        assert feed.num_batches == 3
        feed.on_epoch_begin()
        for _ in range(2):
            batches = feed.get_numpy_iterator()
            assert [next(batches)[0].shape for _ in range(3)] == [(4, 4, 4, 3)] * 3  # as Keras does, not to its end
        assert loader.asked == [(0, 0, False), (1, 0, False)]
        next(feed.get_numpy_iterator())
        assert loader.asked[2:] == [(2, 0, True)]
        for _ in range(2):  # beyond the passes that were told, each begins anew
            again = [batch[0] for batch in feed.get_numpy_iterator()]
            assert np.array_equal(np.concatenate(again), loader.x)
        assert loader.asked[3] == (0, 0, False)


@pytest.mark.parametrize("y", [np.array([0, 2, 1]), np.eye(3)[[0, 2, 1]], np.array([[0], [2], [1]])])
def test_class_weights_are_those_of_the_samples_classes(y: np.ndarray[Any, Any]) -> None:
    assert class_weights(y, {0: 2.0, 1: 3.0}).tolist() == [2.0, 1.0, 3.0]


@pytest.mark.parametrize("y", [None, np.zeros((3, 4, 4))])
def test_class_weights_need_one_class_a_sample(y: Any) -> None:
    with pytest.raises(ModelError, match="class_weight"):
        class_weights(y, {0: 1.0})
