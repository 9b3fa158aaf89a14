from __future__ import annotations

import contextlib
import functools
import json
import math
import types
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe import frameworks
from autopipe.errors import ConfigError, ModelError
from autopipe.pipeline import assembly
from autopipe.pipeline.devices import callbacks
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices import strategy as strategies
from autopipe.pipeline.devices.mirrored import Mirrored
from autopipe.pipeline.loader import Finish
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


def not_compiled() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("model", "devices", "message"),
    [
        (3, 1, "must be a function that returns a compiled keras.Model.*but got 3"),
        (lambda: None, 1, r"returned None\. Is a `return model` missing"),
        (dict, 1, "returned {}"),
        (not_compiled, 1, "must be compiled.*Call model.compile"),
        (not_compiled(), 1, "must be compiled"),
        (classifier(), 2, "Pass the function that builds"),  # a finished one cannot be spread over devices
    ],
    ids=str,
)
def test_what_is_no_compiled_model_is_refused(model: Any, devices: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        models.build(model, strategy=types.SimpleNamespace(devices=devices, scope=contextlib.nullcontext))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("takes", "batch", "channels_first", "said"),
    [
        ((4, 4, 3), (8, 6, 6, 3), False, r"takes batches of shape \(None, 4, 4, 3\), but gets \(None, 6, 6, 3\)\. Ch"),
        ((4, 4, 3), (4, 4, 3), False, "one sample in place of a batch"),
        ((4, 4, 3), (8, 4, 4, 3), True, r'gets \(None, 3, 4, 4\)\. The batches have channels="first"'),
        ((3, 4, 4), (8, 4, 4, 3), False, r'gets \(None, 4, 4, 3\)\. The batches have channels="last"'),
    ],
)
def test_batches_of_another_shape_are_named_with_both(
    takes: tuple[int, ...], batch: tuple[int, ...], channels_first: bool, said: str
) -> None:
    given = loader(batch)
    given.finish = Finish(channels_first=channels_first)
    with pytest.raises(ModelError, match=said):
        ap.Trainer(classifier(shape=takes), given)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_convolutions_with_channels_first_need_xla_on_a_cpu(jit_compile: bool) -> None:
    first = loader()
    first.finish = Finish(channels_first=True)
    convolution = keras.layers.Conv2D(3, 3, data_format="channels_first")
    model = keras.Sequential([keras.Input((3, 4, 4)), convolution, keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=jit_compile)
    if jit_compile:
        ap.Trainer(model, first).fit(verbose=0)
    else:
        with pytest.raises(ModelError, match=r'of `model` has channels first\. Use channels="last"'):
            ap.Trainer(model, first)


def test_a_loss_that_cannot_compare_is_named_with_both_shapes() -> None:
    said = r"(?s)cannot compare its output of shape \(None, 3\) with .* shape \(None,\).*ap.OneHot"
    with pytest.raises(ModelError, match=said):
        ap.Trainer(classifier(one_hot=True), loader())
    hot = loader()
    hot.finish = Finish((ap.OneHot(3),), (hot.spec,))
    with pytest.raises(ModelError, match=r"targets of shape \(None, 3\)"):
        ap.Trainer(classifier(), hot)


HEAD = keras.layers.Dense(1)


class Pairs(keras.Sequential):
    def train_step(self, *arguments: Any) -> Any:
        return super().train_step(*arguments)


class Subclassed(keras.Model):
    def call(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (Subclassed(), (8, 4, 4, 3)),
        (Pairs(classifier().layers), (8, 2, 4, 4, 3)),
        *(
            (keras.Sequential([keras.Input(shape), keras.layers.GlobalAveragePooling2D(), HEAD]), (8, 4, 4, 3))
            for shape in ((None, None, 3), (4, 4, 3))
        ),
    ],
)
def test_a_model_of_unknown_shapes_or_an_open_size_is_not_judged(model: Any, batch: tuple[int, ...]) -> None:
    model.compile("sgd", "mse")
    models.check(model, loader(batch))


TWO_WORKERS = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})


def test_tensorflow_in_several_processes_is_refused_with_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO_WORKERS)
    with pytest.raises(ModelError, match=r"MultiWorkerMirroredStrategy fails under it \(keras issue 20585") as caught:
        strategies.chosen(1)
    assert "jax.distributed.initialize" in str(caught.value.hint)


@pytest.mark.parametrize("config", ["", "{}", json.dumps({"cluster": {"worker": ["a:1"]}})])
def test_one_process_is_no_cluster(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert Mirrored.cluster() == (0, 1)
    assert frameworks.jax_rank() == (0, 1)


def test_a_batch_that_processes_cannot_share_is_refused() -> None:
    x, y = blobs(16, side=4)
    workload = ap.Workload(data=ap.Arrays(x, y), ops=(), batch_size=6)
    with pytest.raises(ConfigError, match="between 4 processes, but `batch_size` is 6"):
        assembly.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=1)), rank=(0, 4))


