"""Private interfaces of Keras, TensorFlow and JAX: autopipe uses them here, and nowhere else.

`tests/contract/test_frameworks.py` checks each function against the oldest and newest versions that pyproject.toml
names; others get a warning. If a name is gone, the error names versions that work. This imports no framework.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import inspect
import itertools
import json
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, TypeAlias

from autopipe import again
from autopipe.errors import FrameworkError, FrameworkWarning

_Epoch: TypeAlias = Callable[[], Iterator[Any]]
_READERS: dict[str, set[str]] = {"get_jax_iterator": {"super_batch"}}
_READERS |= {f"get_{kind}": set() for kind in ("tf_dataset", "torch_dataloader", "numpy_iterator")}


def data_adapter(open_epoch: _Epoch, steps: int, dataset: Callable[[_Epoch], Any] | None = None) -> Any:
    """Return an object that Keras's `fit`, `evaluate` and `predict` take as `x` and iterate over directly.

    Args:
        open_epoch: returns, whenever an epoch begins, the iterator over its batches. Keras may call it once more than
            it needs, so nothing must be taken before that is advanced.
        steps: the batches of an epoch.
        dataset: makes the `tf.data.Dataset` for TensorFlow from a function like `open_epoch`.

    Raises:
        FrameworkError: the installed Keras reads its data in another way.
    """
    return _adapter_class()(open_epoch, steps, dataset)


@functools.cache
def _adapter_class() -> type[Any]:
    loaded = {name: getattr(sys.modules[name], "__version__", "0") for name in again.FRAMEWORKS if name in sys.modules}
    if said := again.untested(loaded):  # here, as every training asks for this class once
        warnings.warn(said, FrameworkWarning, stacklevel=2)
    base = _imported("keras", "src.trainers.data_adapters.data_adapter", "DataAdapter")
    for name, known in _READERS.items():
        if unknown := inspect.signature(_attribute("keras", base, name)).parameters.keys() - known - {"self"}:
            raise _unfit("keras", f"asks for DataAdapter.{name}({', '.join(sorted(unknown))}=...)")
    return type("Feed", (_Feed, base), {})


class _Feed:
    batch_size = partial_batch_size = None
    has_partial_batch = False

    def __init__(self, open_epoch: _Epoch, steps: int, dataset: Callable[[_Epoch], Any] | None) -> None:
        self._open_epoch = open_epoch
        self._steps = steps
        self._dataset = dataset
        self._has_begun = False

    @property
    def num_batches(self) -> int:
        return self._steps

    def on_epoch_begin(self) -> None:
        self._has_begun = True

    def get_tf_dataset(self) -> Any:
        return _distributed_dataset_class()(self._epoch) if self._dataset is None else self._dataset(self._epoch)

    def get_jax_iterator(self, super_batch: int | None = None) -> Iterator[Any]:
        return _stacked(self._epoch(), super_batch) if super_batch else self._epoch()

    def _epoch(self) -> Iterator[Any]:
        if not self._has_begun:  # a batch that a model is built from would be missing in training
            raise _unfit("keras", "takes a batch before the epoch begins")
        yield from self._open_epoch()

    get_torch_dataloader = get_numpy_iterator = _epoch


@functools.cache
def _distributed_dataset_class() -> type[Any]:
    import tensorflow as tf

    class Epochs(tf.distribute.DistributedDataset):
        """Of this interface Keras uses the iterator only."""

        def __init__(self, open_epoch: Callable[[], Iterator[Any]]) -> None:
            self._open_epoch = open_epoch

        def __iter__(self) -> Iterator[Any]:
            return self._open_epoch()

    return Epochs


def _stacked(batches: Iterator[Any], count: int) -> Iterator[Any]:
    """Return `count` batches as one with a new first axis, which Keras's function loops over, and the rest."""
    import jax

    stack = _imported("keras", "src.trainers.data_adapters.data_adapter_utils", "super_batch_iterator")
    return stack(batches, count, stack_fn=jax.numpy.stack)  # type: ignore[no-any-return]  # Keras has no types


