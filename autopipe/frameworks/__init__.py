"""Private interfaces of Keras, TensorFlow and JAX: autopipe uses them here, and nowhere else.

`tests/contract/test_frameworks.py` checks each function against the oldest and newest versions that pyproject.toml
names; others get a warning. If a name is gone, the error names versions that work. This imports no framework. Here are
Keras, JAX and devices; `tfdata` has datasets of TensorFlow, and `hooks` what is put round a framework's own functions.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from autopipe import again
from autopipe.errors import ConfigError, FrameworkError, FrameworkWarning
from autopipe.frameworks.hooks import standing_in

_Epoch: TypeAlias = Callable[[], Iterator[Any]]
_READERS: dict[str, set[str]] = {"get_jax_iterator": {"super_batch"}}
_READERS |= {f"get_{kind}": set() for kind in ("tf_dataset", "torch_dataloader", "numpy_iterator")}


def data_adapter(open_epoch: _Epoch, steps: int, dataset: Callable[[_Epoch], Any] | None = None) -> Any:
    """Return an object that Keras's `fit`, `evaluate` and `predict` iterate over. It calls `open_epoch` for the
    iterator of each epoch, perhaps once too often, and `dataset` for a dataset of TensorFlow. Raise FrameworkError if
    this Keras reads in another way.
    """
    return _adapter_class()(open_epoch, steps, dataset)


@functools.cache
def _adapter_class() -> type[Any]:
    loaded = {name: getattr(sys.modules[name], "__version__", "0") for name in again.FRAMEWORKS if name in sys.modules}
    if said := again.untested(loaded):  # here, as every training asks for this class once
        warnings.warn(said, FrameworkWarning, stacklevel=2)
    base = imported("keras", "src.trainers.data_adapters.data_adapter", "DataAdapter")
    for name, known in _READERS.items():
        if unknown := inspect.signature(attribute("keras", base, name)).parameters.keys() - known - {"self"}:
            raise _unfit("keras", f"asks for DataAdapter.{name}({', '.join(sorted(unknown))}=...)")
    return type("Feed", (_Feed, base), {})


class _Feed:
    batch_size = partial_batch_size = None
    has_partial_batch = False

    def __init__(self, open_epoch: _Epoch, steps: int, dataset: Callable[[_Epoch], Any] | None) -> None:
        self._open_epoch, self._steps, self._dataset = open_epoch, steps, dataset
        self._has_begun = False

    @property
    def num_batches(self) -> int:
        return self._steps

    def on_epoch_begin(self) -> None:
        self._has_begun = True

    def get_tf_dataset(self) -> Any:
        return _distributed_dataset_class()(self._epoch) if self._dataset is None else self._dataset(self._epoch)

    def get_jax_iterator(self, super_batch: int | None = None) -> Iterator[Any]:
        if not super_batch:
            return self._epoch()
        import jax

        # So many batches as one with a new first axis, which Keras's function loops over, and the rest.
        stack = imported("keras", "src.trainers.data_adapters.data_adapter_utils", "super_batch_iterator")
        return stack(self._epoch(), super_batch, stack_fn=jax.numpy.stack)  # type: ignore[no-any-return]  # Keras has no types

    def _epoch(self) -> Iterator[Any]:
        if not self._has_begun:  # a batch that a model is built from would be missing in training
            raise _unfit("keras", "takes a batch before the epoch begins")
        yield from self._open_epoch()

    get_torch_dataloader = get_numpy_iterator = _epoch


@functools.cache
def _distributed_dataset_class() -> type[Any]:
    import tensorflow as tf

    class Epochs(tf.distribute.DistributedDataset):  # of this interface Keras uses the iterator only
        def __init__(self, open_epoch: Callable[[], Iterator[Any]]) -> None:
            self._open_epoch = open_epoch

        def __iter__(self) -> Iterator[Any]:
            return self._open_epoch()

    return Epochs


def py_dataset_adapter(dataset: Any, *, shuffle: bool = False, epoch: int = 0) -> Any:
    """Return the object by which `fit` reads a `keras.utils.PyDataset`, from an epoch on."""
    adapter = imported("keras", "src.trainers.data_adapters.py_dataset_adapter", "PyDatasetAdapter")
    reader = adapter(dataset, shuffle=shuffle)
    if hasattr(reader, "_epoch"):
        reader._epoch = epoch
    return reader


def draws_by_epoch() -> bool:
    """Return True if Keras shuffles a PyDataset's batches by `random.Random(epoch)`, as from 3.16 on."""
    if "keras" not in sys.modules:
        return False
    enqueuer = imported("keras", "src.trainers.data_adapters.py_dataset_adapter", "OrderedEnqueuer")
    return "epoch" in inspect.signature(enqueuer.start).parameters


