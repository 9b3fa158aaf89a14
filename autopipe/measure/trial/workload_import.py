"""Imports a workload by its name ("train.py:workload", "package.module:attribute").

This runs the user's code, so every failure in it becomes a `WorkloadError` that shows the user's own lines. It belongs
in processes that may import a framework: the trial's child, or a training script; never in a study.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import shlex
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autopipe import errors
from autopipe.errors import WorkloadError, near
from autopipe.frameworks import hooks
from autopipe.hardware import processes
from autopipe.pipeline.batching.datasets import has_batches, is_read_again
from autopipe.pipeline.wrap import wrap
from autopipe.values import Value
from autopipe.workload.workload import Workload


class WorkloadName(Value):
    """A workload by name, "train.py:workload" or "package.module:attribute"; `may_call`: the name may be a function."""

    kind: Literal["reference"] = "reference"
    text: str
    may_call: bool = True


def load_workload(named: Workload | WorkloadName | str) -> Workload:
    """Import the workload of this name, or with `may_call` the one that a function without arguments of it returns.
    The folder of a file is put first on `sys.path`, as `python train.py` does, and the file becomes a module under its
    own name, so that worker processes can import it too. If it imports relative to its package, it becomes the
    package's, as for `python -m`. Loading it again gives the same module, and so does a file that was imported already,
    or that this process runs: importing it once more would train, and tune, once more. `may_call` is for names from the
    user; an artifact alone may not name a function. A dataset of the user's own becomes a workload without a model.
    Raises WorkloadError if the file, module or attribute does not exist, is something else, or cannot be imported.
    """
    if isinstance(named, Workload):
        return named
    named = WorkloadName(text=named) if isinstance(named, str) else named
    module, target, attribute = _imported(named.text, "workload", "train.py:workload")
    return _workload_in(module, attribute, target, may_call=named.may_call)


def load_function(reference: str) -> Callable[[], Any]:
    """Import the function that `reference` names, such as "bench.py:make_dataset": a baseline of the user's. Raises
    WorkloadError if it does not exist, takes arguments, or cannot be imported.
    """
    module, target, attribute = _imported(reference, "baseline", "bench.py:make_dataset")
    function = getattr(module, attribute, None)
    if not callable(function):
        functions = [name for name, value in vars(module).items() if isinstance(value, types.FunctionType)]
        what = f"`{target}` has no `{attribute}`" if function is None else f"`{attribute}` of `{target}` is no function"
        listed = ", ".join(f"`{name}`" for name in functions)
        raise WorkloadError(
            f"{what}, which a baseline has to be.{near(attribute, functions)}",
            hint=f"Its functions are {listed}." if listed else "Write one that returns a tf.data.Dataset, say.",
        )
    _require_no_arguments(function, f"`{attribute}` of `{target}` must be callable without arguments, but")
    made: Callable[[], Any] = function
    return made


def _require_no_arguments(function: Callable[..., Any], said: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        hint = "Give its arguments defaults, or write a function without any around it."
        raise WorkloadError(f"{said}: {error}.", hint=hint) from None


def _imported(reference: str, what: str, example: str) -> tuple[types.ModuleType, str, str]:
    target, _, attribute = reference.rpartition(":")
    if not target or not attribute.isidentifier():
        lost = f"; there is no folder `{reference}`" if reference.endswith("/") or "." not in reference else ""
        raise WorkloadError(
            f"A {what} is named by a file or module and an attribute, but got {errors.shortened(reference)}{lost}.",
            hint=f"Write `{example}` or `package.module:{example.partition(':')[2]}`.",
        )
    module = import_file(Path(target), attribute) if target.endswith(".py") else _import_module(target)
    return module, target, attribute


def import_file(path: Path, wanted: str | None = None) -> types.ModuleType:
    """Import a script as `load_workload` does. One that trains at its top is read as far as that, if what is `wanted`
    of it is there by then. Raises WorkloadError if it does not exist or cannot be imported.
    """
    if not path.is_file():
        folder = path.parent
        scripts = [script.name for script in folder.glob("*.py")] if folder.is_dir() else []
        raise WorkloadError(
            f"`{path}` is not a file.{near(path.name, scripts)}",
            hint=f"Paths are taken from the working directory, {Path.cwd()}.",
        )
    path = path.resolve()
    running, *others = sys.modules["__main__"], *sys.modules.copy().values()
    alike = (module for module in others if str(_file_of(module)).endswith(path.name))  # under any name
    if (there := next((module for module in (running, *alike) if _is_of(module, path)), None)) is not None:
        return there
    added = _find_modules_in(path.parent)
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # only for a file whose ending Python does not know, and this one ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _users_code(f"`{path.name}` could not be imported"):
            spec.loader.exec_module(module)
    except BaseException as error:
        training = error.__cause__ if isinstance(error, WorkloadError) else None
        if isinstance(training, _TrainingError) and (wanted is None or hasattr(module, wanted)):
            said = f"`{path.name}` trains when it is imported: it was read as far as {training.line_in(path)} only."
            warnings.warn(said, errors.DataWarning, stacklevel=3)
            return module
        del sys.modules[name]
        if isinstance(error, WorkloadError) and isinstance(training, _TrainingError):
            raise WorkloadError(error.message, hint=_before(training, module, path)) from training
        if "attempted relative import" not in str(error.__cause__):
            raise
        if added:  # modules of a package hide none of Python's own that have the same name
            sys.path.remove(str(path.parent))
        root = next((above for above in path.parents[1:] if not (above / "__init__.py").is_file()), path.parent)
        _find_modules_in(root)
        found = _import_module(".".join(path.relative_to(root).with_suffix("").parts))  # of the package of its folder
        if not _is_of(found, path):
            raise
        return found
    return module


class _TrainingError(BaseException):
    """A user's file trains where it is only imported. No `Exception`, so that no handler of the file catches it."""

    def __init__(self, call: str, data: Any = None) -> None:
        super().__init__(f"it calls `{call}`, and so would train in every process that imports it.")
        self.data = data

    def line_in(self, path: Path) -> str:
        """Return the line at the top of the file that trains."""
        number = next(
            line for frame, line in traceback.walk_tb(self.__traceback__) if frame.f_code.co_filename == str(path)
        )
        return f"line {number}, `{linecache.getline(str(path), number).strip()}`"


