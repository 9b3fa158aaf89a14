"""What a model of several inputs is told before it trains; that it trains rightly is in tests/integration."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from autopipe.assembly import build_trainer
from autopipe.core.config import PipelineConfig
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.devices.trainer import Trainer
from autopipe.errors import ModelError
from autopipe.loaders.threads import Threads

LEFT, RIGHT = np.ones((6, 2), np.float32), np.ones((6, 3), np.float32)
Y = np.arange(6) % 2


def model() -> keras.Model:
    inputs = [keras.Input((2,), name="left"), keras.Input((3,), name="right")]
    built = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(keras.layers.concatenate(inputs)))
    built.compile(loss="sparse_categorical_crossentropy")
    return built


def trainer(x: Any, weight: Any = None) -> Trainer:
    workload = Workload(data=Arrays(x, Y, weight), ops=[], batch_size=2, model=model)
    return build_trainer(workload, PipelineConfig(loader=Threads(workers=1)))


@pytest.mark.parametrize(
    "x", [(LEFT, RIGHT), {"right": RIGHT, "left": LEFT}, {"left": LEFT, "right": RIGHT, "z": LEFT}]
)
def test_inputs_are_taken_by_their_order_or_by_their_names(x: Any) -> None:
    with trainer(x) as made:
        assert len(made.fit(verbose=0).history["loss"]) == 1


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"left": LEFT, "wrong": RIGHT}, r"takes 2 inputs \('left', 'right'\), but x has the parts 'left', 'wrong'"),
        ((LEFT, RIGHT, LEFT), "but x has 3 parts"),
        (LEFT, "but x is one part"),
        ((RIGHT, LEFT), r"shape \(None, 2\) as 'left', but gets \(None, 3\)"),
    ],
)
def test_inputs_that_do_not_fit_are_told_before_anything_is_trained(x: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        trainer(x)


def test_weights_of_classes_and_of_samples_are_not_mixed() -> None:
    with (
        trainer((LEFT, RIGHT), np.ones(6, np.float32)) as made,
        pytest.raises(ModelError, match="cannot be used together"),
    ):
        made.fit(class_weight={0: 2.0}, verbose=0)
    with trainer((LEFT, RIGHT)) as made:
        assert made.fit(class_weight={0: 2.0}, verbose=0).history["loss"]


@pytest.mark.parametrize("as_names", [True, False], ids=["names", "order"])
def test_targets_by_other_names_than_the_outputs_are_told_before_anything_is_trained(as_names: bool) -> None:
    def build() -> keras.Model:
        seen = keras.Input((2,))
        outputs = [keras.layers.Dense(1, name=name)(seen) for name in ("kind", "price")]
        built = keras.Model(seen, {"kind": outputs[0], "price": outputs[1]} if as_names else outputs)
        built.compile(loss="mse")
        return built

    def made(y: Any) -> Trainer:
        workload = Workload(data=Arrays(LEFT, y), ops=[], batch_size=2, model=build)
        return build_trainer(workload, PipelineConfig(loader=Threads(workers=1)))

    with pytest.raises(ModelError, match="are called 'kind', 'price', but y has the parts 'class', 'price'"):
        made({"class": Y, "price": Y})
    with made({"price": Y, "kind": Y}) as trainer:
        assert len(trainer.fit(verbose=0).history["loss"]) == 1
