"""Writes a pipeline as a file of plain tf.data or Keras code, or in a form of an extension, or says why it cannot.

The file applies the workload's ops to the same samples. Its random numbers are its own, so that its batches are not
those of autopipe; that, and resuming in mid-epoch, is given up. The lines of ops and sources stand beside their
classes. A form is a template and the texts that fill it; extensions bring theirs as modules. A tune compares with the
file of a default configuration.
"""

from __future__ import annotations

import dataclasses
import datetime
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from autopipe import registry
from autopipe.errors import ConfigError, PlainCodeError
from autopipe.hardware import machine
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.eject import NAMES
from autopipe.pipeline.eject.written import Written, filled, function, indented, own_name, stages, written
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.wrapped import Foreign, Wrapped
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.data import source as data_source
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.op import Plan
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.planner import looked_at, make_plan, prepared
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.order import Blocks
from autopipe.workload.plain_code import PlainSource
from autopipe.workload.sample import FieldKind
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
    if _workers_of(form) is None and form not in NAMES:
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
            plan, tried = make_plan(workload), ("tf.data", "keras", *_OF_EXTENSIONS)
            able = [f"`--to {form}`" for form in tried if reasons_against(workload, form, plan) is None]
            if able:
                hint = f"`autopipe eject` can write it with {' or '.join(able)}."
            elif workload.on_bad_sample == "skip":
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
        texts, parts, said = _call(workload.data, config)
        assert not isinstance(config, str)  # `call` refuses it
        notes = [*_dated(config), *said]
        return _made(_CALL_TEMPLATE, parts, texts, notes, own=own)
    if isinstance(workload.shuffle, Blocks):
        raise PlainCodeError(
            f"its order, shuffle={workload.shuffle}, is autopipe's own", hint="With shuffle=True it has plain code."
        )
    plan = make_plan(workload) if plan is None else plan
    if config == FIT:
        parts = written(workload, None, plan, "np")
        texts = _arrays(workload, plan, parts)
        return _made(_ARRAYS_TEMPLATE, parts, texts, _notes(None, parts), own=own)
    if config == DIRECTORY:
        parts = written(workload, None, plan, "tf", of_batches=True)
        texts, parts = _directory(workload, plan, parts)
        return _made(_DIRECTORY_TEMPLATE, parts, texts, _notes(None, parts), own=own)
    if config == CACHED and (why := _against_cache(workload, plan)) is not None:
        raise PlainCodeError(why)
    asked = named(config) if isinstance(config, str) else config
    assert asked is not None
    form: Any = _TFDATA if isinstance(asked.loader, TfData) else None
    if isinstance(asked.loader, Foreign):
        of_keras = _workers_of(asked.loader.code) is not None
        form = _PY_DATASET if of_keras else _OF_EXTENSIONS.get(asked.loader.code)
    kept = asked.kept
    against = {
        f"the `{asked.loader.kind}` loader is autopipe's own; only `tfdata` has plain code": form is None,
        f"the samples are read from a converted set ({kept.form}), which autopipe reads": kept.converts,
        f"samples are cached as they are read (keep={kept.memory!r})": kept.encoded,
        f"a part of the samples is cached ({kept.part:.0%})": kept.in_memory and kept.part < 1,
        'bad samples are replaced (on_bad_sample="skip")': workload.on_bad_sample == "skip",
    }
    reasons = [why for why, is_so in against.items() if is_so]
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


# -------------------- the forms

_MOST_OF_MEMORY: Final = 0.5  # that arrays, or kept samples, may take


class _Form(NamedTuple):
    """The plain code of one loader."""

    TEMPLATE: str  # the file behind its imports and constants
    texts: Callable[[Workload, PipelineConfig, Written], dict[str, object]]  # of the template


# -------------------- tf.data, as experts of it write it

_TFDATA_TEMPLATE: Final = '''\
$load$augment$mix$finish
def make_dataset($given) -> tf.data.Dataset:
    """Return the batches of an epoch: `model.fit(make_dataset($passed), epochs=3)`."""
$dataset
    return dataset
'''