_TRAINS = (  # module, class and method that a training calls
    ("keras", "Model", "fit"),
    ("keras", "Model", "train_on_batch"),
    ("tensorflow", "GradientTape", "gradient"),
    ("torch", "Tensor", "backward"),
)


@contextlib.contextmanager
def _no_training() -> Iterator[None]:
    """Raise _TrainingError from what a training calls in the block, also if its module is imported in it."""
    undo: list[Callable[[], None]] = []

    def refuse_gradient(name: str, module: types.ModuleType) -> None:
        derive = getattr(module, name)

        @functools.wraps(derive)
        def derived(*given: Any, **named: Any) -> Any:
            gradient = derive(*given, **named)

            @functools.wraps(gradient)
            def called(*arguments: Any, **others: Any) -> Any:
                if undo:  # not in what the module does later
                    raise _TrainingError(f"jax.{name}")
                return gradient(*arguments, **others)

            return called

        undo.append(functools.partial(setattr, module, name, derive))
        setattr(module, name, derived)

    def refuse(kind: str, name: str, module: types.ModuleType) -> None:
        def train(owner: Any, x: Any = None, *arguments: Any, **named: Any) -> None:
            raise _TrainingError(name, x)

        owner = getattr(module, kind)
        undo.append(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, train)

    for module, kind, name in _TRAINS:
        undo.append(hooks.after_import(module, functools.partial(refuse, kind, name)))
    for name in ("grad", "value_and_grad"):
        undo.append(hooks.after_import("jax", functools.partial(refuse_gradient, name)))
    try:
        yield
    finally:
        while undo:
            undo.pop()()


def _before(training: _TrainingError, module: types.ModuleType, path: Path) -> str:
    """Return the hint for a file that trains before it defines the name that is wanted."""
    hint = f"Put that before {training.line_in(path)}, as far as which the file is read; or put what trains under "
    hint += "`if __name__ == '__main__':`."
    again = has_batches(training.data) or is_read_again(training.data)
    names = [name for name, value in vars(module).items() if value is training.data and again]
    return hint + (f" What `fit` gets is there before it: {path.name}:{names[0]}" if names else "")


def _find_modules_in(folder: Path) -> bool:
    if is_new := str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return is_new


def _module_name(path: Path) -> str:
    """Return the import name of this file, or a made-up name if another module has that one."""
    importlib.invalidate_caches()  # the file may be younger than Python's last look into its folder
    name = path.stem
    if name in sys.modules:
        is_ours = _is_of(sys.modules[name], path)
    else:
        spec = None if "." in name else importlib.util.find_spec(name)
        is_ours = spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path
    return name if is_ours else f"{name}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _is_of(module: types.ModuleType, path: Path) -> bool:
    file = _file_of(module)
    return file is not None and Path(file).resolve() == path


