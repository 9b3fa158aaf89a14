"""The parts of a file of plain code: the lines of ops and source, put in order and given names.

The templates are the business of `module`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence, Set
from string import Template
from typing import Any, Final

from autopipe.errors import PlainCodeError
from autopipe.pipeline.config import PipelineConfig
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Op, Plan, Step
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.planner import looked_at, normalise
from autopipe.workload.ops.sizes import CUTS
from autopipe.workload.ops.values import MaskToClass
from autopipe.workload.plain_code import Library, Lines, PlainSource, columns, names, packed, parts, plain_lines
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from autopipe.workload.workload import Workload

_IMPORTS: Final = (
    {
        "csv.": "import csv",
        "functools.": "import functools",
        "os.": "import os",
        "Path": "from pathlib import Path",
        "Any": "from typing import Any",
    },
    {
        "cv2.": "import cv2",
        "simplejpeg.": "import simplejpeg",
        "keras.": "import keras",
        "np.": "import numpy as np",
        "tf.": "import tensorflow as tf",
    },
)
"""What stands in code that needs an import: of Python's own library, and of others."""

_NO_JPEG: Final = (".png", ".gif", ".bmp")  # formats that TensorFlow's `decode_jpeg` reads, too
_JPEG: Final = b"\xff\xd8"

_HEAD: Final = '''"""$title

$notes
"""

from __future__ import annotations
@imports

$constants

$functions
'''
"""How the file of every form begins."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The lines of a workload's ops and source, in NumPy or in TensorFlow."""

    source: PlainSource  # how samples are got at
    constants: Lines  # lines at the top of the file
    prefix: Lines = dataclasses.field(default_factory=list)  # the deterministic ops
    body: Lines = dataclasses.field(default_factory=list)  # the ops that differ from epoch to epoch
    mixing: Lines = dataclasses.field(default_factory=list)  # the ops that combine samples of a batch
    suffix: Lines = dataclasses.field(default_factory=list)  # the ops on a whole batch
    is_joined: bool = False  # whether the body ends with the ops of the suffix
    every: int = 1  # of so many samples one is read, by tf.data
    finished: str  # the variables of a sample's parts in a batch
    packed: str  # the model's batch: its parts in dictionaries or tuples if it has several
    functions: Mapping[str, Callable[..., Any]]  # the user's own, by their names in the code
    imports: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of a form, by what stands in its code

    @property
    def passed(self) -> str:
        """The caller's arguments, in a call."""
        return ", ".join(self.source.given)

    @property
    def stacked(self) -> str:
        """The parts of a batch, in NumPy, from those of its samples in `made`."""
        return "map(np.stack, zip(*made))" if "," in self.finished else "np.stack(made)"

    @property
    def starred(self) -> str:
        """A star if a sample or a batch is a tuple, to call a function with its parts."""
        return "*" if "," in self.finished else ""

    @property
    def finish(self) -> str:
        """The function `finish`, which returns the model's batch; empty if it would do nothing."""
        says = "Do to a whole batch what needs no single sample."
        if not self.suffix:
            if self.is_joined or self.packed == self.finished:
                return ""
            says = "Put the parts of a batch where the model takes them."
        return _code("finish", says, self.suffix, self.finished, self.packed)


