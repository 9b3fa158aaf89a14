"""Reads a foreign dataset epoch by epoch: a `tf.data.Dataset`, a `keras.utils.PyDataset` by Keras's adapter, or another
iterable of batches: a generator, a Grain dataset.

Nothing here knows the dataset's function; `autopipe.pipeline.wrap` does. Workers that make batches by their index are
in `indexed`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import dis
import functools
import importlib
import io
import itertools
import pickle
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import cloudpickle
import numpy as np

from autopipe import errors, frameworks
from autopipe.errors import DataError, WorkloadError, shortened, told
from autopipe.hardware import machine
from autopipe.pipeline.batching import pickling, stream, torch_batches
from autopipe.workload.ops.planner import normalise
from autopipe.workload.sample import SLOTS, Batch, Structure, keyed, label, leaves, mapped, paths_of

_TENSORS_ENDLESS = -1  # tf.data.INFINITE_CARDINALITY
_ENDLESS = 2**31  # batches: a Grain dataset that repeats for ever says so many or more
BatchForm: TypeAlias = Literal["arrays", "elements"]
"""NumPy arrays, or what `fit` gets with TensorFlow as Keras's backend."""
Shapes: TypeAlias = Mapping[Any, Sequence[int | None]]
"""By a part's key in x, None if x is one part; axes of any length are None."""

_LEAST_SIDE = 16  # pixels of what may be an image
_SHOWN = 4  # parts of a tuple or list, in a message
_AXES_OF_IMAGES = 4  # of a batch of them
_NUMBERS = "biuf"  # kinds of NumPy's dtypes
_NO_DATASETS = (tuple, list, dict, set, str, bytes, np.ndarray)


def has_index(dataset: Any) -> bool:
    """Return True if `dataset[i]` gives an object of `len(dataset)`: a batch, if it is a dataset of batches."""
    kind = type(dataset)
    return not isinstance(dataset, _NO_DATASETS) and hasattr(kind, "__getitem__") and hasattr(kind, "__len__")


def counts_on(dataset: Any) -> bool:
    """Return True if `dataset[i]` is a batch for every number: of Keras without a length, of Grain without an end."""
    keras = sys.modules.get("keras")
    if has_index(dataset):
        return length_of(dataset) >= _ENDLESS
    return keras is not None and isinstance(dataset, keras.utils.PyDataset)


def has_batches(dataset: Any) -> bool:
    """Return True if `dataset[i]` is a batch of an object that is no function."""
    return has_index(dataset) or counts_on(dataset)


def is_read_again(dataset: Any) -> bool:
    """Return True for an object of which each `for` reads all batches."""
    return isinstance(dataset, Iterable) and not isinstance(dataset, (*_NO_DATASETS, Iterator))


