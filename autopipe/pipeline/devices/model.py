"""The user's model: built from the workload's function, and checked against the batches before training.

Every mistake of a user with the model is a ModelError here, so that no framework traceback has to be read. The
computation of the model is not touched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from autopipe import frameworks
from autopipe.errors import ModelError, near, shortened
from autopipe.pipeline.config import Channels
from autopipe.pipeline.devices.simulated import SimulatedAccelerator, Timeline
from autopipe.pipeline.devices.strategy import DeviceStrategy
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.wrap import OwnStep
from autopipe.values import count_text
from autopipe.workload.sample import leaves, triple

_Shape = tuple[int | None, ...]


def build(model: Any, *, channels: Channels = "last", strategy: DeviceStrategy | None = None) -> keras.Model:
    """Return the compiled model of a workload: `model`, or what it returns, made in the scope of `strategy`. Keras's
    image data format is set first and stays set, so that layers built without one follow `channels`. Raise ModelError
    if there is no compiled model, or a finished one is to be spread over several devices.
    """
    keras.config.set_image_data_format(f"channels_{channels}")
    built = model
    if isinstance(model, keras.Model):
        if strategy is not None and strategy.devices > 1:
            raise ModelError(
                "`model` must be a function to train on several devices, "
                f"but got a finished model and devices={strategy.devices}.",
                hint="Pass the function that builds and compiles the model, so that it can be called on those devices.",
            )
    elif isinstance(model, OwnStep):
        built = StepModel(model)
    elif callable(model):
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            built = model()
    else:
        raise ModelError(
            "`model` must be a function that returns a compiled keras.Model, or such a model, "
            f"but got {shortened(model)}.",
            hint="Pass the function itself: model=build_model.",
        )
    if not isinstance(built, keras.Model):
        raise ModelError(
            f"`model` must return a compiled keras.Model, but {shortened(model)} returned {shortened(built)}.",
            hint="Is a `return model` missing?" if built is None else None,
        )
    if not built.compiled:
        raise ModelError(
            f"`model` must be compiled, but the model {built.name!r} is not.",
            hint="Call model.compile(optimizer=..., loss=...) before returning it.",
        )
    return built


def forward_seconds(model: keras.Model, batch_size: int) -> float:
    """Return the seconds of a forward pass of a batch, operation by operation; infinity if the one input is unknown."""
    inputs: list[Any] = getattr(model, "inputs", None) or []
    if not model.built or len(inputs) != 1:
        return math.inf
    x, took = keras.ops.zeros([batch_size, *[size or 1 for size in inputs[0].shape[1:]]], inputs[0].dtype), math.inf
    for _ in range(3):
        began = time.perf_counter()
        keras.tree.map_structure(np.asarray, model(x, training=False))
        took = min(took, time.perf_counter() - began)
    return took


def finished_batch(loader: Loader) -> tuple[Any, Any, Any]:
    """Return the shapes and dtypes of x, y and sample_weight of the model's batches, after any finish on the device."""
    rows = tuple(None if part is None else np.zeros_like(part) for part in loader.spec.empty(1))
    finished = loader.finish.batch(rows)
    symbols = [None if part is None else _symbol(part, loader.batch_size) for part in finished]
    return triple(loader.spec.packed(symbols))


def _symbol(array: Any, rows: int) -> keras.KerasTensor:
    dtype = str(array.dtype)
    if keras.backend.backend() == "jax":
        import jax

        dtype = str(jax.dtypes.canonicalize_dtype(dtype))  # without 64 bits, unless the user allows them
    return keras.KerasTensor((rows, *array.shape[1:]), dtype)


def check(model: keras.Model, loader: Loader) -> None:
    """Raise ModelError for a model that cannot take the batches of `loader`. Cheap: its own layers are not run."""
    _check_channels(model)
    steps_itself = type(model).train_step is not keras.Model.train_step  # and may give its layers parts of a batch
    if not steps_itself:
        check_inputs(model, loader)
    x, y, _ = finished_batch(loader)
    _check_names(model, y)
    usual = frameworks.loss_is_new(model) and not steps_itself and not model.run_eagerly
    is_simple = len(leaves(x)) == len(getattr(model, "inputs", None) or []) == 1
    if is_simple and isinstance(y, keras.KerasTensor) and usual and len(model.outputs) == 1:
        _check_loss(model, leaves(x)[0], y)


