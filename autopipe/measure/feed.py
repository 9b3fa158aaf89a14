"""The feed of a trial: one of autopipe's loaders over the part of the data that a trial can use.

If something has to be made first, that part is as large as can be made in time: a cache is filled, and a storage form
written, for it only. Written samples are kept for later trials of the session.

Foreign code is a feed, too: the output of `autopipe eject` for the workload, or a function of the user's. It is trained
on unchanged, by Keras's own `fit`, in a process of its own without autopipe's settings (allocator, OpenCV's threads).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal

import keras

from autopipe.errors import DataError, WorkloadError, shortened, told
from autopipe.hardware import disk, machine
from autopipe.hardware.disk import Regime
from autopipe.measure.bench import ENDLESS, Bench, EpochWatch, Probe
from autopipe.measure.costs import samples_to_make
from autopipe.measure.meter import AUTOTUNE_SECONDS, MOST_BEFORE_SECONDS, Meter
from autopipe.measure.outcome import ConversionCost, MeasureOptions
from autopipe.pipeline import assembly
from autopipe.pipeline.batching.trace import Trace
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.eject import forms, module
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Folder
from autopipe.workload.data import source as data_source
from autopipe.workload.mode import Mode
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import looked_at, make_plan
from autopipe.workload.sample import SLOTS, Field, Source, leaves, mapped
from autopipe.workload.workload import Workload


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of the data that a trial trains on."""

    workload: Workload  # with that part of the data
    share: float = 1.0  # of the data, 0 to 1
    conversion: ConversionCost | None = None  # of writing it, if it was converted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """An open feed."""

    meter: Meter
    train: Callable[[Probe], None]  # until the probe has seen enough
    loader: TimedLoader | None = None  # None for foreign code


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """The data of a trial, ready to be opened."""

    config: PipelineConfig
    opened: Callable[[], contextlib.AbstractContextManager[Open]]
    files: Sequence[str]  # that the training reads
    part: Part
    alone: float | None  # images/s of the model on a batch that is already there, if that is known
    tunes_itself: bool  # tf.data chooses settings while the training runs
    regime: Regime  # the state of the page cache when it begins
    # epochs that may be read if each file has to come from the disk: 2 if a part is kept, the rest is read again; None:
    # any number
    once: int | None = None


def loader_feed(config: PipelineConfig, wanted: MeasureOptions, bench: Bench, part: Part, regime: Regime) -> Feed:
    """Make the feed of a configuration, for a bench that has measured the model alone."""
    alone = bench.alone(config.model_setup).model_images_per_second.value
    once = None
    resident, kept = config.loader.keeps_on_device, config.kept
    if regime == "cold" and not resident and (not kept.in_memory or kept.part < 1):
        once = 2 if kept.in_memory else 1

    @contextlib.contextmanager
    def opened() -> Iterator[Open]:
        began = time.monotonic()
        loader = TimedLoader(assembly.build_loader(part.workload, config, plan=bench.plan, trace=wanted.trace))

        def train(probe: Probe) -> None:
            steps, epochs = max(1, round(len(loader) / part.share)), ENDLESS
            if once is not None:
                steps, epochs = once * len(loader), 1
            setup, ahead = config.model_setup, config.device_prefetch
            bench.run(loader, probe, setup, device_prefetch=ahead, steps=steps, epochs=epochs)

        try:
            yield Open(meter=meter_for(loader, config, wanted), train=train, loader=loader)
        finally:
            loader.close()
            if wanted.trace is not None:
                Trace(wanted.trace).span(config.short(), began, time.monotonic())

    files = _files(part.workload, config, int(alone * (wanted.max_seconds + MOST_BEFORE_SECONDS)))
    return Feed(
        config=config,
        opened=opened,
        files=files,
        part=part,
        alone=alone,
        tunes_itself=_tunes_itself(config),
        regime=regime,
        once=once,
    )


def _files(workload: Workload, config: PipelineConfig, samples: int) -> list[str]:
    if config.kept.converts:
        root = Folder.of(workload.converted).path
        return [] if root is None else [str(path) for path in root.rglob("*")]
    first: list[int] = assembly.batch_order(workload).epoch(0)[: max(samples, workload.batch_size)].tolist()
    return data_source.files(workload.data, first)