class Packed:
    """Batches of any form, texts and nested lists too, each as the bytes of its pickle: one sample of any length."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.of_samples = dataset, torch_batches.samples_of(dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return np.frombuffer(cloudpickle.dumps(self.dataset[index]), np.uint8)[None]  # of classes of a script, too

    @staticmethod
    def unpacked(x: Any) -> Any:
        return pickle.loads(x[0].data)  # noqa: S301  # from a worker of this process


class Feeder:
    """A dataset of any kind, read epoch by epoch: from its start, or, if it goes on, from the end of the last epoch."""

    by_index = False  # whether an epoch is `dataset[i]` of each number below its length, or of the next numbers

    def __init__(self, length: int | None, *, goes_on: bool, is_endless: bool) -> None:
        self.length = length  # batches of an epoch; None if unknown or endless
        self.goes_on = goes_on  # whether it has no end, or an epoch is a part of it
        self.is_endless = is_endless  # whether it is known to have no end
        self.dataset: Any = None  # the user's own; None while it is being read, if it can be read only once
        self.outline: Any = None  # of its batches, if it is known and those that are read here look otherwise
        self.numbers = itertools.count()  # of the epochs that begin next
        self._running: dict[str, Iterator[Any]] = {}

    def shapes(self) -> Shapes | None:
        """Return the known shapes of the parts of x; None if only the batches tell."""
        return None

    def begin(self, form: BatchForm) -> Iterable[Any]:
        """Return all batches from the start."""
        raise NotImplementedError

    def epoch(self, form: BatchForm) -> Generator[Any, None, None]:
        """Begin an epoch, or continue after the last one, and yield its batches."""
        if not self.goes_on:
            yield from self.begin(form)
            return
        empty = False
        while not empty:  # one that goes on, and ends after all, is begun anew
            if empty := form not in self._running:
                self._running[form] = iter(self.begin(form))
            try:
                for element in itertools.chain(self._running[form]):  # else it would be closed with the epoch
                    empty = False
                    yield element
            except Exception:
                del self._running[form]  # it cannot go on
                raise
            del self._running[form]


class _Tensors(Feeder):
    def __init__(self, dataset: Any, steps: int | None) -> None:
        count = int(dataset.cardinality())
        goes_on = count < 0 or steps not in (None, count)  # as in `fit(dataset, steps_per_epoch=...)`
        super().__init__(count if count >= 0 else None, goes_on=goes_on, is_endless=count == _TENSORS_ENDLESS)
        self.dataset, self.outline = dataset, in_containers(lambda spec: "tensorflow", dataset.element_spec)

    def shapes(self) -> Shapes | None:
        spec = self.dataset.element_spec
        slots = tuple(spec) if isinstance(spec, tuple | list) else (spec,)
        for part in itertools.chain.from_iterable(map(leaves, slots)):
            if (kind := type(part).__name__) in ("SparseTensorSpec", "RaggedTensorSpec"):
                raise _not_dense(kind.removesuffix("Spec"))
        shapes: dict[Any, Any] = {key: getattr(part, "shape", None) for key, part in keyed(slots[0]).items()}
        if any(shape is None or shape.rank is None for shape in shapes.values()):
            return None
        return {key: tuple(shape) for key, shape in shapes.items()}

    def begin(self, form: BatchForm) -> Iterable[Any]:
        return self.dataset.as_numpy_iterator() if form == "arrays" else self.dataset  # type: ignore[no-any-return]  # TensorFlow has no types


class _Sequence(Feeder):
    def __init__(self, dataset: Any, steps: int | None, *, shuffle: bool) -> None:
        self._adapter = frameworks.py_dataset_adapter(dataset, shuffle=shuffle)
        count = self._adapter.num_batches
        goes_on = count is None or steps not in (None, count)  # without a length, Keras reads on for ever
        super().__init__(None if count is None else int(count), goes_on=goes_on, is_endless=count is None)
        self.dataset = dataset
        counts = steps in (None, count) if count is not None else steps is not None and counts_on(dataset)
        self.by_index = counts and not takes_next(dataset)

    def begin(self, form: BatchForm) -> Iterable[Any]:
        if form == "arrays":
            return self._adapter.get_numpy_iterator()  # type: ignore[no-any-return]  # Keras has no types
        return self._tensors  # type: ignore[no-any-return]

    @functools.cached_property
    def _tensors(self) -> Any:
        return self._adapter.get_tf_dataset()

    def epoch(self, form: BatchForm) -> Generator[Any, None, None]:
        if forks(self.dataset):
            stream.require_safe_fork()
        self._adapter.on_epoch_begin()
        try:
            yield from super().epoch(form)
        finally:
            self._adapter.on_epoch_end()


def forks(dataset: Any) -> bool:
    """Return True for a `PyDataset` whose batches Keras has made by processes that it forks."""
    return bool(getattr(dataset, "use_multiprocessing", False)) and dataset.workers > 0


def race_of_workers(dataset: Any) -> str | None:
    """Say so if what a PyDataset's batches hold depends on which of Keras's workers comes first."""
    if (stale := _stale_batches(dataset)) is not None or not (names := takes_next(dataset)):
        return stale
    kind = type(dataset).__name__
    return (
        f"`{kind}[i]` does not use its index: it takes the next of {', '.join(f'`{name}`' for name in names)}. Several "
        "workers take them in turns, so that x and y of a batch may be of different samples. Ask each for the index, "
        f"`self.{names[0]}[index]`, or use one worker."
    )


def _stale_batches(dataset: Any) -> str | None:
    """Say so if Keras's workers may make batches of a PyDataset before `on_epoch_begin` has changed it."""
    usual = getattr(getattr(sys.modules.get("keras"), "utils", None), "PyDataset", None)
    if usual is None or not isinstance(dataset, usual) or type(dataset).on_epoch_begin is usual.on_epoch_begin:
        return None
    if frameworks.draws_by_epoch() or not (dataset.workers > 1 or forks(dataset)):
        return None
    which = "batches of an epoch" if forks(dataset) else "the first batches of an epoch"
    return (
        f"Keras {sys.modules['keras'].__version__} starts its workers before it calls `{type(dataset).__name__}."
        f"on_epoch_begin`, so that {which} may be of an old draw. Draw in `on_epoch_end`, which ends before they start."
    )


