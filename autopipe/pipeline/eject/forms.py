"""The forms of plain code: a template each, and the texts that fill it for a workload.

A form of one loader is a `Form`; extensions bring theirs as modules with the same names. `fit` arrays, a folder that
Keras lists and the call of a user's own dataset have no configuration of autopipe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, NamedTuple

from autopipe.errors import ConfigError, PlainCodeError
from autopipe.hardware import machine
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject.written import Written, function, indented, own_name, stages
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.wrapped import Foreign, Wrapped
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.data import source as data_source
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.op import Plan
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.planner import looked_at, prepared
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.plain_code import PlainSource
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload

_MOST_OF_MEMORY: Final = 0.5  # that arrays, or kept samples, may take


class Form(NamedTuple):
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


TFDATA: Final = Form(_TFDATA_TEMPLATE, _tfdata)


def against_cache(workload: Workload, plan: Plan) -> str | None:
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


def workers_of(form: str) -> int | None:
    """Return the threads of Keras's queue in the form "keras", "keras-workers" or "keras-workers=32"; None for others.
    One is Keras's default: each batch is then made when it is asked for. Raise ConfigError if a PyDataset cannot have
    so many workers.
    """
    name, _, workers = form.partition("=")
    if name == KERAS_WORKERS and workers.isdecimal():
        if not 1 <= int(workers) <= _MOST_WORKERS:
            raise ConfigError(f"`{KERAS_WORKERS}` must be 1 to {_MOST_WORKERS} workers, but got {form!r}.")
        return int(workers)
    return {"keras": 1, KERAS_WORKERS: WORKERS}.get(form)


def _py_dataset(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    assert isinstance(config.loader, Foreign)
    workers = workers_of(config.loader.code)
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


PY_DATASET: Final = Form(_PY_DATASET_TEMPLATE, _py_dataset)


# -------------------- arrays for `model.fit(x, y)`: every op is done to all of them beforehand

ARRAYS_TEMPLATE: Final = '''\
$load$finish
def arrays($given) -> Any:
    """Return all samples: `$fit`."""
$made
    return $finished
'''


def arrays(workload: Workload, plan: Plan, parts: Written) -> dict[str, object]:
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

DIRECTORY_TEMPLATE: Final = '''\
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


def directory(workload: Workload, plan: Plan, parts: Written) -> tuple[dict[str, object], Written]:
    """Return the texts, and the parts without the listing of files; raise PlainCodeError for data without class
    folders, or ops other than Keras's.
    """
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

CALL_TEMPLATE: Final = '''\
def tuned_dataset() -> Any:
    """Return the dataset: `model.fit(tuned_dataset(), epochs=3$steps)`."""
    return $call
'''


def call(data: WrappedData, config: PipelineConfig | str) -> tuple[dict[str, object], Written, list[str]]:
    """Return the texts, the import of the user's function, and notes for the caller; raise PlainCodeError for another
    form: its code would know the first batch alone.
    """
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