def test_a_rank_has_its_part_of_every_batch() -> None:
    x, y = blobs(16, side=4)
    workload = ap.Workload(data=ap.Arrays(x, y), ops=(), batch_size=8, shuffle=False)
    config = ap.PipelineConfig(loader=ap.Threads(workers=1))
    with assembly.build_loader(workload, config) as whole, assembly.build_loader(workload, config, rank=(1, 2)) as half:
        assert (len(whole), len(half), half.batch_size) == (2, 2, 4)
        assert half.identity == whole.identity  # so that a state of either resumes the other
        assert [batch[0].tolist() for batch in half.batches(0)] == [x[4:8].tolist(), x[12:16].tolist()]


def test_rank_0_writes_and_the_others_only_restore() -> None:
    log, other = type("Writes", (keras.callbacks.CSVLogger,), {})("log.csv"), keras.callbacks.EarlyStopping()
    backup = keras.callbacks.BackupAndRestore("backup", save_freq=1)
    backup._save_model = Mock()
    assert callbacks.of_rank((0, 1), [log, other, backup]) == [log, other, backup]
    assert callbacks.of_rank((1, 2), [log, other, backup]) == [other, backup]
    backup.on_train_batch_end(0)
    backup.on_epoch_end(0)
    backup._save_model.assert_not_called()


LEFT, RIGHT = np.ones((6, 2), np.float32), np.ones((6, 3), np.float32)
Y = np.arange(6) % 2


def model() -> keras.Model:
    inputs = [keras.Input((2,), name="left"), keras.Input((3,), name="right")]
    built = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(keras.layers.concatenate(inputs)))
    built.compile(loss="sparse_categorical_crossentropy")
    return built


def sequential() -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def trainer(x: Any, weight: Any = None, *, y: Any = Y, model: Any = model) -> ap.Trainer:
    workload = ap.Workload(data=ap.Arrays(x, y, weight), ops=[], batch_size=2, model=model)
    return ap.build_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1)))


@pytest.mark.parametrize("x", [(LEFT, RIGHT), {"right": RIGHT, "left": LEFT}, {"left": LEFT, "right": RIGHT, "z": Y}])
def test_inputs_are_taken_by_their_order_or_by_their_names(x: Any) -> None:
    with trainer(x) as made:
        assert len(made.fit(verbose=0).history["loss"]) == 1


@pytest.mark.parametrize(
    ("x", "build", "message"),
    [
        ({"left": LEFT, "wrong": Y}, model, r"2 inputs \('left', 'right'\), but x has the parts 'left', 'wrong'"),
        ((LEFT, RIGHT, LEFT), model, "but x has 3 parts"),
        (LEFT, model, "but x is one part"),
        ((RIGHT, LEFT), model, r"shape \(None, 2\) as 'left', but gets \(None, 3\)"),
        ((LEFT, RIGHT), sequential, r"takes 1 input \(.*\), but x has 2 parts"),
    ],
)
def test_inputs_that_do_not_fit_are_told_before_anything_is_trained(x: Any, build: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        trainer(x, model=build)


def test_weights_of_classes_and_of_samples_are_not_mixed() -> None:
    weights = np.ones(6, np.float32)
    with trainer((LEFT, RIGHT), weights) as made, pytest.raises(ModelError, match="cannot be used together"):
        made.fit(class_weight={0: 2.0}, verbose=0)
    with trainer((LEFT, RIGHT)) as made:
        assert made.fit(class_weight={0: 2.0}, verbose=0).history["loss"]


def test_targets_by_other_names_than_the_outputs_are_told_before_anything_is_trained() -> None:
    def build(as_names: bool) -> keras.Model:
        seen = keras.Input((2,))
        outputs = [keras.layers.Dense(1, name=name)(seen) for name in ("kind", "price")]
        built = keras.Model(seen, {"kind": outputs[0], "price": outputs[1]} if as_names else outputs)
        built.compile(loss="mse")
        return built

    for as_names in (True, False):
        with pytest.raises(ModelError, match="are called 'kind', 'price', but y has the parts 'class', 'price'"):
            trainer(LEFT, y={"class": Y, "price": Y}, model=functools.partial(build, as_names))
    with trainer(LEFT, y={"price": Y, "kind": Y}, model=functools.partial(build, True)) as made:
        assert len(made.fit(verbose=0).history["loss"]) == 1


def test_a_forward_pass_is_timed_if_its_input_is_known() -> None:
    known = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    assert 0 < models.forward_seconds(known, 8) < math.inf
    assert models.forward_seconds(keras.Sequential([keras.layers.Dense(1)]), 8) == math.inf