def takes_next(dataset: Any) -> list[str]:
    """Return the iterators of which a dataset takes the next elements, whatever index it is asked for."""
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    if code is None or code.co_argcount < _SELF_AND_INDEX:
        return []
    named = [each.argval for each in dis.get_instructions(code)]
    if code.co_varnames[1] in itertools.chain(*(each if isinstance(each, tuple) else [each] for each in named)):
        return []
    held = getattr(dataset, "__dict__", {}).items()
    return [name for name, each in held if hasattr(each, "__next__") and not isinstance(each, io.IOBase)]


_SELF_AND_INDEX = 2


class _Iterable(Feeder):
    def __init__(self, dataset: Any, again: Callable[[], Any], steps: int | None) -> None:
        if not torch_batches.fits_workers(dataset):  # which others can make
            stream.require_safe_workers(dataset)
        self._again = again
        try:
            count = len(dataset)  # not all have one
        except TypeError:
            count = -1
        length = count if 0 <= count < _ENDLESS else None
        super().__init__(length, goes_on=length is None or steps not in (None, length), is_endless=count >= _ENDLESS)
        self.dataset = dataset
        self.by_index = (
            (has_index(dataset) or torch_batches.fits_workers(dataset))
            and not takes_next(dataset)
            and (not self.goes_on or (steps is not None and counts_on(dataset)))
        )
        # A generator may fill the same array again, which a step in the background still reads.
        self._owned = type(dataset).__module__.partition(".")[0] in ("grain", "torch")

    def shapes(self) -> Shapes | None:
        return {None: (None, None)} if isinstance(self.dataset, Packed) else None

    def begin(self, form: BatchForm) -> Iterable[Any]:
        dataset, self.dataset = self.dataset, None
        if dataset is None:  # it can be read only once
            dataset = self._again()
        stream.require_safe_workers(dataset)
        torch_batches.set_epoch(dataset, next(self.numbers))
        if not isinstance(dataset, Iterator):
            self.dataset = dataset
        has_end = self.by_index and self.length is not None and has_index(dataset)
        return map(self._own, map(dataset.__getitem__, range(self.length or 0)) if has_end else dataset)

    def _own(self, element: Any) -> tuple[Any, ...]:
        self.outline = outline_of(element)
        copy = np.asarray if self._owned else np.array
        return tuple(None if slot is None else mapped(copy, slot) for slot in parts_of(element))