def check_inputs(model: keras.Model, loader: Loader) -> None:
    """Raise ModelError if the model's inputs are not of the shapes, or the names, of the parts of x."""
    x, *_ = finished_batch(loader)
    parts = leaves(x)
    if not (getattr(model, "inputs", None) or []):  # no functional model: its inputs are unknown
        return
    single = len(model.inputs) == len(parts) == 1  # then names do not matter
    named = not single and isinstance(getattr(model, "input", None), dict)  # a Sequential may know of none
    takes = model.input if named else {each.name: each for each in model.inputs}
    gets = x if isinstance(x, dict) and not single else dict(zip(takes, parts, strict=False))
    if not gets.keys() >= takes.keys() or (gets is not x and len(parts) != len(takes)):
        found = f"has the parts {', '.join(map(repr, x))}" if isinstance(x, dict) else f"has {len(parts)} parts"
        raise ModelError(
            f"`model` takes {count_text(len(takes), 'input')} ({', '.join(map(repr, takes))}), "
            f"but x {found if isinstance(x, tuple | dict) else 'is one part'}.",
            hint="Give x a part for each input: a tuple in their order, or a dictionary of their names.",
        )
    for name, each in takes.items():
        expected, actual = tuple(each.shape), gets[name].shape
        if not _fits(expected, actual):
            as_what = "" if single else f" as {name!r}"
            raise ModelError(
                f"`model` takes batches of shape {expected}{as_what}, but gets {_batched(actual)}.",
                hint=_shape_hint(expected, actual),
            )


def check_targets(model: keras.Model, train: Loader, test: Any) -> None:
    """Raise ModelError if `test` has no targets, or others, but the model is trained with some: Keras would fail in its
    loss, after an epoch, unless the model has a `test_step` of its own. `test` is a loader, or data that Keras takes,
    in which an array is x alone.
    """
    trained = finished_batch(train)[1]
    if trained is None or type(model).test_step is not keras.Model.test_step:
        return
    other = finished_batch(test)[1] if isinstance(test, Loader) else None
    is_of_x = hasattr(test, "shape") or (isinstance(test, tuple) and len(test) == 1)
    if other is None and (isinstance(test, Loader) or is_of_x):
        raise ModelError(
            "The model is trained with targets, but the samples to evaluate it on have none.",
            hint="Give samples of (x, y); `predict` takes those of x alone.",
        )
    shapes = [[_batched(part.shape) for part in leaves(y)] for y in (trained, other) if y is not None]
    axes = [[len(shape) - (len(shape) > 1 and shape[-1] == 1) for shape in each] for each in shapes]
    if axes[1:] and axes[0] != axes[1]:
        texts = [", ".join(map(str, each)) for each in shapes]
        raise ModelError(
            f"The model is trained with targets of shape {texts[0]}, but those to evaluate it on are {texts[1]}.",
            hint="Read both from sources of the same kind, such as ap.ImageFolder for classes.",
        )


def _check_channels(model: keras.Model) -> None:
    """Refuse channels-first convolutions on a CPU: TensorFlow has no gradient of them, except by XLA."""
    if keras.backend.backend() != "tensorflow" or model.jit_compile:
        return
    import tensorflow as tf

    kinds = (keras.layers.Conv2D, keras.layers.Conv2DTranspose)
    for layer in frameworks.layers(model):
        is_first = isinstance(layer, kinds) and layer.data_format == "channels_first"
        if is_first and not tf.config.list_logical_devices("GPU"):
            raise ModelError(
                "Without a GPU, TensorFlow trains convolutions with channels last only, "
                f"but the layer {layer.name!r} of `model` has channels first.",
                hint='Use channels="last", or compile the model with jit_compile=True.',
            )


def _fits(expected: _Shape, actual: _Shape) -> bool:
    pairs = zip(expected[1:], actual[1:], strict=False)
    return len(expected) == len(actual) and all(want in (None, have) for want, have in pairs)