def py_dataset_adapter(dataset: Any, *, shuffle: bool = False, epoch: int = 0) -> Any:
    """Return the object by which `fit` reads a `keras.utils.PyDataset`, from an epoch on."""
    adapter = _imported("keras", "src.trainers.data_adapters.py_dataset_adapter", "PyDatasetAdapter")
    made = adapter(dataset, shuffle=shuffle)
    if hasattr(made, "_epoch"):
        made._epoch = epoch
    return made


def draws_by_epoch() -> bool:
    """Return True if the installed Keras shuffles batches of a PyDataset by `random.Random(epoch)`, as from 3.16 on,
    and calls `on_epoch_begin` before its workers start.
    """
    if "keras" not in sys.modules:
        return False
    enqueuer = _imported("keras", "src.trainers.data_adapters.py_dataset_adapter", "OrderedEnqueuer")
    return "epoch" in inspect.signature(enqueuer.start).parameters


def layers(model: Any) -> list[Any]:
    """Return a Keras layer or model and all layers in it."""
    return list(_attribute("keras", model, "_flatten_layers")())


def random_layer(function: Any) -> str | None:
    """Return the name of the Keras layer's class if `function` is one, or holds one, that draws random numbers."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(function, keras.Layer):
        return None
    held = ((type(layer).__name__, value) for layer in layers(function) for value in vars(layer).values())
    return next((name for name, value in held if isinstance(value, keras.random.SeedGenerator)), None)


def held_variables(model: Any) -> list[Any]:
    """Return the state in the model that a training step may change: weights, metrics, optimizers, seeds."""
    import keras

    found = [*model.variables, *model.metrics_variables, *getattr(model.optimizer, "variables", ())]
    if keras.backend.backend() == "tensorflow":  # also those of a `train_step` with optimizers of its own
        import tensorflow as tf

        kinds = (tf.Variable, keras.Variable)
        found += [each for each in tf.train.TrackableView(model).descendants() if isinstance(each, kinds)]
    return found


def step_state(model: Any, *more: str) -> tuple[Any, ...]:
    """Return the leading arguments of the model's step functions: on JAX the values of its variables, else nothing.

    `more` is "optimizer", "metrics": state that the step changes beside the model's own.
    """
    import keras

    if keras.backend.backend() != "jax":
        return ()
    kinds = [f"{kind}_variables" for kind in ("trainable", "non_trainable", *more)]
    return (_attribute("keras", model, "_get_jax_state")(**dict.fromkeys(kinds, True)),)


def output_spec(function: Callable[..., Any], *symbols: Any) -> Any:
    """Return the shapes and dtypes that a function of Keras tensors returns, without computing anything."""
    return _imported("keras", "src.backend", "compute_output_spec")(function, *symbols)


@contextlib.contextmanager
def built(model: Any, batch: Any) -> Iterator[None]:
    """Build the parts that Keras would build from the first batch of data; none is drawn meanwhile.

    `batch` returns symbolic (x, y). Raise ValueError, TypeError or RuntimeError if the compiled model does not run on
    such batches.
    """
    import keras

    names = ("_symbolic_build", "_maybe_symbolic_build")
    traced = keras.backend.backend() == "tensorflow" and _attribute("keras", model, "_distribute_strategy") is None
    if traced or vars(model).get(names[0]) is _nothing:
        yield  # is traced from the first batch, which is trained, too; or is built by a `fit` in which a callback asks
        return
    _attribute("keras", model, names[1 if keras.backend.backend() == "tensorflow" else 0])(data_batch=batch)
    for name in names:
        setattr(model, name, _nothing)
    try:
        yield
    finally:
        for name in names:
            delattr(model, name)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def compilation(model: Any) -> Any:
    """Return an object that identifies the last call of `model.compile`: another one after each."""
    return _attribute("keras", model, "_compile_config")


def loss_is_new(model: Any) -> bool:
    """Return True if a model's loss has compared nothing yet."""
    return not getattr(_attribute("keras", model, "_compile_loss"), "built", True)


def take_restored_epoch(model: Any) -> int | None:
    """Return, once, the epoch at which a restored checkpoint continues; None if none was restored."""
    epoch = _attribute("keras", model, "_initial_epoch")
    model._initial_epoch = None  # else Keras starts every later `fit` there too
    return None if epoch is None else int(epoch)