def meter_for(loader: TimedLoader, config: PipelineConfig, wanted: MeasureOptions) -> Meter:
    """Make the meter of a trial with the properties of its loader."""
    return Meter(
        loader.batch_size,
        loader.batches_at_once or config.loader.worker_count() or 1,
        wanted,
        fill_steps=len(loader) if config.kept.in_memory or config.loader.fills_cache else 1,
        settle_seconds=AUTOTUNE_SECONDS if _tunes_itself(config) else 0.0,
    )


def _tunes_itself(config: PipelineConfig) -> bool:
    return "auto" in config.loader.model_dump().values()


class Parts:
    """Makes the workloads of trials. `close` removes what they wrote."""

    def __init__(self, workload: Workload, plan: Plan) -> None:
        self._workload = workload
        self._plan = plan
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._written: dict[tuple[str, int, int], tuple[Workload, ConversionCost]] = {}

    def part_for(
        self, config: PipelineConfig, *, makes: Callable[[], float], trains: float, folder: str | None = None
    ) -> Part:
        """Choose the part of the data for a trial; converted samples go to `folder` (None: the temporary one).

        `makes` returns the images/s that the cores can make, and is called only if something has to be made first. The
        model `trains` images/s; a cache is filled during training, possibly on the same cores.
        """
        pieces = data_source.pieces(self._workload.data)
        count = len(self._workload.data if pieces is None else pieces)
        converts, resident = config.kept.converts, config.loader.keeps_on_device
        if not (config.kept.in_memory or converts or resident):
            return Part(workload=self._workload)
        rate = makes() if converts or resident else 1 / (1 / makes() + 1 / trains)
        wanted = samples_to_make(rate, self._workload.batch_size, count) or count
        part = self._workload
        if wanted < count:
            part = dataclasses.replace(part, data=data_source.part(part.data, wanted))
            wanted = len(part.data) if pieces is None else len(data_source.pieces(part.data) or ())
        part, conversion = self._converted(part, config, folder) if converts else (part, None)
        if conversion is not None and pieces is not None:
            conversion = conversion.model_copy(update={"whole": count})
        return Part(workload=part, share=wanted / count, conversion=conversion)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._written.clear()

    def refused(self, config: PipelineConfig) -> str | None:
        """Say that a training with `config`, which converts, stops: the workload's own set is of other data or ops."""
        storage, cut = STORAGES[config.kept.form], config.kept.cut
        own = Folder.of(self._workload.converted) / assembly.set_name(storage.name, cut)
        said = f"`{own}` is of other data or ops, so a training with keep={config.keep!r} stops. Remove it, and run "
        said += "`autopipe convert` again. Here samples are converted for the trial alone."
        whole = assembly.conversion_of(self._workload, self._plan, storage, cut)
        return said if layout.is_of_another(own, whole, storage) else None

    def _converted(self, part: Workload, config: PipelineConfig, folder: str | None) -> tuple[Workload, ConversionCost]:
        """Write the samples in the configuration's storage form, once for each cut; return the workload with them."""
        storage = STORAGES[config.kept.form]
        conversion = assembly.conversion_of(part, self._plan, storage, config.kept.cut)
        key = (storage.name, conversion.cut, len(part.data))
        if key not in self._written:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="autopipe-trial-", dir=folder)
            root = Path(self._folder.name) / "-".join(map(str, key))
            done = convert(conversion, storage, root, workers=machine.usable_cores())
            assert done.record is not None
            names = ("samples", "workers", "seconds", "shard_samples", "shard_seconds")
            of_all = {name: getattr(done, name) for name in names}
            cost = ConversionCost(cut=conversion.cut, bytes=done.record.bytes, **of_all)
            self._written[key] = dataclasses.replace(part, converted=str(root)), cost
        return self._written[key]


# -------------------- the page cache