def _batched(shape: _Shape) -> _Shape:
    return (None, *shape[1:])


def _shape_hint(expected: _Shape, actual: _Shape) -> str:
    if _fits(expected, (None, *actual)):
        return "That is one sample in place of a batch: `dataset[i]` must return a whole batch."
    if len(actual) == 4 and _fits(expected, (actual[0], *actual[2:], actual[1])):
        return (
            'The batches have channels="first", the model is built for channels last: build it by '
            'keras.config.image_data_format() instead of a fixed input shape, or use channels="last".'
        )
    if len(actual) == 4 and _fits(expected, (actual[0], actual[3], *actual[1:3])):
        return 'The batches have channels="last", the model is built for channels first: use channels="first".'
    return "Change the samples (by ops such as Resize, or in your own dataset) or the model's input shape."


def _check_names(model: keras.Model, y: Any) -> None:
    """Refuse targets for all outputs of a model by other names: Keras's error says that a name is no number."""
    outputs = getattr(model, "outputs", None) or []
    if not isinstance(y, dict) or len(outputs) != len(y) or len(y) < 2:
        return
    names = list(model.output if isinstance(model.output, dict) else model.output_names)
    if set(names) != set(y) and type(model).train_step is keras.Model.train_step:
        raise ModelError(
            f"The outputs of `model` are called {', '.join(map(repr, names))}, "
            f"but y has the parts {', '.join(map(repr, y))}.",
            hint="Call the parts of y as the outputs are called, or give them as a tuple in that order.",
        )


def _check_loss(model: keras.Model, x: keras.KerasTensor, y: keras.KerasTensor) -> None:
    output = _symbol(model.outputs[0], x.shape[0])
    try:
        frameworks.output_spec(lambda y, y_pred: model.compute_loss(x=None, y=y, y_pred=y_pred), y, output)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"The loss of `model` cannot compare its output of shape {_batched(output.shape)} "
            f"with targets of shape {_batched(y.shape)} and dtype {y.dtype}: {error}",
            hint="Class numbers need a sparse loss (sparse_categorical_crossentropy); others may need ap.OneHot.",
        ) from error


@contextlib.contextmanager
def built_from(model: keras.Model, loader: Loader) -> Iterator[None]:
    """Build, from the shapes of a finished batch, the parts that Keras would build from the first; no batch is drawn.
    JAX, and TensorFlow on several devices, take a batch to build metrics and unbuilt layers. That would be a compact
    batch, as loaders send it, and it would be lost to training.
    """
    x, y, weight = finished_batch(loader)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(frameworks.built(model, (x, y, weight)))
        except (ValueError, TypeError, RuntimeError) as error:
            shapes, targets = (
                None if slot is None else ", ".join(str(_batched(part.shape)) for part in leaves(slot))
                for slot in (x, y)
            )
            dtypes = ", ".join(sorted({part.dtype for part in leaves(x)}))
            raise ModelError(
                f"`model` does not run on batches of shape {shapes}, {dtypes}, with targets {targets}: {error}"
            ) from error
        yield


# -------------------- applications: models of `keras.applications` by name, for workloads without a model


def build_application(name: str, size: int, classes: int) -> keras.Model:
    """Return a compiled classifier of images of `size` x `size`, with random weights; raise ModelError if it has none.

    The name is as Keras writes it or in lower case: "MobileNetV2", "mobilenet_v2".
    """
    known = {model.lower(): model for model in dir(keras.applications) if model[0].isupper()}
    plain = name.replace("_", "").replace("-", "").lower()
    if plain not in known:
        models = ", ".join(sorted(known.values()))
        raise ModelError(
            f"`{name}` is no model of keras.applications.{near(name, known.values())}", hint=f"It has {models}."
        )
    make: Any = getattr(keras.applications, known[plain])
    try:
        model = make(weights=None, input_shape=(size, size, 3), classes=classes)
    except ValueError as error:
        hint = "Choose another size, on a command line by --image-size, or another model."
        raise ModelError(f"`{name}` cannot be built for images of {size} x {size}: {error}", hint=hint) from error
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


