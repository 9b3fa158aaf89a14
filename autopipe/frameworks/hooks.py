"""Puts functions round those of frameworks, as they are imported: round what reads a batch, or makes a step."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

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
# Each step calls the function that these return; a step that jax.jit compiles calls it once, as it is traced.
_TRAINS = (("jax", "", "grad"), ("jax", "", "value_and_grad"))
_LOOPS = ("keras", "tensorflow", "torch", "grain")  # whose own loops are no user's
_BETWEEN = ("traceback_util", "dataset_ops")  # files whose frames pass a read on, such as as_numpy_iterator()'s


@contextlib.contextmanager
def standing_in(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute while a block runs, without Keras's `__setattr__`, which tracks layers."""
    own, unset = vars(owner), object()
    before = own.get(name, unset)
    own[name] = value
    try:
        yield
    finally:
        if before is unset:
            del own[name]
        else:
            own[name] = before


def around(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Put the decorated function in the place of one of a module, a class or an object; it gets that one first."""
    original = getattr(owner, name)

    def put(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def called(*arguments: Any, **named: Any) -> Any:
            return function(original, *arguments, **named)

        setattr(owner, name, called)

    return put


def watch_loops(
    read: Callable[..., Any], own: Callable[..., Any], stepped: Callable[[str], None], trains: Callable[[], None]
) -> None:
    """From the import of a framework on, have `read(function, data, *arguments)` called where a loop that is not the
    framework's own takes a batch by `function(data, *arguments)`, `own(...)` where one of its own does,
    `stepped(package)` where a training step is made, and `trains()` where one is prepared or traced.
    """

    def reading(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def taken(data: Any, *arguments: Any) -> Any:
            is_eager = getattr(sys.modules.get("tensorflow"), "executing_eagerly", lambda: True)
            if not is_eager():  # a @tf.function is traced, in which nothing is read yet
                return function(data, *arguments)
            return (own if _is_frameworks(sys._getframe(1)) else read)(function, data, *arguments)

        return taken

    def telling(told: Callable[[], None], function: Callable[..., Any], *, derives: bool = False) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            told()
            returned = function(*arguments, **named)
            return telling(told, returned) if derives else returned

        return called

    def wrap(places: tuple[tuple[str, str, str], ...], wrapper_of: Callable[[str], Callable[..., Any]]) -> None:
        for module, kind, name in places:
            wrapper = wrapper_of(module.partition(".")[0])
            after_import(module, functools.partial(_put_in, kind=kind, name=name, wrapper=wrapper))

    wrap(_READS, lambda package: reading)
    wrap(_STEPS, lambda package: functools.partial(telling, functools.partial(stepped, package)))
    wrap(_TRAINS, lambda package: functools.partial(telling, trains, derives=True))


def _is_frameworks(frame: types.FrameType) -> bool:
    while any(each in frame.f_code.co_filename for each in _BETWEEN) and frame.f_back is not None:
        frame = frame.f_back
    return any(f"-packages/{package}/" in frame.f_code.co_filename for package in _LOOPS)


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


class _AfterImport(importlib.abc.MetaPathFinder):  # calls a function with a module right after its first import
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
