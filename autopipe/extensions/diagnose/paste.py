"""The code that tunes a watched training: its own file's names of the dataset and the model, read from its text.

Where there is no plain name, the code has another in its place, and a comment says what it stands for.
"""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from autopipe.values import Value

_GUARD = 'if __name__ == "__main__":'
_PARAMETERS = {  # that change the speed of a function's dataset and nothing else
    "num_parallel_calls": [1, 2, 4, 8],
    "num_parallel_reads": [1, 2, 4, 8],
    "prefetch": [1, 2, 8],
    "num_workers": [1, 2, 4, 8],
    "prefetch_factor": [2, 4],
    "workers": [1, 2, 4, 8],
}


class Code(Value):
    """What a file gives to `fit`, as expressions that hold at its end."""

    file: str
    data: str | None = None  # None: no plain name at the top of the file
    arrays: str | None = None  # x and y, if these are plain names
    model: str | None = None
    steps: int | None = None  # that `fit` was given for an epoch
    parameters: tuple[str, ...] = ()  # of the function that makes the dataset
    trains_when_imported: bool = False
    above: int | None = None  # the line of what trains, if the code may stand before it: a tune reads until there
    in_loop: bool = False  # whether `fit` is called again and again
    policy: str | None = None  # of Keras's dtypes, if it is not the usual one


def written(code: Code | None, kind: str | None, batch_size: int) -> str:
    """Return the code to paste, for its owner to complete if the file has no plain names."""
    code = code or Code(file="tune_me.py")
    file, above, place = "tune_me.py", None, "tune_me.py, with the imports that it needs"
    if code.data and code.model:
        file, above = code.file, code.above
        place = f"Add to {file}" + ("" if above is None else f", above line {above}, which trains")
    model, data = code.model or "build_model", code.data or "make_dataset"
    notes = [f"{place}. Then: autopipe tune {file}:workload"]
    if code.trains_when_imported and above is None:
        notes.append(f"First put what trains in {code.file} under `{_GUARD}`, since a tune imports the file.")
    if code.policy is not None:
        notes.append(f"Set {code.policy} where a tune comes by, too: in {model}, or at the top.")
    if kind == "torch DataLoader":
        notes.append("Workers must not be forked once a framework has run, nor begin in each epoch. In the function:")
        notes.append('DataLoader(..., multiprocessing_context="forkserver", persistent_workers=True), if num_workers')
    notes += ["build_model() returns your compiled model."] * (code.model is None)
    if kind == "arrays":
        notes += ["x, y: what you give to fit."] * (code.arrays is None)
        arrays = f"ap.Arrays({code.arrays or 'x, y'}), ops=[], batch_size={batch_size}"
        made = f"ap.Workload(data={arrays}, model={model})"
    else:
        more = "" if code.steps is None else f", steps={code.steps}"
        if kind == "a generator" and not more:
            notes.append("STEPS is the number of batches in an epoch.")
            more = ", steps=STEPS"
        if code.data is None:
            notes.append("make_dataset() returns what you give to fit.")
        elif values := {name: _PARAMETERS[name] for name in code.parameters}:
            more += f", parameters={values}".replace("'", '"')
        made = f"ap.wrap({data}, model={model}{more})"
    comments = "\n".join(f"# {note}" for note in notes)
    # Workers of a DataLoader that are not forked import the file, and must not begin others there.
    as_function = kind == "torch DataLoader"
    is_made = f"def workload():\n    return {made}" if as_function else f"workload = {made}"
    return f"{comments}\nimport autopipe as ap\n\n{is_made}\n"


