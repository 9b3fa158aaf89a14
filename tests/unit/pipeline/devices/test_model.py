from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from autopipe.errors import ModelError
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices.trainer import Trainer
from autopipe.pipeline.loader import Finish
from autopipe.workload.ops.values import OneHot
from tests.fakes.loader import ArrayLoader, blobs
from tests.unit.pipeline.devices.models import classifier


@pytest.fixture(autouse=True)
def _data_format() -> Iterator[None]:
    yield
    keras.config.set_image_data_format("channels_last")


def loader(shape: tuple[int, ...] = (8, 4, 4, 3), **arguments: Any) -> ArrayLoader:
    return ArrayLoader(np.zeros(shape, np.float32), np.arange(8) % 3, 4, **arguments)


def test_a_function_is_called_and_a_model_is_taken_as_it_is() -> None:
    assert isinstance(models.build(classifier), keras.Model)
    mine = classifier()
    assert models.build(mine) is mine


@pytest.mark.parametrize("channels", ["first", "last"])
def test_layers_follow_the_channel_order(channels: Any) -> None:
    def build() -> keras.Model:
        shape = (3, 8, 8) if keras.config.image_data_format() == "channels_first" else (8, 8, 3)
        model = keras.Sequential([keras.Input(shape), keras.layers.Conv2D(2, 3)])
        model.compile("sgd", "mse")
        return model

    assert models.build(build, channels=channels).layers[0].data_format == f"channels_{channels}"


def nothing() -> None:
    pass


def not_compiled() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


class TwoDevices:
    devices = 2


@pytest.mark.parametrize(
    ("model", "message"),
    [
        pytest.param(3, "must be a function that returns a compiled keras.Model.*but got 3", id="not callable"),
        pytest.param(nothing, r"returned None\. Is a `return model` missing", id="returns nothing"),
        pytest.param(dict, "returned {}", id="returns something else"),
        pytest.param(not_compiled, "must be compiled.*Call model.compile", id="not compiled"),
        pytest.param(not_compiled(), "must be compiled", id="a model that is not compiled"),
    ],
)
def test_what_is_no_compiled_model_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        models.build(model)


def test_a_finished_model_cannot_be_spread_over_devices() -> None:
    with pytest.raises(ModelError, match="Pass the function that builds"):
        models.build(classifier(), strategy=TwoDevices())  # type: ignore[arg-type]  # only its number is looked at


def test_another_image_size_is_named_with_both_shapes() -> None:
    with pytest.raises(
        ModelError, match=r"takes batches of shape \(None, 4, 4, 3\), but gets \(None, 6, 6, 3\)\. Change"
    ):
        Trainer(classifier(), loader((8, 6, 6, 3)))


def test_another_channel_order_is_named_as_such() -> None:
    first = loader()
    first.finish = Finish(channels_first=True)
    with pytest.raises(ModelError, match=r'gets \(None, 3, 4, 4\)\. The batches have channels="first"'):
        Trainer(classifier(), first)
    with pytest.raises(ModelError, match=r'gets \(None, 4, 4, 3\)\. The batches have channels="last"'):
        Trainer(classifier(shape=(3, 4, 4)), loader())


@pytest.mark.parametrize("jit_compile", [False, True])
def test_convolutions_with_channels_first_need_xla_on_a_cpu(jit_compile: bool) -> None:
    first = loader()
    first.finish = Finish(channels_first=True)
    convolution = keras.layers.Conv2D(3, 3, data_format="channels_first")
    model = keras.Sequential([keras.Input((3, 4, 4)), convolution, keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=jit_compile)
    if jit_compile:
        Trainer(model, first).fit(verbose=0)
    else:
        with pytest.raises(ModelError, match=r'of `model` has channels first\. Use channels="last"'):
            Trainer(model, first)


def test_a_loss_that_cannot_compare_is_named_with_both_shapes() -> None:
    with pytest.raises(
        ModelError, match=r"(?s)cannot compare its output of shape \(None, 3\) with .* shape \(None,\).*ap.OneHot"
    ):
        Trainer(classifier(one_hot=True), loader())
    hot = loader()
    hot.finish = Finish((OneHot(3),), (hot.spec,))
    with pytest.raises(ModelError, match=r"targets of shape \(None, 3\)"):
        Trainer(classifier(), hot)


@pytest.mark.parametrize("shape", [(None, None, 3), (4, 4, 3)])
def test_an_open_input_size_takes_any_image(shape: tuple[Any, ...]) -> None:
    model = keras.Sequential([keras.Input(shape), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)])
    model.compile("sgd", "sparse_categorical_crossentropy")
    models.check(model, loader())


def test_models_whose_shapes_are_not_known_are_not_judged() -> None:
    class Subclassed(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    model = Subclassed()
    model.compile("sgd", "mse")
    models.check(model, ArrayLoader(*blobs(8), 4))


def test_a_finished_batch_has_the_shapes_that_the_model_gets() -> None:
    source = ArrayLoader(*blobs(8), 4)
    source.finish = Finish((OneHot(3),), (source.spec,), channels_first=True)
    x, y = models.finished_batch(source)
    assert (x.shape, x.dtype) == ((4, 3, 4, 4), "uint8")
    assert y is not None
    assert (y.shape, y.dtype) == ((4, 3), "float32")