def layers(model: Any) -> list[Any]:
    """Return a Keras layer or model and all layers in it."""
    return list(attribute("keras", model, "_flatten_layers")())


def random_layer(function: Any) -> str | None:
    """Return the name of the Keras layer's class if `function` is one, or holds one, that draws random numbers."""
    if (keras := sys.modules.get("keras")) is None or not isinstance(function, keras.Layer):
        return None
    held = ((type(layer).__name__, value) for layer in layers(function) for value in vars(layer).values())
    return next((name for name, value in held if isinstance(value, keras.random.SeedGenerator)), None)


def held_variables(model: Any) -> list[Any]:
    """Return the state in the model that a training step may change: weights, metrics, optimizers, seeds."""
    import keras

    variables = [*model.variables, *model.metrics_variables, *getattr(model.optimizer, "variables", ())]
    if keras.backend.backend() == "tensorflow":  # also those of a `train_step` with optimizers of its own
        import tensorflow as tf

        kinds = (tf.Variable, keras.Variable)
        variables += [each for each in tf.train.TrackableView(model).descendants() if isinstance(each, kinds)]
    return variables


def step_state(model: Any, *more: str) -> tuple[Any, ...]:
    """Return the first arguments of step functions: on JAX variables' values, with "optimizer", "metrics"."""
    import keras

    if keras.backend.backend() != "jax":
        return ()
    kinds = [f"{kind}_variables" for kind in ("trainable", "non_trainable", *more)]
    return (attribute("keras", model, "_get_jax_state")(**dict.fromkeys(kinds, True)),)


def output_spec(function: Callable[..., Any], *symbols: Any) -> Any:
    """Return the shapes and dtypes that a function of Keras tensors returns, without computing anything."""
    return imported("keras", "src.backend", "compute_output_spec")(function, *symbols)


@contextlib.contextmanager
def built(model: Any, batch: Any) -> Iterator[None]:
    """Build the parts that Keras would build from the first batch of data; none is drawn meanwhile. `batch` returns
    symbolic (x, y). Raise ValueError, TypeError or RuntimeError if the compiled model does not run on such batches.
    """
    import keras

    names = ("_symbolic_build", "_maybe_symbolic_build")
    traced = keras.backend.backend() == "tensorflow" and attribute("keras", model, "_distribute_strategy") is None
    if traced or vars(model).get(names[0]) is _nothing:
        yield  # is traced from the first batch, which is trained, too; or is built by a `fit` in which a callback asks
        return
    attribute("keras", model, names[1 if keras.backend.backend() == "tensorflow" else 0])(data_batch=batch)
    with standing_in(model, names[0], _nothing), standing_in(model, names[1], _nothing):
        yield


def _nothing(*_: Any, **__: Any) -> None:
    pass


def compilation(model: Any) -> Any:
    """Return an object that identifies the last call of `model.compile`: another one after each."""
    return attribute("keras", model, "_compile_config")


def loss_is_new(model: Any) -> bool:
    """Return True if a model's loss has compared nothing yet."""
    return not getattr(attribute("keras", model, "_compile_loss"), "built", True)


def take_restored_epoch(model: Any) -> int | None:
    """Return, once, the epoch at which a restored checkpoint continues; None if none was restored."""
    epoch = attribute("keras", model, "_initial_epoch")
    model._initial_epoch = None  # else Keras starts every later `fit` there too
    return None if epoch is None else int(epoch)


def batches_backed_up(callback: Any, epoch: int) -> int:
    """Return the number of finished batches of a restored epoch, for a `BackupAndRestore` that saves within epochs."""
    saved = Path(attribute("keras", callback, "_training_metadata_path"))
    attribute("keras", callback, "_current_epoch")
    callback._current_epoch = epoch  # Keras leaves 0 here, and a backup before the epoch's end would say so
    return int(json.loads(saved.read_text())["batch"]) + 1 if saved.exists() else 0


def reads_logs_later(callbacks: Any) -> bool:
    """Return True if a `CallbackList` reads a step's logs in another thread, because no callback needs them at once."""
    return bool(attribute("keras", callbacks, "_async_train"))