def read(path: str, line: int, *, kind: str | None, has_index: bool, steps: int | None) -> Code:
    """Read what the call of `fit` on a line of a file is given."""
    code = Code(file=os.path.relpath(path), steps=steps)
    try:
        tree = ast.parse(Path(path).read_text())
    except (OSError, SyntaxError, ValueError):  # a notebook's cell, say
        return code
    every = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    fits = [node for node in every if ast.unparse(node.func).endswith(".fit")]
    call = next((node for node in fits if node.lineno <= line <= (node.end_lineno or line)), None)
    if call is None or not isinstance(call.func, ast.Attribute):
        return code
    named = {each.arg: each.value for each in call.keywords}
    given = call.args[0] if call.args else named.get("x")
    file = _File(tree, call)
    y = call.args[1] if len(call.args) > 1 else named.get("y")
    arrays = [each.id for each in (given, y) if isinstance(each, ast.Name) and each.id in file.objects]
    data = None if given is None else file.expression(given, is_object=has_index, once=kind != "a generator")
    model = file.expression(call.func.value, is_object=False)
    if isinstance(name := call.func.value, ast.Name) and name.id not in file.objects and file.compiles(name.id):
        model = None  # what makes it returns no compiled one
    functions = [node for node in file.functions if node.name == data]
    names = [each.arg for node in functions for each in (*node.args.args, *node.args.kwonlyargs)]
    return code.model_copy(
        update={
            "data": data,
            "arrays": ", ".join(arrays) if len(arrays) == 2 else None,
            "model": model,
            "parameters": tuple(name for name in names if name in _PARAMETERS),
            "trains_when_imported": any(call in ast.walk(node) for node in file.runs),
            "in_loop": _goes_on_in_a_loop(tree, call),
            "above": next((node.lineno for node in file.plain if call in ast.walk(node)), None),
        }
    )


def _goes_on_in_a_loop(tree: ast.Module, call: ast.Call) -> bool:
    """Return True if a loop calls `fit` of one model, and does not make another model each time, as for each fold."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While) and call in ast.walk(node)]
    fit = call.func
    assert isinstance(fit, ast.Attribute)
    made = {name for loop in loops for node in ast.walk(loop) for name, _ in _assigned(node)}
    return bool(loops) and not any(
        isinstance(node, ast.Call) or (isinstance(node, ast.Name) and node.id in made) for node in ast.walk(fit.value)
    )


class _File:
    """The names at the top of a file, and those of the scope of a call."""

    def __init__(self, tree: ast.Module, call: ast.Call) -> None:
        self.functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        self._classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]  # of classes or functions
        self._classes |= {each.asname or each.name for node in imports for each in node.names}
        plain = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
        self.plain = [node for node in plain if isinstance(node, ast.Expr | ast.Assign)]  # that no block is part of
        self.runs: list[ast.AST] = [node for node in plain if "__name__" not in ast.unparse(node).partition("\n")[0]]
        self.objects = {name for node in self.runs for name, _ in _assigned(node)}
        called = {ast.unparse(node.func) for run in self.runs for node in ast.walk(run) if isinstance(node, ast.Call)}
        self.runs += [node for node in self.functions if node.name in called]
        around: list[ast.AST] = [node for node in self.functions if call in ast.walk(node)]
        self._scope = [each for node in around or plain for each in ast.walk(node)]

    def compiles(self, name: str) -> bool:
        return any(isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.compile" for node in self._scope)

    def expression(self, node: ast.AST, *, is_object: bool, once: bool = True) -> str | None:
        """Return code for an object, or for a function that makes it (anew, unless `once`); None if none does."""
        if isinstance(node, ast.Name):
            if node.id in self.objects and once:
                return node.id if is_object else f"lambda: {node.id}"
            values = [value for each in self._scope for name, value in _assigned(each) if name == node.id]
            return self.expression(values[0], is_object=is_object) if len(values) == 1 else None
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        name, text = node.func.id, ast.unparse(node)
        inside = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {name}
        if name not in self._classes | {each.name for each in self.functions} or not inside <= self.objects:
            return None
        if is_object and name in self._classes:
            return text
        return f"lambda: {text}" if node.args or node.keywords or name in self._classes else name


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        names, values = [target], [node.value]
        if isinstance(target, ast.Tuple):
            names, values = target.elts, node.value.elts if isinstance(node.value, ast.Tuple) else []
        # No plain code makes a part of what a call returns.
        pairs = itertools.zip_longest(names, values, fillvalue=ast.Constant(None))
        for name, value in pairs:
            if isinstance(name, ast.Name | ast.Tuple):
                made = value if isinstance(name, ast.Name) else ast.Constant(None)
                yield from ((each.id, made) for each in ast.walk(name) if isinstance(each, ast.Name))