def _tfdata(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    loader = config.loader
    assert isinstance(loader, TfData)
    calls = "tf.data.AUTOTUNE" if loader.num_parallel_calls == "auto" else str(loader.num_parallel_calls)
    prefetch = "tf.data.AUTOTUNE" if loader.prefetch == "auto" else str(loader.prefetch)
    source, kept = parts.source, config.kept.in_memory
    done = parts.packed if parts.is_joined else parts.finished
    loading = [*source.reading, *parts.prefix, *([] if kept else parts.body)]
    load = function("load", "Read a sample.", loading, ", ".join(source.arguments), parts.finished if kept else done)
    augment = function("augment", "Do to a sample what differs from epoch to epoch.",
                       parts.body if kept else [], parts.finished, done)  # fmt: skip
    mix = function("mix", "Mix the samples of a batch.", parts.mixing, parts.finished, parts.finished)
    shuffle = f"shuffle({source.count}, seed=SEED)" if workload.shuffle else ""
    steps = [
        f"shard({parts.every}, 0)" if parts.every > 1 else "",
        "" if kept else shuffle,  # behind a cache, or every epoch had the first one's order
        f"map({source.taken}, num_parallel_calls={calls})" if load else "",
        "cache()" if kept else "",
        shuffle if kept else "",
        f"map(augment, num_parallel_calls={calls})" if augment else "",
        f"batch(BATCH_SIZE, drop_remainder={workload.drop_remainder})",
        f"map(mix, num_parallel_calls={calls})" if mix else "",
        f"map(finish, num_parallel_calls={calls})" if parts.finish else "",
        f"prefetch({prefetch})" if prefetch != "0" else "",
    ]
    made = [f"dataset = {source.opened}", *(f"dataset = dataset.{step}" for step in steps if step)]
    return {"load": load, "augment": augment, "mix": mix, "finish": parts.finish, "dataset": indented(made)}


_TFDATA: Final = _Form(_TFDATA_TEMPLATE, _tfdata)


def _against_cache(workload: Workload, plan: Plan) -> str | None:
    """Return why tf.data cannot keep loaded samples in memory, or None if it can."""
    if workload.on_bad_sample == "skip" or not any(field.kind is FieldKind.ENCODED for field in plan.source.fields):
        return "the samples are in memory already, or nothing is decoded"
    return _too_large("a cache of decoded samples takes", cached_bytes(workload, plan))


def cached_bytes(workload: Workload, plan: Plan) -> int:
    """Return the bytes of all samples after the deterministic ops, estimated from a few."""
    numbers = looked_at(len(workload.data))
    samples = (prepared(plan.prefix, workload.data, number, plan.source.structure) for number in numbers)
    return sum(map(data_source.sample_bytes, samples)) * len(workload.data) // len(numbers)


def _too_large(said: str, needed: int) -> str | None:
    free = machine.detect_memory().available_bytes
    if needed <= _MOST_OF_MEMORY * free:
        return None
    return f"{said} {machine.size_text(needed)}, of {machine.size_text(free)} free"


# -------------------- a `keras.utils.PyDataset` on NumPy and OpenCV

KERAS_WORKERS: Final = "keras-workers"  # a PyDataset of several threads, where Keras's default is one
WORKERS: Final = max(2, machine.usable_cores())  # these threads, unless the form names another number
_QUEUE_SIZE: Final = 10  # Keras's default
_MOST_WORKERS: Final = 1024

_PY_DATASET_TEMPLATE: Final = '''\
$load$augment$mix$finish
class Batches(keras.utils.PyDataset):
    """The batches of an epoch: `model.fit(Batches($passed), epochs=3)`."""

    def __init__(self$fields) -> None:
        super().__init__(workers=$workers, use_multiprocessing=False, max_queue_size=$queue)
        $opened
        self._epoch = 0
        self._order = self._next_order()

    def __len__(self) -> int:
        return $length

    def __getitem__(self, number: int) -> Any:
        chosen = self._order[number * BATCH_SIZE :][:BATCH_SIZE]
$batch
        return $finished
$sample
    def on_epoch_end(self) -> None:
        """Give the next epoch an order and random numbers of its own."""
        self._epoch += 1
        self._order = self._next_order()

    def _next_order(self) -> Any:
        return $order
'''


def _workers_of(form: str) -> int | None:
    """Return Keras's threads in the form "keras", "keras-workers" or "keras-workers=32"; None for others."""
    name, _, workers = form.partition("=")
    if name == KERAS_WORKERS and workers.isdecimal():
        if not 1 <= int(workers) <= _MOST_WORKERS:
            raise ConfigError(f"`{KERAS_WORKERS}` must be 1 to {_MOST_WORKERS} workers, but got {form!r}.")
        return int(workers)
    return {"keras": 1, KERAS_WORKERS: WORKERS}.get(form)


def _py_dataset(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    assert isinstance(config.loader, Foreign)
    workers = _workers_of(config.loader.code)
    assert workers is not None
    source, made = parts.source, parts.finished
    found, loaded = stages(parts)
    augment, mix = found["augment"], found["mix"]
    rng = ", rng" if augment else ""
    batch = ["rng = np.random.default_rng((SEED, self._epoch, number))"] if augment or mix else []
    batch.append(f"made = [self._sample(int(index){rng}) for index in chosen]")
    batch.append(f"{made} = {parts.stacked}")
    method = ["", f"def _sample(self, index: int{rng and f'{rng}: Any'}) -> Any:"]
    if augment:
        method.append(f"    {made} = {loaded}")
        loaded = f"augment({made}, rng)"
    method += [f"    return {loaded}", ""]
    if not found["load"] and not augment:  # whole batches of rows
        batch, method = [*batch[: bool(mix)], f"{made} = {source.taken.replace('[index]', '[chosen]')}"], []
    if mix:
        batch.append(f"{made} = mix({made}, rng)")
    order = f"np.arange({source.count})"
    if workload.shuffle:
        order = f"np.random.default_rng((SEED, self._epoch)).permutation({source.count})"
    return {
        **found,
        "workers": workers,
        "queue": max(_QUEUE_SIZE, workers),  # workers would wait for a shorter one
        "length": f"{source.count} // BATCH_SIZE" if workload.drop_remainder else f"-(-{source.count} // BATCH_SIZE)",
        "batch": indented([indented(batch)]),
        "finished": f"finish({made})" if found["finish"] else made,
        "sample": indented(method),
        "order": order,
    }


_PY_DATASET: Final = _Form(_PY_DATASET_TEMPLATE, _py_dataset)


# -------------------- arrays for `model.fit(x, y)`: every op is done to all of them beforehand

_ARRAYS_TEMPLATE: Final = '''\
$load$finish
def arrays($given) -> Any:
    """Return all samples: `$fit`."""
$made
    return $finished
'''


def _arrays(workload: Workload, plan: Plan, parts: Written) -> dict[str, object]:
    """Return the texts of data that are arrays; raise PlainCodeError if they cannot all be made before."""
    if plan.body:
        raise PlainCodeError("`fit(x, y)` does all ops once beforehand, and random ones differ from epoch to epoch")
    if why := _too_large("`fit(x, y)` holds all samples in memory:", plan.finished.bytes * len(workload.data)):
        raise PlainCodeError(why)
    made, source = parts.finished, parts.source
    if not source.is_arrays:
        raise PlainCodeError("`fit(x, y)` takes data that are arrays, as those of ap.Arrays are")
    load = function("load", "Do to a sample what needs more than its values.", parts.prefix, made, made)
    rows = [name if name in source.given else name.upper() for name in source.arguments]
    lines = [f"{made} = {', '.join(rows)}"] if rows != list(source.arguments) else []
    if load:
        each = f"zip({made})" if parts.starred else made
        lines += [f"made = [load({made}) for {made} in {each}]", f"{made} = {parts.stacked}"]
    finished = f"finish({made})" if parts.finish else made
    fit, how = f"arrays({parts.passed})", f"batch_size=BATCH_SIZE, shuffle={workload.shuffle}, epochs=3"
    is_weighted = any(name.startswith("sample_weight") for name in made.split(", "))  # not the third argument of `fit`
    return {
        "load": load,
        "finish": parts.finish,
        "fit": f"x, y, weight = {fit}; model.fit(x, y, sample_weight=weight, {how})"
        if is_weighted
        else f"model.fit(*{fit}, {how})",
        "made": indented(lines),
        "finished": finished if "," in parts.packed else f"({finished},)",  # `fit(*arrays())`
    }


# -------------------- a folder of classes, listed by Keras: batches of images, resized and not rounded

_DIRECTORY_TEMPLATE: Final = '''\
$finish
def make_dataset() -> tf.data.Dataset:
    """Return the batches of an epoch: `model.fit(make_dataset(), epochs=3)`."""
    dataset = keras.utils.image_dataset_from_directory(
        str(FOLDER),
        class_names=list(CLASSES),
        color_mode="$colours",
        batch_size=BATCH_SIZE,
        image_size=($height, $width),
        shuffle=$shuffle,
        seed=SEED,
        verbose=False,
    )
$map    return dataset.prefetch(tf.data.AUTOTUNE)
'''


def _directory(workload: Workload, plan: Plan, parts: Written) -> tuple[dict[str, object], Written]:
    """Return the texts, and the parts without a listing of files; raise PlainCodeError for other data or ops."""
    if type(workload.data) is not ImageFolder or parts.source.given:
        raise PlainCodeError("`image_dataset_from_directory` reads a folder of classes, as ap.ImageFolder does")
    match [*(step.op for step in plan.prefix), *parts.body]:  # lines of other ops than flips
        case [Decode(reduce=False, dtype="uint8") as decode, Resize(interpolation="bilinear") as resize]:
            pass
        case _:
            raise PlainCodeError("`image_dataset_from_directory` decodes and resizes; only flips and scales may follow")
    kept = [line for line in parts.constants if not line.startswith("ENDINGS")]
    parts = dataclasses.replace(parts, source=dataclasses.replace(parts.source, functions=""), constants=kept)
    mapped = "    dataset = dataset.map(finish, num_parallel_calls=tf.data.AUTOTUNE)\n"
    return {
        "finish": parts.finish,
        "map": mapped if parts.finish else "",
        "colours": "rgb" if decode.channels == 3 else "grayscale",
        "height": resize.height,
        "width": resize.width,
        "shuffle": workload.shuffle,
    }, parts


# -------------------- the call of a user's own dataset, whose code is not repeated

_CALL_TEMPLATE: Final = '''\
def tuned_dataset() -> Any:
    """Return the dataset: `model.fit(tuned_dataset(), epochs=3$steps)`."""
    return $call
'''


def _call(data: WrappedData, config: PipelineConfig | str) -> tuple[dict[str, object], Written, list[str]]:
    """Return the texts, the import and notes for the caller; raise PlainCodeError for code of the first batch alone."""
    own = own_name("make_dataset", data.function)
    if isinstance(config, str):
        raise PlainCodeError(
            f"`{own}` makes the batches, and autopipe does not know how",
            hint="`autopipe eject` without --to writes its call with the arguments that a tune found best, unless "
            "autopipe's own workers won.",
        )
    if not isinstance(config.loader, Wrapped):
        raise PlainCodeError(
            f"autopipe's workers make the batches of `{own}`, and plain Keras has no such workers",
            hint="Train with make_trainer() of the tuned pipeline.",
        )
    arguments = ", ".join(f"{name}={value!r}" for name, value in config.loader.parameters.items())
    if data.is_itself:
        raise PlainCodeError(
            f"the dataset itself was wrapped, and no function that makes a `{own}`",
            hint=f"Make it with {arguments}." if arguments else "Its own code is the best that was measured: keep it.",
        )
    steps = "" if data.wanted_steps is None else f", steps_per_epoch={data.wanted_steps}"
    notes = [
        f"The dataset is that of {own}, called with the arguments that were measured best.",
        f"Of the file that holds {own}, only that is needed: a file that imports autopipe may do without.",
    ]
    if around := ", ".join(f"{name}={value}" for name, value in config.loader.around().items()):
        notes.append(f"autopipe also sets {around} around it; docs/workload.md has the lines that do the same.")
    if config.device_prefetch:
        notes.append(
            f"autopipe's trainer also puts {config.device_prefetch} batches on the device ahead; plain `fit` does not."
        )
    nothing = PlainSource(opened="", count="", arguments=())
    parts = Written(source=nothing, constants=[], finished="", packed="", functions={own: data.function})
    return {"call": f"{own}({arguments})", "steps": steps}, parts, notes