def watch_queues(watch: Callable[[], contextlib.AbstractContextManager[None]]) -> Callable[[], None]:
    """Have Keras empty a PyDataset's queue within `watch()`, at an epoch's end. Return a function that undoes it."""
    kind = imported("keras", "src.trainers.data_adapters.py_dataset_adapter", "PyDatasetEnqueuer")
    stop = attribute("keras", kind, "stop")

    @functools.wraps(stop)
    def watched(*arguments: Any, **named: Any) -> Any:
        with watch():
            return stop(*arguments, **named)

    kind.stop = watched
    return functools.partial(setattr, kind, "stop", stop)


def fitted_on() -> Any:
    """Return the x of the innermost `fit` of Keras that runs, of which its callbacks are not told; None if unknown."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code.co_name == "fit" and "/keras/src/" in frame.f_code.co_filename:
            return frame.f_locals.get("x")
    return None


def running_framework() -> str | None:
    """Return the framework whose threads a fork would lose, without importing any."""
    if (tensorflow := sys.modules.get("tensorflow.python.eager.context")) is not None:
        context = attribute("tensorflow", tensorflow, "context_safe")()
        if context is not None and attribute("tensorflow", context, "_initialized"):
            return "TensorFlow"
    return "JAX" if _jax_runs() else None


def _jax_runs() -> bool:
    jax = sys.modules.get("jax._src.xla_bridge")
    return jax is not None and bool(attribute("jax", jax, "_backends"))


def layer_seeds() -> Any:
    """Return the module of Keras whose `make_default_seed` gives a layer its seed; None if Keras was not imported."""
    return sys.modules.get("keras.src.random.seed_generator")


def steps_eagerly(package: str) -> bool | None:
    """Return whether TensorFlow's step of a training by this package that calls this runs op by op; None if not its."""
    tensorflow = sys.modules.get("tensorflow")
    is_its = package == "tensorflow" or (package == "keras" and sys.modules[package].backend.backend() == "tensorflow")
    return bool(tensorflow.executing_eagerly()) if tensorflow is not None and is_its else None


def require_running(name: str) -> None:
    """Raise ConfigError if TensorFlow traces the loop that `name` is to feed: it would get no new batch."""
    if (tensorflow := sys.modules.get("tensorflow")) is not None and tensorflow.inside_function():
        raise ConfigError(
            f"`{name}` feeds a loop of Python, but stands in a function that tf.function compiles.",
            hint="Take the loop out of it, and put @tf.function above a function that makes one step.",
        )


def jax_rank() -> tuple[int, int]:
    """Return (i, n) of the i-th of n processes of a JAX cluster, else (0, 1), without starting JAX."""
    state = imported("jax", "_src.distributed", "global_state")
    if attribute("jax", state, "client") is None:
        return 0, 1
    return int(attribute("jax", state, "process_id")), int(attribute("jax", state, "num_processes"))


def leave_jax_cluster() -> None:
    """Let this process end without waiting for the others of its cluster, one of which is gone."""
    state = imported("jax", "_src.distributed", "global_state")
    attribute("jax", state, "client")
    state.client = None  # else it waits at exit until the lost process has missed its heartbeats, and is aborted then


def imported(package: str, module: str, name: str) -> Any:
    """Return an attribute of a framework's module. Raise FrameworkError, which names versions that have it."""
    try:
        found = importlib.import_module(f"{package}.{module}")
    except ModuleNotFoundError:
        raise _unfit(package, f"has no {package}.{module}") from None
    return attribute(package, found, name)


def attribute(package: str, owner: Any, name: str) -> Any:
    """Return an attribute of an object of a framework. Raise as `imported`."""
    try:
        return getattr(owner, name)
    except AttributeError:
        kind = getattr(owner, "__name__", type(owner).__name__)
        raise _unfit(package, f"has no {kind}.{name}") from None


def _unfit(package: str, what: str) -> FrameworkError:
    installed = getattr(sys.modules.get(package), "__version__", "of unknown version")
    works = package + again.tested().get(package, "")
    said = f"autopipe works with {works}, but the installed {package} {installed} {what}."
    return FrameworkError(said, hint=f"Run: {again.installing(works)}")


def wait_for_devices() -> None:
    """Wait until devices have computed what they were given, in each framework that uses them already."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and _jax_runs():
        jax.block_until_ready(jax.live_arrays())  # what a loop goes on with; a CPU runs its calls in no fixed order
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if running_framework() == "TensorFlow":
        tensorflow = sys.modules["tensorflow"]
        if tensorflow.executing_eagerly() and tensorflow.config.list_logical_devices("GPU"):
            tensorflow.test.experimental.sync_devices()