def _file_of(module: object) -> str | None:
    """Return a module's file, without loading anything lazy; a namespace package and a notebook have none."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) else None


def _import_module(name: str) -> types.ModuleType:
    with _users_code(f"`{name}` could not be imported"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the module is there, but not one that it imports
            hint = f"Run from the folder that holds it, or install it; this is {Path.cwd()}. A file ends in `.py`."
            if name.endswith(".ipynb"):
                hint = "A notebook is no module. In the notebook itself: ap.tune(workload), and so on."
            raise WorkloadError(f"There is no module `{error.name}`, needed for `{name}`.", hint=hint) from error


def _workload_in(module: types.ModuleType, attribute: str, target: str, *, may_call: bool) -> Workload:
    if not hasattr(module, attribute):
        workloads = [name for name, value in vars(module).items() if isinstance(value, Workload)]
        names = workloads or [name for name in vars(module) if not name.startswith("_")]
        found = ", ".join(f"`{name}`" for name in workloads)
        hint = f"It has {found}." if found else f"Add to it: {attribute} = ap.Workload(...)"
        functions = {name: each for name, each in vars(module).items() if isinstance(each, types.FunctionType)}
        if inside := [name for name, each in functions.items() if attribute in each.__code__.co_varnames]:
            hint = f"`{inside[0]}` has a `{attribute}` inside. Name a function without arguments that returns it."
        raise WorkloadError(f"`{target}` has no `{attribute}`.{near(attribute, names)}", hint=hint)
    value = named = getattr(module, attribute)
    if isinstance(named, types.FunctionType):
        _require_callable(named, attribute, target, may_call=may_call)
        with _users_code(f"`{attribute}()` of `{target}` raised"):
            value = named()
    if isinstance(value, Workload):
        return value
    is_plain = isinstance(value, str | bytes | list | tuple | dict | np.ndarray)
    if hasattr(value, "element_spec") and value is named:  # a tf.data.Dataset can be read again and again
        return wrap(lambda: value)
    is_read = has_batches(value) or is_read_again(value) or (hasattr(value, "__iter__") and value is not named)
    if is_read and not is_plain:
        return wrap(named)
    hint = f"Write {attribute} = ap.Workload(data=..., ops=[...], batch_size=..., model=build_model)"
    if isinstance(value, type):
        hint = f"That is a class. Name an object of it, as by data = {attribute}(...), or a function that returns one."
    of = value if isinstance(value, dict) else {}
    if held := [key for key, each in of.items() if has_batches(each) or is_read_again(each)]:
        hint = f"Name one of what it holds, as by data = {attribute}[{held[0]!r}]: {target}:data."
    if isinstance(value, Iterable) and not is_plain:
        hint = f"Put what makes these batches into a function, and name the function: {target}:make_dataset."
    raise WorkloadError(
        f"`{attribute}` of `{target}` must be a Workload, a dataset, or a function that returns one, but is "
        f"{errors.shortened(value)}.",
        hint=hint,
    )


def _require_callable(function: types.FunctionType, attribute: str, target: str, *, may_call: bool) -> None:
    if not may_call:
        named = f"{target}:{attribute}"
        raise WorkloadError(
            f"`{attribute}` of `{target}` is a function, and what an artifact alone names is not called.",
            hint=f"Name it yourself: workload={named!r}, or --workload {shlex.quote(named)}",
        )
    wanted = f"`{attribute}` of `{target}` must be a Workload, or a function without arguments that returns one,"
    _require_no_arguments(function, f"{wanted} but it takes arguments")


@contextlib.contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into an error that shows its lines, and warn if it takes cores away."""
    binding = processes.Binding()
    try:
        with _no_training():
            yield
    except (errors.AutopipeError, MemoryError):
        raise  # says it better
    except (Exception, SystemExit, _TrainingError) as error:
        hint = errors.hint_of_workers(error) or "The last line above is where to look."
        if isinstance(error, SystemExit | _TrainingError):
            hint = "Put what trains, and what ends the program, under `if __name__ == '__main__':`."
        if isinstance(error, SystemExit) and error.code == 2:  # by argparse
            hint = "The file is imported without arguments of its own: give each a default."
        if isinstance(error, FileNotFoundError) and not Path(str(error.filename or "/")).is_absolute():
            hint += f" Relative paths that your code opens start at the working directory, {Path.cwd()}."
        text, frames = str(error), errors.users_lines(error, 3, or_any=True)
        if isinstance(error, SyntaxError) and error.filename is not None:  # nothing has run: the line is its own
            line = f"{Path(error.filename).name}, line {error.lineno}: {(error.text or '').strip()}"
            text, frames = error.msg, [f"  {line}"]
        said = text if isinstance(error, _TrainingError) else errors.told(error, text)
        raise WorkloadError("\n".join([f"{what}: {said}", *frames]), hint=hint) from error
    finally:
        if (bound := binding.end()) is not None:
            warnings.warn(bound, errors.DataWarning, stacklevel=4)