def feeder(dataset: Any, call: str, steps: int | None, again: Callable[[], Any], *, shuffle: bool = False) -> Feeder:
    """Return the reader of what `call` returned; `again` makes it once more. Raise WorkloadError for no dataset."""
    # Imported already, if the dataset is one of theirs.
    if has_index(dataset):
        length_of(dataset)
    tensorflow, keras = sys.modules.get("tensorflow"), sys.modules.get("keras")
    if tensorflow is not None and isinstance(dataset, tensorflow.data.Dataset):
        return _Tensors(dataset, steps)
    if keras is not None and isinstance(dataset, keras.utils.PyDataset):
        return _Sequence(dataset, steps, shuffle=shuffle)
    if has_index(dataset) or is_read_again(dataset) or isinstance(dataset, Iterator):
        return _Iterable(dataset, again, steps)
    raise WorkloadError(
        f"`{call}` must return batches: a tf.data.Dataset, a keras.utils.PyDataset, a generator, a Grain dataset or "
        f"another iterable of them; but it returned {shortened(dataset)}.",
        hint="Is a `return` missing?"
        if dataset is None
        else "Arrays need no wrapping: ap.Workload(data=ap.Arrays(x, y), ...)."
        if isinstance(dataset, tuple | list | np.ndarray)
        else None,
    )


# -------------------- what all batches of a dataset are like


def parts_of(element: Any) -> tuple[Any, ...]:
    """Return a batch as (x,), (x, y) or (x, y, sample_weight). Raise WorkloadError if it has another form."""
    slots = tuple(element) if isinstance(element, tuple | list) else (element,)
    parts = [part for slot in slots if slot is not None for part in leaves(slot)]
    if not 1 <= len(slots) <= len(SLOTS) or not parts or not all(len(getattr(part, "shape", ())) > 0 for part in parts):
        listed = " Give a tuple in place of a list of arrays." if any(isinstance(slot, list) for slot in slots) else ""
        raise WorkloadError(
            "A wrapped dataset must give batches x, (x, y) or (x, y, sample_weight), of an array each, or of tuples or "
            f"dictionaries of arrays, but gave {_outline(element)}.",
            hint="If that is one sample, batch it; or pass ap.Workload(data=...) a source whose `read(i)` returns it."
            f"{listed} Tuples and dictionaries within others cannot be wrapped.",
        )
    return slots


def _outline(element: Any) -> str:
    if isinstance(element, dict):
        return f"{{{', '.join(f'{key!r}: {_outline(value)}' for key, value in element.items())}}}"
    if isinstance(element, tuple | list):
        inside = ", ".join(map(_outline, element[:_SHOWN])) + ", …" * (len(element) > _SHOWN)
        return f"({inside})" if isinstance(element, tuple) else f"[{inside}]"
    shape = getattr(element, "shape", None)
    return shortened(element) if shape is None else f"array {tuple(shape)}"


def flat(element: Any, structure: Structure | None) -> tuple[Any, ...]:
    """Return a batch as (x, y, *others). Raise WorkloadError if it is none, or built unlike the first one."""
    slots = parts_of(element)
    if structure is None and len(slots) < len(SLOTS):
        return slots if len(slots) > 1 else (*slots, None)
    try:
        return normalise(slots, structure)
    except DataError as error:
        raise WorkloadError(f"A wrapped dataset must give batches that are built alike. {error.message}") from error


def bytes_of(batch: Any) -> list[bytes]:
    """Return the values of each part of a batch."""
    return [np.asarray(part).tobytes() for slot in parts_of(batch) if slot is not None for part in leaves(slot)]


def in_containers(function: Callable[[Any], Any], element: Any) -> Any:
    """Return a batch in the same tuples, lists and dictionaries, with a function applied to each part that is there."""
    if isinstance(element, dict):
        return {key: in_containers(function, part) for key, part in element.items()}
    if isinstance(element, tuple | list):
        parts, kind = [in_containers(function, part) for part in element], type(element)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return None if element is None else function(element)