def batches_backed_up(callback: Any, epoch: int) -> int:
    """Return the number of finished batches of a restored epoch, for a `BackupAndRestore` that saves within epochs."""
    saved = Path(_attribute("keras", callback, "_training_metadata_path"))
    _attribute("keras", callback, "_current_epoch")
    callback._current_epoch = epoch  # Keras leaves 0 here, and a backup before the epoch's end would say so
    return int(json.loads(saved.read_text())["batch"]) + 1 if saved.exists() else 0


def reads_logs_later(callbacks: Any) -> bool:
    """Return True if a `CallbackList` reads a step's logs in another thread, because no callback needs them at once."""
    return bool(_attribute("keras", callbacks, "_async_train"))


def texts(dataset: Any) -> Iterator[Any]:
    """Yield the vectors of text that a `tf.data.Dataset` is made from, as arrays of bytes: paths of files, say."""
    for each, _ in dataset_ops(dataset):
        for tensor in getattr(each, "_tensors", ()):  # of `from_tensor_slices` and `list_files`
            if tensor.dtype.name == "string" and tensor.shape.rank == 1 and hasattr(tensor, "numpy"):
                yield tensor.numpy()


_LISTS = {"TensorSlice", "Range", "Zip", "Shuffle", "Cache", "Repeat", "Take", "Skip", "Shard", "Prefetch", "Options"}
_KEEPERS = {"CacheDataset", "SnapshotDataset"}  # what stands before them runs once
_MIXERS = {"ShuffleDataset", "DirectedInterleaveDataset"}