def written(
    workload: Workload,
    config: PipelineConfig | None,
    plan: Plan,
    dialect: Library,
    *,
    of_batches: bool = False,
    every: int = 1,
) -> Written:
    """Return the lines of a workload's ops and source; `of_batches` if tf.data gives whole batches, and of each
    `every`-th sample. Raise PlainCodeError if some have no plain form; the message gives every reason.
    """
    reasons: list[str] = []

    def asked(ask: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except PlainCodeError as error:
            reasons.append(error.message)
            return []

    def lines(steps: Sequence[Step]) -> Lines:
        return [line for step in steps for line in asked(plain_lines, step.op, step, dialect)]

    steps = (*plan.prefix, *plan.body, *plan.suffix)
    source = asked(data_source.plain, workload.data, plan.source, dialect)
    mixing = lines([step for step in plan.body if step.op.mixes])
    single = [step for step in plan.body if not step.op.mixes]
    is_kept = config is not None and config.kept.in_memory
    loads = not is_kept and bool(plan.prefix or (source and source.reading))
    whole = of_batches or not (loads or plan.prefix)
    by_batch = whole and all(  # TensorFlow flips each image of a batch by itself
        type(step.op.acting) is RandomFlip and [part.is_flat for part in parts(step)] == [False] for step in single
    )
    is_joined = dialect == "tf" and not mixing and not by_batch and bool(single or loads)  # one map is faster than two
    groups: list[Sequence[Step]] = [plan.prefix, single, plan.suffix]
    if dialect == "tf":
        last = plan.suffix if is_joined else ()
        functions_of = [plan.prefix, (*single, *last)] if is_kept else [(*plan.prefix, *single, *last)]
        jpegs = _jpegs(workload, plan)
        fused = [_in_floats(_decoded_in_part(_looked_up_last(each), jpegs)) for each in functions_of]
        made = [step for each in (*fused, () if is_joined else plan.suffix) for step in each]
        ends = len(plan.prefix), len(plan.prefix) + len(single)
        groups = [made[: ends[0]], made[ends[0] : ends[1]], made[ends[1] :]]
    prefix, body, suffix = map(lines, groups)
    constants = [line for step in steps for line in asked(step.op.plain_constants, step)]
    functions = {name: function for step in steps for name, function in asked(step.op.plain_functions, step).items()}
    if reasons:
        raise PlainCodeError("; ".join(dict.fromkeys(reasons)))
    seed = workload.seed % 2**32  # as NumPy and Keras take it
    own = [f"BATCH_SIZE = {workload.batch_size}", f"SEED = {seed}"]
    if config is not None and config.channels == "first":
        axes = "(2, 0, 1)" if is_joined else "(0, 3, 1, 2)"
        images = [part for part in names(plan.finished) if part.field.rank == 3]
        suffix += [f"{part} = {dialect}.transpose({part}, {axes})" for part in images]
    if dialect == "tf" and by_batch and not mixing:  # a fifth of the time for rows of 32 x 32 pixels
        body, suffix = [], [*body, *suffix]
    return Written(
        source=source,
        constants=[*source.constants, *own, *constants],
        prefix=prefix,
        body=[*body, *(suffix if is_joined else [])],
        mixing=mixing,
        suffix=[] if is_joined else suffix,
        is_joined=is_joined,
        every=every,
        finished=", ".join(names(plan.finished)),
        packed=packed(plan.finished),
        functions=functions,
    )


# -------------------- tf.data, as experts of it write it
# Ops write their lines without knowing of each other. Here the steps of one function get to know what the next one does
# with a part, so that nothing is done that a later one makes useless.


def _looked_up_last(steps: Sequence[Step]) -> list[Step]:
    """Look up classes of the cropped pixels of a mask only."""
    made = [*steps]
    for step in steps:
        if not isinstance(step.op.acting, MaskToClass) or len(parts(step)) > 1:
            continue
        at, (mask,) = next(at for at, each in enumerate(made) if each is step), parts(step)
        if (cut := _cut_next(mask, made, at)) is None:
            continue
        size = made[cut].after
        field = dict(zip(columns(size), size.columns, strict=True))[mask]
        shape = None if field is None or field.shape is None else (*field.shape[:2], 3)
        coloured = _changed(size, {mask: dataclasses.replace(mask.field, shape=shape)})
        before = _changed(made[cut].before, {mask: mask.field})
        made[cut] = dataclasses.replace(made[cut], before=before, after=coloured)
        made.insert(cut + 1, dataclasses.replace(step, before=coloured, after=size))
        del made[at]
    return made


def _decoded_in_part(steps: Sequence[Step], jpegs: frozenset[str]) -> list[Step]:
    """Decode only the cropped part of a JPEG; `jpegs` are the parts that hold nothing else."""
    made = [*steps]
    for at, step in enumerate(steps):
        op = step.op.acting
        if not isinstance(op, Decode) or op.reduce or op.is_deep:
            continue
        for part in parts(step):
            cut = _cut_next(part, steps, at)
            if part in jpegs and part.after.kind is FieldKind.IMAGE and cut is not None:
                held: dict[str, Field] = {part: dataclasses.replace(part.after, held="jpeg", channels=op.channels)}
                made[at] = dataclasses.replace(made[at], after=_changed(made[at].after, held))
                made[cut] = dataclasses.replace(made[cut], before=_changed(made[cut].before, held))
    return made


def _cut_next(part: str, steps: Sequence[Step], at: int) -> int | None:
    behind = next((number for number in range(at + 1, len(steps)) if part in parts(steps[number])), None)
    return None if behind is None or not isinstance(steps[behind].op.acting, CUTS) else behind


def _in_floats(steps: Sequence[Step]) -> list[Step]:
    """Leave out the roundings of parts that are cast to floating point again; they are kept in their range."""
    made, held = list[Step](), set[str]()
    for at, step in enumerate(steps, start=1):
        before = _holding(step.before, held)
        for part in parts(step):
            if (takes := step.op.acting.takes_floats(part)) is not None:
                is_rounded = takes and part.after.dtype is not None and part.after.dtype.kind == "u"
                ways = (each.op.acting.takes_floats(of) for each in steps[at:] for of in parts(each) if of == part)
                is_cast = next((way for way in ways if way is not None), False)
                (held.add if is_rounded and is_cast else held.discard)(part)
        made.append(dataclasses.replace(step, before=before, after=_holding(step.after, held)))
    return made


def _holding(spec: SampleSpec, held: Set[str]) -> SampleSpec:
    found = (part for part in names(spec) if part in held)
    return _changed(spec, {part: dataclasses.replace(part.field, held="floats") for part in found})


def _changed(spec: SampleSpec, fields: Mapping[str, Field]) -> SampleSpec:
    named = zip(columns(spec), spec.columns, strict=True)
    return SampleSpec.of([fields.get(name, field) for name, field in named], spec.structure)


def _jpegs(workload: Workload, plan: Plan) -> frozenset[str]:
    """Return the parts that are JPEG files, by the names of all files and by the content of some."""
    encoded = {name for name in names(plan.source) if name.field.kind is FieldKind.ENCODED}
    if not encoded or workload.on_bad_sample == "skip":
        return frozenset()
    if any(path.lower().endswith(_NO_JPEG) for path in data_source.files(workload.data)):
        return frozenset()
    for index in looked_at(len(workload.data)):
        sample = normalise(workload.data.read(index), plan.source.structure)
        found = dict(zip(columns(plan.source), sample, strict=True))
        encoded = {name for name in encoded if found[name][:2] == _JPEG}
    return frozenset(encoded)


def function(name: str, says: str, lines: Lines, arguments: str, returned: str) -> str:
    """Return a function as code; empty if it has no lines."""
    return _code(name, says, lines, arguments, returned) if lines else ""


def _code(name: str, says: str, lines: Lines, arguments: str, returned: str) -> str:
    typed = ", ".join(f"{each}: Any" for each in arguments.split(", "))
    body = indented([f'"""{says}"""', *lines, f"return {returned}"])
    return f"\ndef {name}({typed}) -> Any:\n{body}\n\n"


def stages(parts: Written) -> tuple[dict[str, str], str]:
    """Return the NumPy code of a sample, for the template of a class that reads them: the functions by their names, and
    under "opened" the beginning of the class; and the sample, read and loaded, as an expression.
    """
    source, made = parts.source, parts.finished
    loading, arguments = [*source.reading, *parts.prefix], ", ".join(source.arguments)
    load = function("load", "Read a sample: what is the same in every epoch.", loading, arguments, made)
    differs = "Do to a sample what differs from epoch to epoch."
    texts = {
        "load": load,
        "augment": function("augment", differs, parts.body, f"{made}, rng", made),
        "mix": function("mix", "Mix the samples of a batch.", parts.mixing, f"{made}, rng", made),
        "finish": parts.finish,
        "opened": source.opened,
    }
    return texts, f"load({source.taken})" if load else source.taken


def filled(template: str, parts: Written, texts: Mapping[str, object], *, own: bool) -> str:
    """Return the filled template behind its imports and constants. `own`: import the user's functions, or raise."""
    top = "\n".join(parts.constants)
    body = Template(_HEAD + template).substitute(texts, constants=top, functions=parts.source.functions)
    head, _, rest = body.partition("@imports\n")
    known = [_IMPORTS[0], {**parts.imports, **_IMPORTS[1]}]
    groups = [[line for used, line in each.items() if re.search(rf"\b{re.escape(used)}", rest)] for each in known]
    groups.append(_own_imports(parts) if own else [])
    imports = "".join("\n" + "\n".join(each) + "\n" for each in groups if each)
    return re.sub(r"\n{4,}", "\n\n\n", f"{head}{imports}{rest}").rstrip() + "\n"


def _own_imports(parts: Written) -> Lines:
    found = []
    for name, called in parts.functions.items():
        module = getattr(called, "__module__", None)
        home = sys.modules.get(str(module))
        own, of = own_name(name, called), getattr(called, "__self__", None)
        if isinstance(of, Op):
            hint = "Train by the factory that a tune writes."
            raise PlainCodeError(f"`{of.name}` reads by autopipe, and has no code without it", hint=hint)
        if not isinstance(home, types.ModuleType) or module == "__main__" or getattr(home, own, None) is not called:
            raise PlainCodeError(
                f"`{getattr(called, '__name__', own)}` cannot be imported: it must be at the top level of a file",
                hint="Define it there, by `def`.",
            )
        found.append(f"from {module} import {own}{'' if own == name else f' as {name}'}  # your own")
    return sorted(found)


def own_name(name: str, called: Callable[..., Any]) -> str:
    """Return the original name of a user's function that the code calls `name`."""
    own: str = getattr(called, "__name__", name)
    return own if own.isidentifier() else name


def indented(lines: Lines) -> str:
    """Return lines indented as a body."""
    return textwrap.indent("\n".join(lines), "    ")