def outline_of(element: Any) -> Any:
    """Return what other batches of a dataset look like: the containers of this one, with the package of each array."""
    return in_containers(
        lambda part: "masked" if np.ma.isMA(part) else type(part).__module__.partition(".")[0], element
    )


def comes_back(outline: Any) -> bool:
    """Return True if `rebuilt` gives batches of the same kinds, and no arrays in the place of tables, say."""
    packages = set[str]()
    in_containers(packages.add, outline)
    return packages <= {"jaxlib", "numpy", "tensorflow", "torch"}


def rebuilt(outline: Any, parts: Iterable[Any]) -> Any:
    """Return NumPy arrays, without those that are missing, as a batch with such an outline: the inverse of `flat`."""
    parts = iter(parts)

    def made(package: str) -> Any:
        array = next(parts)
        if package == "torch":
            torch = importlib.import_module(package)
            tensor = torch.from_numpy(array)
            return tensor.pin_memory() if torch.cuda.is_available() else tensor
        if package == "tensorflow":
            return importlib.import_module(package).convert_to_tensor(array)
        return importlib.import_module("jax").numpy.asarray(array) if package == "jaxlib" else array

    return in_containers(made, outline)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """What all batches of a dataset are like, by its first ones."""

    batch_size: int
    structure: Structure | None
    dtypes: tuple[np.dtype[Any] | None, ...]  # of each part
    shapes: Mapping[int, tuple[int | None, ...]]  # of a sample's parts in x, by number; axes of any length are None
    against_threads: str | None = None  # why `dataset[i]` must not run in several at once, if that was seen

    def unlike(self, batch: Batch) -> int | None:
        """Return the number of a part of x of another shape, which fewer samples are not; None if there is none."""
        for number, like in self.shapes.items():
            rows, *shape = batch[number].shape
            fits = len(shape) == len(like) and all(b in (None, a) for a, b in zip(shape, like, strict=True))
            if not 0 < rows <= self.batch_size or not fits:
                return number
        return None

    def checked(self, element: Any, call: str) -> Batch:
        """Return the parts of the batch that `call` returned as arrays. Raise WorkloadError if it is unlike others."""
        batch = tuple(None if part is None else np.asarray(part) for part in flat(element, self.structure))
        labels = tuple(map(label, paths_of(self.structure)))
        rows = {name: len(part) for name, part in zip(labels, batch, strict=True) if part is not None}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{count} in {name}" for name, count in rows.items())
            raise WorkloadError(
                f"`{call}` must be a batch with as many samples in each of its parts, but there are {listed}.",
                hint="`dataset[i]` returns a whole batch, and not one sample.",
            )
        unlike = self.unlike(batch)
        for number, (name, part, dtype) in enumerate(zip(labels, batch, self.dtypes, strict=True)):
            if (part is None) != (dtype is None):
                there = "has no" if part is None else "has a"
                raise WorkloadError(f"All batches must have the parts of the first one, but `{call}` {there} {name}.")
            if part is not None and (part.dtype != dtype or number == unlike):
                axes = (self.batch_size, *self.shapes.get(number, part.shape[1:]))
                like = ", ".join("any" if axis is None else str(axis) for axis in axes)
                raise WorkloadError(
                    f"All batches must be like the first one, in which {name} is ({like}) {dtype}, but in `{call}` it "
                    f"is {part.shape} {part.dtype}.",
                    hint="Pad, crop or convert it in `__getitem__`. Only an axis in which the first two batches differ "
                    "may be of any length, and a batch may have fewer samples than the first, but not none.",
                )
        return batch


def like_one_image(batch: Batch) -> str | None:
    """Say that a batch looks like one image, in place of several, if so: its rows are taken for samples."""
    x, y = batch[:2]
    if x is None or x.ndim != _AXES_OF_IMAGES - 1 or x.shape[2] not in (1, 3, 4) or min(x.shape[:2]) < _LEAST_SIDE:
        return None
    if x.dtype != np.uint8 and (y is None or y.shape[:2] != x.shape[:2]):  # bytes, or a mask beside it
        return None
    return (
        f"The dataset gives x of the shape {x.shape}, which looks like one image: its {x.shape[0]} rows are taken for "
        "samples, and counted as images. If it is one image, let the dataset give batches, such as by `.batch(32)`."
    )


