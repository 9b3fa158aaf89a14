"""Writes a pipeline as a file of plain tf.data or Keras code, or in a form of an extension, or says why it cannot.

The file applies the workload's ops to the same samples. Its random numbers are its own, so that its batches are not
those of autopipe; that, and resuming in mid-epoch, is given up. The lines of ops and sources stand beside their
classes. A tune compares with the file of a default configuration.
"""

from __future__ import annotations

import dataclasses
import datetime
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final

from autopipe import registry
from autopipe.errors import PlainCodeError
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.eject import NAMES, forms
from autopipe.pipeline.eject.forms import KERAS_WORKERS, WORKERS
from autopipe.pipeline.eject.written import Written, filled, own_name, written
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.order import Blocks
from autopipe.workload.workload import Workload

FIT: Final = "fit"  # arrays for `fit(x, y)`
DIRECTORY: Final = "directory"  # `keras.utils.image_dataset_from_directory`
CACHED: Final = "tf.data-cache"  # tf.data keeps what it has decoded
_OF_EXTENSIONS: Final[Mapping[str, Any]] = dict(registry.loaded("autopipe.plain_forms", "form of plain code"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlainModule:
    """A file of plain code, and the user's functions that it needs."""

    code: str  # of the file
    given: Mapping[str, Any]  # the arguments of its function or class, by name
    functions: Mapping[str, Callable[..., Any]]  # the user's own that the code does not import, by name


def of_workers(workers: int) -> str:
    """Return the name of the form of a PyDataset with so many threads."""
    return KERAS_WORKERS if workers == WORKERS else f"{KERAS_WORKERS}={workers}"


def named(form: str) -> PipelineConfig | None:
    """Return the configuration by which one of `NAMES`, or "keras-workers=32", is what people have; two have none.
    Raise KeyError if there is no such form, and ConfigError if a PyDataset cannot have so many workers.
    """
    if forms.workers_of(form) is None and form not in NAMES:
        raise KeyError(form)
    if form in (DIRECTORY, FIT):
        return None
    loader: LoaderConfig = TfData() if form in ("tf.data", CACHED) else Foreign(code=form)
    keep = "memory" if form == CACHED else "none"
    return PipelineConfig(loader=loader, keep=keep, finish="host", device_prefetch=0)


def reasons_against(workload: Workload, config: PipelineConfig | str, plan: Plan, *, own: bool = True) -> str | None:
    """Return the reasons why a pipeline has no plain form, or None if it has one; arguments as of `module`."""
    try:
        module(workload, config, plan=plan, own=own)
    except PlainCodeError as error:
        return error.message
    return None


def eject(workload: Workload, config: PipelineConfig | str) -> str:
    """Return a module that feeds the workload, and does not import autopipe; arguments and errors as of `module`."""
    try:
        return module(workload, config).code
    except PlainCodeError as error:
        hint = error.hint
        if hint is None:  # for a hint there is one form that would do
            plan, forms_tried = make_plan(workload), ("tf.data", "keras", *_OF_EXTENSIONS)
            able = [f"`--to {form}`" for form in forms_tried if reasons_against(workload, form, plan) is None]
            hint = f"`autopipe eject` can write it with {' or '.join(able)}." if able else None
            if not able and workload.on_bad_sample == "skip":
                hint = "Remove the samples that `autopipe verify --files` lists, and with them on_bad_sample."
        how = f"as {config}" if isinstance(config, str) else "without autopipe"
        raise PlainCodeError(f"This pipeline cannot be written {how}: {error.message}.", hint=hint) from None


def module(
    workload: Workload, config: PipelineConfig | str, *, plan: Plan | None = None, own: bool = True, every: int = 1
) -> PlainModule:
    """Return the file that feeds a workload, and its needs. Raise PlainCodeError with every reason why it cannot be.
    `config` says how it is fed, or is the name of a form, with its usual settings. With `own`, the file imports the
    user's own functions; else the runner of the code puts them into its module. tf.data reads each `every`-th sample.
    """
    if isinstance(workload.data, WrappedData):
        texts, parts, said = forms.call(workload.data, config)
        assert not isinstance(config, str)  # `call` refuses it
        notes = [*_dated(config), *said]
        return _made(forms.CALL_TEMPLATE, parts, texts, notes, own=own)
    if isinstance(workload.shuffle, Blocks):
        raise PlainCodeError(
            f"its order, shuffle={workload.shuffle}, is autopipe's own", hint="With shuffle=True it has plain code."
        )
    plan = make_plan(workload) if plan is None else plan
    if config == FIT:
        parts = written(workload, None, plan, "np")
        texts = forms.arrays(workload, plan, parts)
        return _made(forms.ARRAYS_TEMPLATE, parts, texts, _notes(None, parts), own=own)
    if config == DIRECTORY:
        parts = written(workload, None, plan, "tf", of_batches=True)
        texts, parts = forms.directory(workload, plan, parts)
        return _made(forms.DIRECTORY_TEMPLATE, parts, texts, _notes(None, parts), own=own)
    if config == CACHED and (why := forms.against_cache(workload, plan)) is not None:
        raise PlainCodeError(why)
    asked = named(config) if isinstance(config, str) else config
    assert asked is not None
    form, reasons = _form_of(asked.loader), _reasons(workload, asked)
    try:
        parts = written(workload, asked, plan, "tf" if isinstance(asked.loader, TfData) else "np", every=every)
    except PlainCodeError as error:
        raise PlainCodeError("; ".join([*reasons, error.message])) from None
    if reasons:
        raise PlainCodeError("; ".join(reasons))
    if hasattr(form, "constants"):
        constants = [*parts.constants, *form.constants(workload)]
        parts = dataclasses.replace(parts, constants=constants, imports=form.IMPORTS)
    return _made(form.TEMPLATE, parts, form.texts(workload, asked, parts), _notes(asked, parts), own=own)


def _made(template: str, parts: Written, texts: dict[str, object], notes: list[str], *, own: bool) -> PlainModule:
    common = {
        "title": "A plain input pipeline, which imports no autopipe.",
        "notes": textwrap.fill(" ".join(notes), 110, break_long_words=False, break_on_hyphens=False),
        "given": ", ".join(f"{name}: Any" for name in parts.source.given),
        "fields": "".join(f", {name}: Any" for name in parts.source.given),
        "passed": parts.passed,
    }
    code = filled(template, parts, {**common, **texts}, own=own)
    return PlainModule(code=code, given=parts.source.given, functions=parts.functions)


def _reasons(workload: Workload, config: PipelineConfig) -> list[str]:
    loader, found = config.loader, []
    if _form_of(loader) is None:
        found.append(f"the `{loader.kind}` loader is autopipe's own; only `tfdata` has plain code")
    kept = config.kept
    if kept.converts:
        found.append(f"the samples are read from a converted set ({kept.form}), which autopipe reads")
    if kept.encoded:
        found.append(f"samples are cached as they are read (keep={kept.memory!r})")
    if kept.in_memory and kept.part < 1:
        found.append(f"a part of the samples is cached ({kept.part:.0%})")
    if workload.on_bad_sample == "skip":
        found.append('bad samples are replaced (on_bad_sample="skip")')
    return found


def _form_of(loader: LoaderConfig) -> Any:
    if isinstance(loader, Foreign):
        return _OF_EXTENSIONS.get(loader.code) if forms.workers_of(loader.code) is None else forms.PY_DATASET
    return forms.TFDATA if isinstance(loader, TfData) else None


def _notes(config: PipelineConfig | None, parts: Written) -> list[str]:
    said = [
        *_dated(config),
        "The samples and what is done to them are the workload's; the random numbers are drawn anew, so that batches "
        "differ from those of autopipe.",
    ]
    if config is not None and config.finish == "device":
        said.append("Casts, scales and one-hot vectors are made here; in autopipe they may be made on the device.")
    if parts.functions:
        own = ", ".join(dict.fromkeys(own_name(*named) for named in parts.functions.items()))
        said.append(f"Of the files that hold {own}, only these are needed: one that imports autopipe may do without.")
    if parts.source.given:
        said.append(f"What no file holds is passed by the caller: {parts.passed}, as ap.Workload got it.")
    return said


def _dated(config: PipelineConfig | None) -> list[str]:
    of = "arrays in memory" if config is None else config.short()
    if config is not None and isinstance(config.loader, Foreign):
        of = f"`--to {config.loader.code}`"
    said = [f"Written on {datetime.datetime.now(datetime.UTC).date().isoformat()} for {of}."]
    if config is not None and config.devices > 1:
        said.append(f"It was tuned for {config.devices} devices; how to share batches out between them is up to you.")
    return said