# -------------------- models in the place of a user's: Keras's own `fit` around steps that only take time, or around a
# function of a batch


@dataclasses.dataclass
class _Loss:
    """A zero that is known when the step which computes it is over."""

    timeline: Timeline
    known_at: float

    def __float__(self) -> float:
        self.timeline.wait_until(self.known_at)
        return 0.0


@dataclasses.dataclass
class _Result:
    """What a user's step returned, of which an array is known when the step is over."""

    value: Any

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        detach = getattr(self.value, "detach", None)  # of torch
        return np.asarray(self.value if detach is None else detach().cpu())


@keras.saving.register_keras_serializable(package="autopipe")
class StepModel(keras.Model):
    """Calls a function of the user's with each batch from its iterator."""

    takes_arrays = True
    """Batches stay NumPy arrays on the host: the step places them."""

    def __init__(self, step: OwnStep) -> None:
        super().__init__()
        self.stands_for = step
        self.built = True
        self.compile(optimizer="sgd", jit_compile=False)

    def call(self, inputs: Any) -> Any:
        return keras.ops.zeros((1, 1))

    def make_train_function(self, force: bool = False) -> None:
        step = self.stands_for

        def stepped(batch: Any) -> Any:
            return {"step": keras.tree.map_structure(_Result, step.function(step.shaped(batch)))}

        self.train_function = _function(stepped)

    def get_metrics_result(self) -> dict[str, Any]:
        return {}


@keras.saving.register_keras_serializable(package="autopipe")
class SimulatedModel(keras.Model):
    """Takes each batch from its iterator and lets `seconds` go by; learns nothing."""

    def __init__(self, step_seconds: float, batch_size: int | None = None, **keras_arguments: Any) -> None:
        """Compile at once. The arguments of Keras are for a saved model that is loaded."""
        super().__init__(**keras_arguments)
        self.stands_for, self.timeline = SimulatedAccelerator(step_seconds, batch_size), Timeline()
        self.built = True
        self.compile(optimizer="sgd", jit_compile=False)

    def call(self, inputs: Any) -> Any:
        return keras.ops.zeros((keras.ops.shape(inputs)[0], 1))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | dataclasses.asdict(self.stands_for)

    def get_compile_config(self) -> None:
        """Return None: `__init__` compiles."""

    def make_train_function(self, force: bool = False) -> None:
        self.train_function = self._function(lambda x, loss: {"loss": loss})

    def make_test_function(self, force: bool = False) -> None:
        self.test_function = self._function(lambda x, loss: {"loss": loss})

    def make_predict_function(self, force: bool = False) -> None:
        self.predict_function = self._function(lambda x, loss: keras.ops.zeros((_rows(x), 1)))

    def get_metrics_result(self) -> dict[str, Any]:
        """Wait for the device, as reading a metric does."""
        self.timeline.wait_until(self.timeline.free_at)
        return {"loss": 0.0}

    def _function(self, result: Callable[[Any, _Loss], Any]) -> Callable[..., Any]:
        def step(batch: Any) -> Any:
            x = batch[0] if isinstance(batch, tuple) else batch
            first, *others = _parts(x)
            devices = len(others) + len(getattr(getattr(first, "sharding", None), "device_set", (0,)))
            ends = self.timeline.start(self.stands_for.seconds(_rows(x) // devices))
            return result(x, _Loss(self.timeline, ends))

        return _function(step)


def _function(step: Callable[[Any], Any]) -> Callable[..., Any]:
    if keras.backend.backend() == "jax":
        return lambda state, batches: (step(next(batches)), state)
    return lambda batches: step(batches[0] if isinstance(batches, list) else next(batches))


def _parts(x: Any) -> tuple[Any, ...]:
    """Return the first array of a batch, or its parts if tf.distribute has shared it."""
    x = leaves(x)[0]
    parts = getattr(x, "values", None)
    return parts if isinstance(parts, tuple) else (x,)


def _rows(x: Any) -> int:
    return sum(int(part.shape[0]) for part in _parts(x))