def _is_listed(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` gives what it was made from, such as paths."""
    return all(type(each).__name__.strip("_").removesuffix("Dataset") in _LISTS for each, _ in dataset_ops(dataset))


def shuffle_buffer(dataset: Any) -> tuple[int, int | None] | None:
    """Return the elements of the largest shuffle buffer of a `tf.data.Dataset`, and its bytes, or None if the shapes of
    elements are not known; None if it shuffles nothing, lists of paths only, or before a cache.
    """
    found = []
    for each, later in dataset_ops(dataset):
        if type(each).__name__ == "_ShuffleDataset" and _KEEPERS.isdisjoint(later):
            specs = sys.modules["tensorflow"].nest.flatten(each.element_spec)
            shapes = [(spec.shape, spec.dtype.size) for spec in specs if hasattr(spec, "dtype")]
            known = all(shape.is_fully_defined() and width for shape, width in shapes)
            each_bytes = sum(shape.num_elements() * width for shape, width in shapes) if known else None
            count, held = int(_attribute("tensorflow", each, "_buffer_size")), int(each.cardinality())
            count = count if held < 0 else min(count, held)
            if each_bytes is not None or not _is_listed(each):
                found.append((count, None if each_bytes is None else count * each_bytes))
    return max(found, key=lambda buffer: (buffer[1] or 0, buffer[0]), default=None)


def other_seeds() -> contextlib.AbstractContextManager[None]:
    """Give random ops of TensorFlow that are built meanwhile other seeds than the code asks for; without a seed they
    stay as they are, and shuffles of datasets keep their orders.
    """
    import tensorflow as tf

    seeds = _imported("tensorflow", "python.framework", "random_seed")
    orders = _imported("tensorflow", "python.data.util", "random_seed")
    get_seed = _attribute("tensorflow", seeds, "get_seed")

    def other_seed(op_seed: Any) -> tuple[Any, Any]:
        first, second = get_seed(op_seed)
        return first, second if second is None else (second + _OFFSET) % 2**31

    own = types.SimpleNamespace(get_seed=get_seed)
    replaced = [(seeds, "get_seed", other_seed), (orders, "random_seed", own)]
    return _traced_anew(lambda seed: tf.convert_to_tensor(seed) + _OFFSET, replaced)


def constant_numbers() -> contextlib.AbstractContextManager[None]:
    """Have random ops of TensorFlow that are traced meanwhile give the same numbers for each sample, whatever the seed.

    Ops that run at once, and shuffles of datasets, are random as ever.
    """
    import tensorflow as tf

    ops = _imported("tensorflow", "python.ops", "gen_random_ops")

    def constant(name: str) -> Callable[..., Any]:
        drawn = _attribute("tensorflow", ops, name)

        def draw(shape: Any, *limits: Any, **named: Any) -> Any:
            if tf.executing_eagerly():
                return drawn(shape, *limits, **named)
            if name == "random_uniform_int":
                return tf.zeros(shape, tf.convert_to_tensor(limits[0] if limits else named["minval"]).dtype)
            return tf.fill(shape, tf.cast(0.5, limits[0] if limits else named["dtype"]))

        return draw

    replaced = [(ops, name, constant(name)) for name in _DRAWN]
    return _traced_anew(lambda seed: seed if tf.executing_eagerly() else tf.zeros_like(seed), replaced)


@contextlib.contextmanager
def _traced_anew(key: Callable[[Any], Any], replaced: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes of TensorFlow's modules meanwhile, and have functions traced anew, as they keep their ops. Ops
    without a state draw by `key(seed)`.
    """
    import tensorflow as tf

    keys, function = _imported("tensorflow", "python.ops", "random_ops_util"), type(tf.function(lambda: None))
    get_key, call = _attribute("tensorflow", keys, "get_key_counter_alg"), function.__call__
    replaced = [
        *replaced,
        (keys, "get_key_counter_alg", lambda seed, alg: get_key(key(seed), alg)),
        (function, "__call__", lambda self, *given, **named: call(tf.function(self.python_function), *given, **named)),
    ]
    with contextlib.ExitStack() as undo:
        for owner, name, value in replaced:
            undo.callback(setattr, owner, name, _attribute("tensorflow", owner, name))
            setattr(owner, name, value)
        yield


_OFFSET = 7919  # of other seeds
_DRAWN = ("random_uniform", "random_uniform_int", "random_standard_normal", "truncated_normal")


def dataset_ops(dataset: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield a `tf.data.Dataset` and each one that it is made from, with the names of the classes that come after it."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(dataset, ())]
    while pending:
        each, later = pending.pop()
        yield each, later
        inputs = getattr(each, "_inputs", None)
        names = (type(each).__name__.strip("_"), *later)
        pending += [(one, names) for one in (inputs() if callable(inputs) else ())]


def splits_anew(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` is a part of what a shuffle gives in another order each time."""
    orders = (later for each, later in dataset_ops(dataset) if _shuffles_anew(each))
    until = (itertools.takewhile(lambda name: name not in ("RepeatDataset", *_KEEPERS), later) for later in orders)
    return any(not {"TakeDataset", "SkipDataset", "ShardDataset"}.isdisjoint(each) for each in until)


def _shuffles_anew(one: Any) -> bool:
    if type(one).__name__ != "_ShuffleDataset":
        return False
    return _attribute("tensorflow", one, "_reshuffle_each_iteration") is not False


def zips_apart(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` puts tensors of several kinds together that are each shuffled on their own."""

    def seeds(part: Any) -> set[tuple[int, ...]]:
        return {(int(a._seed), int(a._seed2)) for a, _ in dataset_ops(part) if type(a).__name__ == "_ShuffleDataset"}

    zips = [each._inputs() for each, _ in dataset_ops(dataset) if type(each).__name__ == "_ZipDataset"]
    pairs = [(one, other) for parts in zips for one, other in itertools.pairwise(parts) if seeds(one) and seeds(other)]
    specs = [(a.element_spec, b.element_spec) for a, b in pairs if seeds(a) != seeds(b) or (0, 0) in seeds(a)]
    return any(one != other and hasattr(one, "dtype") and hasattr(other, "dtype") for one, other in specs)


def loses_cache(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` takes less than its `cache` would hold, so that TensorFlow throws that away.
    A shuffle may read on to the cache's end; of a dataset of unknown length nothing is said.
    """
    takes = [each for each, _ in dataset_ops(dataset) if type(each).__name__ == "_TakeDataset"]
    pairs = ((each, whole) for each in takes for whole in each._inputs())
    short = [whole for each, whole in pairs if 0 <= int(each.cardinality()) < int(whole.cardinality())]
    caches = (later for whole in short for each, later in dataset_ops(whole) if type(each).__name__ == "CacheDataset")
    return any({"RepeatDataset", "ShuffleDataset"}.isdisjoint(later) for later in caches)


def cached(dataset: Any) -> Iterator[str]:
    """Yield what is wrong with each `cache` or `snapshot` of a `tf.data.Dataset`: it keeps "endless" data, "lists" as
    of paths, "changes" that a `map` before it makes with random numbers, or the "order" of a shuffle.
    """
    for each, later in dataset_ops(dataset):
        if type(each).__name__.strip("_") in _KEEPERS:
            before = [one for one, _ in dataset_ops(each)]
            functions = filter(None, (getattr(one, "_map_func", None) for one in before))
            kinds = ["lists"] * _is_listed(each) + ["changes"] * any(map(_draws, functions))
            kinds += ["order"] * (any(map(_shuffles_anew, before)) and _MIXERS.isdisjoint(later))
            yield from ["endless"] if int(each.cardinality()) == -1 else kinds


def _draws(function: Any) -> bool:
    """Return True if a function of a dataset draws random numbers, by TensorFlow's ops or from a Keras layer's seed."""
    graph = _attribute("tensorflow", function, "function").graph.as_graph_def()
    ops = {node.op for node in itertools.chain(graph.node, *(each.node_def for each in graph.library.function))}
    by_layer = any(op.startswith("Assign") for op in ops) and any(op.startswith("StatelessRandom") for op in ops)
    return by_layer or any(op.startswith(("Random", "TruncatedNormal", "RngReadAndSkip")) for op in ops)


def watch_queues(watch: Callable[[], contextlib.AbstractContextManager[None]]) -> Callable[[], None]:
    """Enter `watch()` where Keras empties the queue of a PyDataset's workers, at the end of an epoch: it waits for the
    batches in it, and keeps them for the next epoch. Return what ends that.
    """
    kind = _imported("keras", "src.trainers.data_adapters.py_dataset_adapter", "PyDatasetEnqueuer")
    stop = _attribute("keras", kind, "stop")

    @functools.wraps(stop)
    def watched(*arguments: Any, **named: Any) -> Any:
        with watch():
            return stop(*arguments, **named)

    kind.stop = watched
    return functools.partial(setattr, kind, "stop", stop)


def running_framework() -> str | None:
    """Return the framework whose threads a fork would lose, without importing any."""
    tensorflow = sys.modules.get("tensorflow.python.eager.context")
    if tensorflow is not None:
        context = _attribute("tensorflow", tensorflow, "context_safe")()
        if context is not None and _attribute("tensorflow", context, "_initialized"):
            return "TensorFlow"
    jax = sys.modules.get("jax._src.xla_bridge")
    if jax is not None and _attribute("jax", jax, "_backends"):
        return "JAX"
    return None


def jax_rank() -> tuple[int, int]:
    """Return (i, n) of the i-th of n processes that JAX trains in together; (0, 1) outside of a cluster.

    `jax.process_count()` would tell, too, but starts JAX, after which its devices are fixed.
    """
    state = _imported("jax", "_src.distributed", "global_state")
    if _attribute("jax", state, "client") is None:
        return 0, 1
    return int(_attribute("jax", state, "process_id")), int(_attribute("jax", state, "num_processes"))


def leave_jax_cluster() -> None:
    """Let this process end without waiting for the others of its cluster, one of which is gone."""
    state = _imported("jax", "_src.distributed", "global_state")
    _attribute("jax", state, "client")
    state.client = None  # else it waits at exit until the lost process has missed its heartbeats, and is aborted then


def _imported(package: str, module: str, name: str) -> Any:
    try:
        found = importlib.import_module(f"{package}.{module}")
    except ModuleNotFoundError:
        raise _unfit(package, f"has no {package}.{module}") from None
    return _attribute(package, found, name)


def _attribute(package: str, owner: Any, name: str) -> Any:
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
    backends = sys.modules.get("jax._src.xla_bridge")
    if jax is not None and backends is not None and _attribute("jax", backends, "_backends"):
        jax.block_until_ready(jax.live_arrays())  # what a loop goes on with; a CPU runs its calls in no fixed order
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if "tensorflow.python.eager.context" in sys.modules and running_framework() == "TensorFlow":
        tensorflow = sys.modules["tensorflow"]
        if tensorflow.executing_eagerly() and tensorflow.config.list_logical_devices("GPU"):
            tensorflow.test.experimental.sync_devices()


_READS = (  # module, class whose subclasses are meant as well, and the method by which a loop reads a batch
    ("keras.src.trainers.data_adapters.py_dataset_adapter", "PyDataset", "__getitem__"),
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", "__next__"),
    ("tensorflow.python.distribute.input_lib", "DistributedIteratorBase", "__next__"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__"),
    ("grain", "DatasetIterator", "__next__"),
    ("grain", "DataLoaderIterator", "__next__"),
)
_STEPS = (  # module, class and function that only a training calls, in each step
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
    ("tensorflow.python.eager.backprop", "GradientTape", "gradient"),
    ("torch", "Tensor", "backward"),
)
_TRAINS = (("jax", "", "grad"), ("jax", "", "value_and_grad"))  # the same, once, perhaps before its loop
_LOOPS = ("keras", "tensorflow", "torch", "grain")  # whose own loops are no user's


def watch_loops(
    read: Callable[..., Any], own: Callable[..., Any], stepped: Callable[[], None], trains: Callable[[], None]
) -> None:
    """From the import of a framework on, have `read(function, data, *arguments)` called where a loop that is not the
    framework's own takes a batch by `function(data, *arguments)`, `own(...)` where one of its own does, `stepped()`
    where a training step is made, and `trains()` where one is prepared.
    """

    def reading(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def taken(data: Any, *arguments: Any) -> Any:
            frame = sys._getframe(1)
            while "traceback_util" in frame.f_code.co_filename and frame.f_back is not None:
                frame = frame.f_back
            is_own = any(f"-packages/{package}/" in frame.f_code.co_filename for package in _LOOPS)
            return (own if is_own else read)(function, data, *arguments)

        return taken

    def telling(told: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            told()
            return function(*arguments, **named)

        return called

    tells_steps, tells_trainings = functools.partial(telling, stepped), functools.partial(telling, trains)
    for wrapper, places in ((reading, _READS), (tells_steps, _STEPS), (tells_trainings, _TRAINS)):
        for module, kind, name in places:
            put_in = functools.partial(_put_in, kind=kind, name=name, wrapper=wrapper)
            after_import(module, put_in)


def _put_in(module: types.ModuleType, *, kind: str, name: str, wrapper: Callable[..., Any]) -> None:
    """Wrap a function of a module, or that method of one of its classes and of all that are derived from it."""
    owner = getattr(module, kind, None) if kind else module
    pending = [] if owner is None else [owner]
    while pending:
        each = pending.pop()
        if name in vars(each):
            setattr(each, name, wrapper(vars(each)[name]))
        pending += each.__subclasses__() if kind else []
    if isinstance(owner, type) and name == "__getitem__":
        base: Any = owner

        def derived(cls: Any, /, **arguments: Any) -> None:
            super(base, cls).__init_subclass__(**arguments)
            if name in vars(cls):
                setattr(cls, name, wrapper(vars(cls)[name]))

        setattr(owner, "__init_subclass__", classmethod(derived))  # noqa: B010  mypy takes it for a method


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module right after its first import."""

    def __init__(self, name: str, then: Callable[[types.ModuleType], None]) -> None:
        self._name, self._then, self._looking = name, then, False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            return spec
        executed = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            sys.meta_path.remove(self)  # not before: `import tensorflow` only asks where keras is
            executed(module)
            self._then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def after_import(name: str, then: Callable[[types.ModuleType], None]) -> Callable[[], None]:
    """Call `then` with a module after its import, or at once if it is there. Return a function that stops that."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        then(module)
        return lambda: None
    sys.meta_path.insert(0, hook := _AfterImport(name, then))
    return lambda: sys.meta_path.remove(hook) if hook in sys.meta_path else None