class PageCache:
    """Prepares files for trials, and remembers those that have been read."""

    def __init__(
        self, source: Source, choice: Literal["warm", "cold", "auto"], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Set the state of the files for all trials of a session."""
        data_bytes = int(data_source.mean_bytes(source) * len(source))
        self.regime = disk.regime(choice, data_bytes, machine.detect_memory().usable_bytes)
        self._clock = clock
        self._warm: set[str] = set()
        self._left = 20.0  # seconds, to drop files ahead of a trial, and to read them ahead of all trials

    def prepare(self, files: Iterable[str]) -> bool:
        """Bring files into that state; True if there was time for all of them.

        Names that are no files, and files that were read before, are skipped.
        """
        cold, ready = self.regime == "cold", True
        names = [name for name in dict.fromkeys(files) if name not in self._warm]
        change = disk.drop if cold else disk.warm
        began = self._clock()
        with ThreadPoolExecutor(8) as pool:  # a network, or an SSD, gives one reader a part of what it can give
            for part in (names[begin : begin + 64] for begin in range(0, len(names), 64)):
                if self._clock() - began > self._left:
                    ready = False
                    break
                list(pool.map(lambda name: change(existing([name])), part))
                self._warm.update(() if cold else part)
        if not cold:
            self._left = max(0.0, self._left - (self._clock() - began))
        return ready


def existing(names: Iterable[str]) -> list[Path]:
    """Return the paths of those names that are files."""
    return [path for name in names if (path := Path(name)).is_file()]


# -------------------- foreign code

_FILL_SECONDS: Final = 2.0  # about, of a cache of tf.data
_RETURNS: Final = (
    "It must return a tf.data.Dataset, a keras.utils.PyDataset, or a pair of arrays (x, y), perhaps with weights third."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """Arguments of `fit`."""

    arguments: Mapping[str, Any]  # of `fit`
    settle_seconds: float = 0.0  # time for its own tuning before it is timed
    workers: int = 1  # threads or processes that make whole batches


class ForeignCode:
    """One piece of foreign code: plain code by the name of its form, or the user's function."""

    def __init__(
        self, workload: Workload, plan: Plan, code: str | Callable[[], Any], name: str, mode: Mode = Mode.TRAIN
    ) -> None:
        """Get the data, and look at the first batch of a user's function called `name`."""
        self._workload, self._plan, self._mode = workload, plan, mode
        self._form = code if isinstance(code, str) else None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._compiled: set[int] = set()  # benches, by their identity: a session keeps them
        if isinstance(code, str):
            self._fed = _fed(self._plain(code), self._workload, code)
        else:
            made = _called(code, name)
            self._require_alike(made, name)
            self._fed = _fed(_without_last(made), self._workload, name)

    def compile(self, bench: Bench) -> None:
        """Train one step unless done already, so that compilation is not timed."""
        if id(bench) not in self._compiled:
            with bench.strategy.scope():
                if self._mode is Mode.TRAIN:
                    bench.model.fit(**{**self._fed.arguments, "epochs": 1, "steps_per_epoch": 1}, verbose=0)
                else:
                    self._serve(bench, {"steps": 1})(verbose=0)
            self._compiled.add(id(bench))

    def _serve(self, bench: Bench, more: Mapping[str, Any]) -> Callable[..., object]:
        """Return Keras's `evaluate` or `predict` of the data."""
        arguments = {**self._fed.arguments, **more}
        left_out = {"epochs", "steps_per_epoch", "shuffle", *(SLOTS[1:] if self._mode is Mode.PREDICT else ())}
        if "steps_per_epoch" in arguments:  # the data do not end
            arguments.setdefault("steps", len(self._workload.data) // self._workload.batch_size)
        given = {name: value for name, value in arguments.items() if name not in left_out}
        model = bench.model
        return functools.partial(model.evaluate if self._mode is Mode.EVALUATE else model.predict, **given)

    def train_epochs(
        self, bench: Bench, watch: EpochWatch, steps: Sequence[int], validation: Source, *, cut: bool
    ) -> None:
        """Train whole epochs, with a validation by the same form of code; with `cut`, some steps of both only. Raise
        WorkloadError for a user's function, and PlainCodeError if the validation cannot be written so.
        """
        if self._form is None:
            raise WorkloadError("How a user's own baseline validates is not known.")
        over = assembly.for_evaluation(self._workload, validation)
        filled = cut and self._form == module.CACHED  # a part of it would be decoded anew in each epoch
        data = self._filled(over, make_plan(over)) if filled else self._made(self._form, over)
        arguments = {**self._fed.arguments, "epochs": ENDLESS, "validation_data": data}
        if cut or "steps_per_epoch" in arguments:
            arguments |= {"steps_per_epoch": steps[0], "validation_steps": steps[1]}
            if _is_dataset(arguments["x"]):
                arguments["x"] = arguments["x"].repeat()  # an epoch goes on where the one before ended
        with bench.strategy.scope():
            bench.model.fit(**arguments, callbacks=[watch], verbose=0)

    def feed(self, config: PipelineConfig, wanted: MeasureOptions, bench: Bench, regime: Regime) -> Feed:
        workload, fed, alone = self._workload, self._fed, wanted.model_images_per_second
        epochs = 1 if regime == "cold" else ENDLESS

        def train(probe: Probe) -> None:
            with bench.strategy.scope():
                if self._mode is Mode.TRAIN:
                    bench.model.fit(**{"epochs": epochs, **fed.arguments}, callbacks=[probe], verbose=0)
                else:
                    probe.passes(self._serve(bench, {}), epochs)

        @contextlib.contextmanager
        def opened() -> Iterator[Open]:
            meter = Meter(workload.batch_size, fed.workers, wanted, settle_seconds=fed.settle_seconds)
            yield Open(meter=meter, train=train)
            gc.collect()  # a framework's iterators stop reading ahead

        most = min(int((alone or 1e5) * (wanted.max_seconds + MOST_BEFORE_SECONDS)), len(workload.data))
        return Feed(
            config=config,
            opened=opened,
            files=data_source.files(workload.data, None if workload.shuffle else range(most)),  # its order is its own
            part=Part(workload=workload),
            alone=alone,
            tunes_itself=fed.settle_seconds > 0,
            regime=regime,
        )

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _plain(self, form: str) -> Any:
        """Write and import the code of `eject`, and call it for the data that it gives to `fit`."""
        if form == module.CACHED:
            return self._filled(self._workload, self._plan)
        data = self._made(form, self._workload)
        return _without_last(data) if form == module.DIRECTORY else data

    def _filled(self, workload: Workload, plan: Plan) -> Any:
        """Return the dataset of the form that has a cache, after the first epoch, in which that fills."""
        every = _kept_of(workload, plan)
        data = self._made(module.CACHED, workload, every)
        for _ in data:
            pass
        return data.repeat() if every > 1 else data  # the epochs of a part are shorter than those of all

    def _made(self, form: str, workload: Workload, every: int = 1) -> Any:
        """Return the dataset that the plain code of a workload makes, of each `every`-th sample only: the kept ones
        take as long to read as a trial can wait.
        """
        plan = self._plan if workload is self._workload else None
        plain = module.module(workload, form, plan=plan, own=False, every=every)
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="autopipe-plain-")
        # A file, of which TensorFlow reads the source.
        file = Path(self._folder.name) / f"plain_{'pipeline' if plan is not None else 'validation'}.py"
        file.write_text(plain.code, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        vars(made).update(plain.functions)
        spec.loader.exec_module(made)
        make = next(getattr(made, name) for name in ("make_dataset", "Batches", "arrays") if hasattr(made, name))
        return make(**plain.given)

    def _require_alike(self, made: Any, name: str) -> None:
        batch, spec = _first_batch(made, self._workload.batch_size, name), self._plan.finished
        if spec.structure is not None:
            try:
                batch = spec.structure.flat(batch)
            except DataError as error:
                raise WorkloadError(f"The baseline `{name}` gives other batches: {error.message}") from None
        for part, array, field in zip(spec.labels, batch, spec.columns, strict=True):
            wanted = None if field is None else (self._workload.batch_size, *(field.shape or ()))
            got = getattr(array, "shape", None)
            if array is not None and (got is None or wanted != tuple(got)):
                raise WorkloadError(
                    f"The baseline `{name}` must train on what the workload trains on: batches whose {part} is "
                    f"{_shown(wanted, field)}, but it gives {shortened(array) if got is None else tuple(got)}.",
                    hint=f"Give it the workload's batch size, {self._workload.batch_size}, and its ops.",
                )
            if array is None and wanted is not None:
                raise WorkloadError(
                    f"The baseline `{name}` must train on what the workload trains on, but its batches have no {part}.",
                    hint="Return batches (x, y).",
                )


def _kept_of(workload: Workload, plan: Plan) -> int:
    """Choose the samples for each one that tf.data keeps in a trial."""
    numbers, began = looked_at(len(workload.data)), time.perf_counter()
    forms.cached_bytes(workload, plan)  # decodes them
    seconds = (time.perf_counter() - began) * len(workload.data) / len(numbers) / machine.usable_cores()
    fewest = 8 * workload.batch_size  # samples that a cache holds
    return max(1, min(math.ceil(seconds / _FILL_SECONDS), len(workload.data) // fewest))


def _shown(wanted: tuple[int, ...] | None, field: Field | None) -> str:
    return "nothing" if wanted is None or field is None else f"{wanted} {field.dtype}"


def _called(function: Callable[[], Any], name: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise WorkloadError(
            f"The baseline `{name}()` raised {told(error)}", hint=f"It is called without arguments. {_RETURNS}"
        ) from error


def _arrays(made: tuple[Any, ...]) -> list[Any]:
    """Return the arrays of (x, y) or (x, y, sample_weight), each of which may be a tuple or dictionary."""
    return [part for slot in made for part in leaves(slot)]


def _is_dataset(made: Any) -> bool:
    import tensorflow as tf

    return isinstance(made, tf.data.Dataset)


def _first_batch(made: Any, batch_size: int, name: str) -> tuple[Any, ...]:
    if isinstance(made, keras.utils.PyDataset):
        batch = made[0]
    elif _is_dataset(made):
        batch = next(iter(made.take(1)), None)
        if batch is None:
            raise WorkloadError(f"The baseline `{name}` must return a dataset of batches, but it holds none.")
    elif isinstance(made, tuple) and len(made) in (2, 3) and all(hasattr(part, "shape") for part in _arrays(made)):
        batch = tuple(mapped(lambda part: part[:batch_size], slot) for slot in made)
    else:
        raise WorkloadError(f"The baseline `{name}` returned {shortened(made)}.", hint=_RETURNS)
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    return parts if len(parts) > 1 else (*parts, None)


def _without_last(made: Any) -> Any:
    """Leave out an epoch's last batch, which may be short: compiling for its shape would be timed. It is read, because
    a cache within the dataset is thrown away unless its end is reached.
    """
    count = int(made.cardinality()) if _is_dataset(made) else 0
    if count <= 1:
        return made
    import tensorflow as tf

    others = made.enumerate().filter(lambda number, _: number < count - 1).map(lambda _, batch: batch)
    return others.apply(tf.data.experimental.assert_cardinality(count - 1))


def _fed(made: Any, workload: Workload, name: str) -> Fed:
    if isinstance(made, keras.utils.PyDataset):
        endless = {} if made.num_batches is not None else {"steps_per_epoch": ENDLESS, "epochs": 1}
        return Fed(arguments={"x": made, **endless}, workers=max(1, made.workers))
    if _is_dataset(made):
        endless = {"steps_per_epoch": ENDLESS, "epochs": 1} if int(made.cardinality()) == -1 else {}
        return Fed(arguments={"x": made, "shuffle": False, **endless}, settle_seconds=AUTOTUNE_SECONDS)
    rows = len(_arrays(made)[0]) // workload.batch_size * workload.batch_size
    arrays = {key: mapped(lambda part: part[:rows], slot) for key, slot in zip(SLOTS, made, strict=False)}
    return Fed(arguments={**arrays, "batch_size": workload.batch_size, "shuffle": workload.shuffle})