def length_of(dataset: Any) -> int:
    """Return the length of a dataset with an index; raise WorkloadError if it has none."""
    try:
        return len(dataset)
    except Exception as error:
        raise WorkloadError(
            f"`{type(dataset).__name__}.__len__` must return the number of batches, but it raised {told(error)}."
        ) from error


def batch_at(dataset: Any, index: int, length: int) -> Any:
    """Return `dataset[index]`; raise WorkloadError, with the index and the user's line, if that raises."""
    try:
        return errors.called(dataset.__getitem__, index)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        if isinstance(error, errors.AutopipeError | MemoryError):
            raise
        said = errors.raised(f"{type(dataset).__name__}[{index}]", error)
        hint = "Call it by hand to see the whole traceback."
        if isinstance(error, IndexError):
            said += f"; `__len__` says that there are {length} batches"
            hint = f"If there are fewer, let `__len__` return their number. {hint}"
        raise WorkloadError(f"{said}.", hint=hint) from error


def copied(dataset: Any) -> Any:
    """Return a copy that can be asked for batches in the place of a user's dataset, which asking may change. Beside it
    is shared what cannot be copied and has no place in a sequence, such as a lock, a file or the handle of a library,
    and what memory has no room for. A generator that a method of the dataset made begins anew, as that of Keras's
    ImageDataGenerator. Raise WorkloadError if something else cannot be copied.
    """
    if torch_batches.is_loader(dataset):
        return torch_batches.copied(dataset)
    room = machine.detect_memory().available_bytes // 2
    try:
        twin = (copy.copy if hasattr(dataset, "__dict__") else copy.deepcopy)(dataset)
    except Exception as error:
        raise _not_copied(type(dataset).__name__, error) from error
    known: dict[int, Any] = {id(dataset): twin}
    for name, value in list(getattr(dataset, "__dict__", {}).items()):
        if isinstance(value, np.memmap) or getattr(value, "nbytes", 0) > room:
            continue
        try:
            vars(twin)[name] = copy.deepcopy(value, known)
        except Exception as error:
            if (method := _maker(dataset, value)) is not None:
                vars(twin)[name] = method(twin)
            elif isinstance(value, Iterator) and not isinstance(value, io.IOBase):
                raise _not_copied(f"{type(dataset).__name__}.{name}", error) from error
    for each in {id(each): each for each in known.values()}.values():
        _without_end(each)
    return twin


def _maker(dataset: Any, value: Any) -> Callable[[Any], Any] | None:
    """Return the method of a dataset, without arguments, that made a generator; None if none did."""
    code = getattr(value, "gi_code", None)
    method = getattr(type(dataset), getattr(code, "co_name", ""), None)
    is_maker = code is not None and code.co_argcount == 1 and getattr(method, "__code__", None) is code
    return method if is_maker else None


def _without_end(made: Any) -> None:
    """Keep a copy's `__del__` from closing what it shares with the original, such as a file."""
    kind: type[Any] = type(made)
    if isinstance(getattr(kind, "__del__", None), types.FunctionType):
        usual = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
        with contextlib.suppress(TypeError):  # a class of a library's own layout
            made.__class__ = types.new_class(
                kind.__name__, (kind,), exec_body=lambda body: body.update({**usual, "__del__": lambda self: None})
            )


def _not_copied(name: str, error: Exception) -> WorkloadError:
    return WorkloadError(
        f"A dataset is looked at by a copy of it, because asking for a batch may change it, but `{name}` cannot be "
        f"copied: {error}.",
        hint="Give a function that makes the dataset: ap.wrap(make_dataset, ...).",
    )


_DENSE = "Make it dense in its function, by tf.sparse.to_dense or .to_tensor() say."
_TEXTS = "Leave texts out of the batch, or make numbers of them there, as `keras.layers.StringLookup` does in a model."


def first_batch(dataset: Feeder) -> tuple[Batch, Like, int, Any]:
    """Return the first batch, what others are like, the number of samples in the last one, if it was looked at, and the
    outline of the first as the dataset gave it. Raise WorkloadError if it gives no such batches, or other than dense
    arrays of numbers.
    """
    shapes, against_threads = dataset.shapes(), None
    if dataset.by_index:
        length = 2 if dataset.length is None else dataset.length
        at = [number for number in dict.fromkeys((0, 1, length - 1)) if 0 <= number < length]
        given, against_threads = _asked(dataset.dataset, at, length)
    else:
        with contextlib.closing(dataset.epoch("arrays")) as batches:
            # What an endless PyDataset gives, its batches tell, and of them the first two, as to Keras.
            given = list(itertools.islice(batches, 2 if shapes is None else 1))
    read = list(map(parts_of, given))
    first = read[0] if read else parts_of(None)
    slots = ((name, slot) for name, slot in zip(SLOTS, first, strict=False) if slot is not None)
    for path, part in (((name, key), part) for name, slot in slots for key, part in keyed(slot).items()):
        if (array := np.asarray(part)).dtype.kind not in _NUMBERS and array.dtype != "bfloat16":
            is_text = array.size and isinstance(array.flat[0], str | bytes)
            raise _not_dense(f"{type(part).__name__} of {array.dtype} in {label(path)}", *[_TEXTS] * bool(is_text))
    structure = Structure.of(first, lambda path, part: len(part.shape) == _AXES_OF_IMAGES)
    if shapes is None:
        shapes = {key: _common([keyed(x)[key] for x, *_ in read[:2]]) for key in keyed(first[0])}
    arrays: Batch = tuple(None if part is None else np.asarray(part) for part in flat(first, structure))
    inputs = {number: key for number, (slot, key) in enumerate(paths_of(structure)) if slot == "x"}
    like = Like(
        batch_size=len(arrays[0]),
        structure=structure,
        dtypes=tuple(None if part is None else part.dtype for part in arrays),
        shapes={number: tuple(shapes[key][1:]) for number, key in inputs.items()},
        against_threads=against_threads,
    )
    if not dataset.by_index:
        return arrays, like, like.batch_size, dataset.outline or outline_of(given[0])
    name = type(dataset.dataset).__name__
    looked_at = [like.checked(batch, f"{name}[{number}]") for number, batch in zip(at, read, strict=True)]
    return arrays, like, len(looked_at[-1][0]), outline_of(given[0])


def _asked(dataset: Any, at: Sequence[int], length: int) -> tuple[list[Any], str | None]:
    """Return some batches of a dataset, and the reason why several threads must not ask for them, if there is one."""
    batches, samples = torch_batches.of_batches(dataset), torch_batches.whole(torch_batches.samples_of(dataset))
    given = [batch_at(batches, at[0], length)]  # which prepares what others find
    known, held = bytes_of(given[0]), pickling.attributes(samples)
    given += [batch_at(batches, number, length) for number in at[1:]]
    by_keras = getattr(samples, "workers", 1) > 1 and not forks(samples)  # whose threads share it as it is
    return given, None if by_keras else pickling.against_threads(samples, held, refilled=bytes_of(given[0]) != known)


def _not_dense(kind: str, hint: str = _DENSE) -> WorkloadError:
    said = f"A wrapped dataset must give batches of dense arrays of numbers, but gave a {kind}."
    return WorkloadError(said, hint=hint)


def _common(arrays: Sequence[Any]) -> list[int | None]:
    return [lengths[0] if len(set(lengths)) == 1 else None for lengths in zip(*(x.shape for x in arrays), strict=False)]
