"""A callback that times the steps of `keras.Model.fit`, with any kind of data.

Keras keeps the function that does a step in `model.train_function` and gives it an iterator over batches. During a
`fit`, a function in its place hands the same batches on one by one and reads the clock. After enough steps, the model
runs on the last batch alone, on copies of all that a step changes.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

import keras

from autopipe import frameworks, native
from autopipe.errors import AutopipeError, ModelError
from autopipe.extensions.diagnose import data as of_data
from autopipe.extensions.diagnose import steps as timing
from autopipe.extensions.diagnose import watched
from autopipe.extensions.diagnose.loop import kind_of_data
from autopipe.extensions.diagnose.samples import Samples
from autopipe.extensions.diagnose.steps import WARM_UP_STEPS, Look, StepClock, TimedStep
from autopipe.frameworks import tfdata
from autopipe.frameworks.hooks import standing_in
from autopipe.hardware import machine, processes
from autopipe.measure import bench, costs, epochs, facts, op_costs, outcome
from autopipe.measure.lines import Lines, LineWatch
from autopipe.measure.stats import median
from autopipe.pipeline.devices.strategy import SingleDevice
from autopipe.values import capital
from autopipe.workload.data.paths import spread
from autopipe.workload.ops import planner

_UNSEEN = "Lines were seen in no process: those that were not forked from the training's own are not looked at."


class Onlooker(keras.callbacks.Callback):
    """Watches one `fit`, reports once, leaves the model unchanged, and adds its figures to each epoch's logs."""

    def __init__(
        self,
        told: Callable[[watched.Watched], None],
        look: Look | None = None,
        *,
        data: str | None = None,
        source: Any = None,
        left_out: tuple[str, ...] = (),
        before: Set[bytes] = frozenset(),
    ) -> None:
        """Call `told`, once: after enough steps, or at the end; it may raise, which ends the training. The rest is for
        the report; without `data` and `source`, these are of the `fit` that calls.
        """
        super().__init__()
        self._told = told
        self._look = look or Look()
        self._report: dict[str, Any] = {"data": data, "left_out": left_out}
        self._source, self._trainer, self._before, self._looks = source, None, before, data is None
        self._seen: Any = None
        self._owners: Any = None
        self._tests: Any = None  # the model's test function, while it is validated
        self._reader: Any = None  # the iterator of this epoch
        self._sampler: processes.Sampler | None = None
        self._lines: LineWatch | None = None
        self._validations: LineWatch | None = None
        self._validation_from = self._tested = 0.0
        self._batch: Any = None
        self._unwatch: Callable[[], None] = lambda: None
        self._unhook = self._unwatch
        self._behind: list[Any] = []  # the logs of steps that JAX may not have done yet
        self.waiting_since: float | None = None  # of the monotonic clock; None while no batch is waited for
        self._images = 0  # of this step
        self._begin()

    def _begin(self, *, has_y: bool = True) -> None:
        self._steps, self._pages, self._hooks = StepClock(), watched.PageCounts(), list[float]()
        self._epochs_from: list[float] = []  # by the monotonic clock
        self._validation_lines: Lines | None = None
        self._shapes: set[Any] = set()
        self._samples = Samples(drawn=epochs.draws_parts(self._source), has_y=has_y, before=self._before)
        self._epoch_from, self._batch_size, self.is_done = 0, 0, False
        self._behind.clear()

    def set_trainer(self, trainer: Any) -> None:
        self._report["data"], self._trainer, self._looks = "autopipe", trainer, False
        self._source = None if trainer.workload is None else trainer.workload.data

    def on_train_begin(self, logs: Any = None) -> None:
        if type(self.model).make_train_function is not keras.Model.make_train_function:
            raise ModelError(
                f"A training can be watched where Keras makes its training function, but {type(self.model).__name__} "
                "has a `make_train_function` of its own.",
                hint="Put what is special into `train_step`.",
            )
        lines = self._lines
        if lines is not None and lines.is_new:  # made by `wait`, for this `fit`
            self._lines = None
        self.leave()  # a `fit` before may have had no end
        if self._looks:
            self._source = frameworks.fitted_on()
            self._report["data"] = None if self._source is None else kind_of_data(self._source)
        # Without a loss, a `train_step` of its own gives slots a meaning.
        self._begin(has_y=getattr(self.model, "loss", None) is not None)
        self.model.make_train_function()  # a trainer's callbacks are told before Keras does
        self._seen, self._owners = self.model, self.model.train_function
        self.model.train_function = self._step
        self._unwatch = frameworks.watch_queues(self._queue)
        self._hooks, self._unhook = of_data.time_hook(self._source)
        self._sampler = processes.Sampler()
        self._sampler.start()
        self._lines = lines if lines is not None and lines.is_new else LineWatch()

    def wait(self) -> None:
        """Begin to wait for a batch, as Keras may before it tells its callbacks."""
        if self._lines is not None:
            self._lines.stop()
        self.waiting_since, self._lines = time.monotonic(), LineWatch()

    @property
    def line_watch(self) -> LineWatch | None:
        return self._validations or self._lines

    @property
    def trained_on(self) -> Set[bytes]:
        return self._samples.xs | self._before

    @property
    def images(self) -> int:
        return sum(step.images for step in self._steps.steps)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.waiting_since = time.monotonic()
        self._epochs_from.append(self.waiting_since)
        self._steps.epoch_began()
        self._samples.epoch_began()
        self._pages.restart()
        self._epoch_from = len(self._steps.steps)
        self._reader = None  # Keras gives its own up, too, before another one reads

    @contextlib.contextmanager
    def _queue(self) -> Iterator[None]:
        """Note the time in which the queue of workers is emptied, unless it is the validation's."""
        notes = self._tests is None and threading.current_thread() is threading.main_thread()
        if notes:
            self._steps.spent_on("between")
        yield
        if notes:
            self._steps.spent_on("queue")

    def on_test_begin(self, logs: Any = None) -> None:
        if self._seen is None or self._lines is None:
            return
        self._catch_up()
        self.waiting_since = time.monotonic()
        # The first one's data were opened just now, of which Keras reads two batches.
        self._steps.spent_on("between" if self._epoch_from else "validation")
        self._validation_from, self._tested = self._steps.waits, time.perf_counter()
        self._lines.paused = True
        if not self.is_done and self._validation_lines is None:
            self._validations = LineWatch()
            self._validations.start()
        self._samples.validation_began()
        self._tests, self.model.test_function = self.model.test_function, self._test

    def _test(self, *arguments: Any) -> Any:
        *state, batches = arguments
        if isinstance(batches, list):  # as in `_timed`
            self._steps.waits += time.perf_counter() - self._tested
        else:
            batches = self._steps.waiting(batches)
        result = self._tests(*state, self._samples.validated(batches))
        self._let_run(result[0] if state else result)
        self._tested, self.waiting_since = time.perf_counter(), time.monotonic()
        return result

    def on_test_end(self, logs: Any = None) -> None:
        if self._tests is None or self._lines is None:
            return
        self._behind.clear()
        self._steps.validated(self._steps.waits - self._validation_from)
        if self.model.test_function == self._test:  # else it was compiled anew
            self.model.test_function = self._tests
        self._tests, self._lines.paused = None, False
        if self._validations is not None:
            self._validation_lines, self._validations = self._validations.stop(), None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.waiting_since = None  # callbacks take as long as they like
        self._catch_up()
        self._steps.spent_on("between")
        steps = self._steps.steps[max(self._epoch_from, WARM_UP_STEPS) :]
        seconds = sum(step.seconds for step in steps)
        if logs is not None and seconds > 0:
            logs["images_per_second"] = sum(step.images for step in steps) / seconds
            logs["data_wait_share"] = sum(step.waiting_seconds for step in steps) / seconds

    def on_train_end(self, logs: Any = None) -> None:
        try:
            self._steps.epochs_ended()
            if not self.is_done and len(self._steps.steps) > WARM_UP_STEPS:
                self._tell(frameworks.step_state(self.model, "optimizer", "metrics"))
        finally:
            self.leave()

    def leave(self) -> None:
        self.waiting_since = None
        if self._seen is not None and self._seen.train_function == self._step:  # else it was compiled anew
            self._seen.train_function = self._owners
        self._unwatch()
        self._unhook()
        for each in (self._sampler, self._lines, self._validations):
            if each is not None:
                each.stop()
        if self._tests is not None and self.model.test_function == self._test:
            self.model.test_function = self._tests
        self._tests, self._validations = None, None
        self._seen = self._owners = self._sampler = self._lines = self._batch = self._reader = None

    def _step(self, *arguments: Any) -> Any:
        """Do a step, and read the clock. Keras does not report the end of a `fit` that ends in here."""
        try:
            return self._timed(*arguments)
        except BaseException as error:
            if not isinstance(error, StopIteration):  # the end of the data
                self.leave()
            raise

    def _timed(self, *arguments: Any) -> Any:
        *state, batches = arguments
        self._reader = batches
        fetched = isinstance(batches, list)  # by Keras on torch, after the callbacks of the last step
        self._steps.step_began(fetched=fetched)
        known = len(self._shapes)
        source = self._noted(iter(batches) if fetched else self._steps.waiting(batches))
        self._images = 0
        source = _with([next(source)], source)  # at the end of the data it ends here, as Keras expects it to
        result = self._owners(*state, list(source) if fetched else source)
        logs = result[0] if state else result
        enough = not self.is_done and self._is_enough()
        if enough or len(self._steps.steps) == WARM_UP_STEPS - 1:
            bench.wait_for_device(logs)  # between these two, steps overlap with the host as they do in training
        self._let_run(logs)
        self._steps.step_ended(self._images, is_new=len(self._shapes) > known)
        self._pages.step_ended()
        if not self.is_done:
            assert self._lines is not None
            if len(self._steps.steps) == 1 and self._lines.is_new:  # the one that compiles
                self._lines.start()
            elif self._look.is_enough(len(self._steps.steps), self._steps.seconds, timing.LINES_SHARE):
                self._lines.stop()
        if enough:
            self._tell(tuple(result[1:]) if state else ())
            self._steps.pause_ended()
        self.waiting_since = time.monotonic()
        return result

    def _let_run(self, logs: Any) -> None:
        """Let JAX be some steps behind, and no whole epoch, which it would do while something else is timed."""
        if keras.backend.backend() == "jax":
            self._behind.append(logs)
        while len(self._behind) > _AHEAD_STEPS:
            bench.wait_for_device(self._behind.pop(0))

    def _catch_up(self) -> None:
        if self._behind:
            bench.wait_for_device(self._behind)
            self._behind.clear()
            self._steps.step_lasted()

    def _is_enough(self) -> bool:
        """Return True after enough steps, unless the end of an epoch is near and none but the first was seen."""
        assert self._seen is not None  # `self.model` would put the weights of the step before back, on JAX
        steps = self._steps.steps
        if not self._look.is_enough(len(steps), self._steps.seconds):
            return False
        per_epoch: float = ((self.params or {}).get("steps") or math.inf) / self._seen.steps_per_execution
        left = per_epoch - (len(steps) + 1 - self._epoch_from)
        known = self._steps.epochs is not None and not self._steps.is_first_epoch
        if known or not math.isfinite(left):
            return True
        if self._look.steps is not None:
            return left > self._look.steps
        return left * self._steps.seconds > len(steps) * self._look.seconds

    def _noted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.waiting_since = None
            rows = timing.rows_of(batch)
            self._shapes.add(timing.shape_of(batch))
            self._images, self._batch_size = self._images + rows, max(self._batch_size, rows)
            if not self.is_done:
                self._batch = batch
                self._samples.trained(batch)
            yield batch
            del batch  # its memory, unless Keras keeps it, goes back to a loader before the next one is asked for

    def _tell(self, state: tuple[Any, ...]) -> None:
        self.is_done = True
        assert self._sampler is not None
        assert self._lines is not None
        lines, usage = self._lines.stop(), self._sampler.stop()
        resources = outcome.Resources.of(usage)
        others = (usage.peak_processes or 1) > 1 and not self._lines.has_forked
        unseen = [_UNSEEN] if lines is None and others else []
        seen = timing.steady(self._steps.steps)
        rows, figures = timing.rows_of(self._batch), self._steps.figures(seen)
        keeps = epochs.made_by(self._source, "CacheDataset")
        if self._steps.is_first_epoch and keeps:  # it is opened more quickly from now on
            figures["epochs"] = figures["epochs"].model_copy(update={"first_batch_seconds": 0.0})
        rates, warnings = self._alone(state)
        step_seconds = figures["seconds"] / len(seen)
        waits = figures["waiting_seconds"] + figures["between_seconds"] > _WAITS * figures["seconds"]
        source, trainer, self._source, self._trainer = self._source, self._trainer, None, None
        keeps = keeps and {"lists", "endless"}.isdisjoint(tfdata.cached(source))  # what is decoded
        reader = self._reader if hasattr(source, "element_spec") and trainer is None else None
        images, folder = of_data.image_files(source) or (None, None)
        found = watched.Watched(
            **self._report,
            **_python(trainer),
            image_files=images,
            folder=folder,
            backend=keras.backend.backend(),
            batch_size=self._batch_size,
            **figures,
            alone_images_per_second=None if not rates else rates[0] * rows,
            augmentation=tuple(dict.fromkeys(type(layer).__name__ for layer in augmenting_layers(self._seen))),
            without_augmentation_images_per_second=rates[1] * rows if len(rates) > 1 else None,
            cores=machine.core_time(),
            pages=self._pages.of_last(len(seen)),
            compiling_seconds=timing.compiling(seen, keras.backend.backend()),
            shapes=len(self._shapes),
            validation_lines=self._validation_lines,
            autotune=None if reader is None else of_data.autotuned(reader),
            begins_anew=of_data.begins_anew(source, figures["epochs"], hooks=self._hooks),
            resources=resources,
            lines=lines,
            warnings=(
                *self._samples.said(),
                *self._samples.values.misfits(self._seen),
                *resources.warnings,
                *_warnings(seen, self._seen, source, reader, waits=waits),
                *(self._samples.overlapping() if hasattr(source, "num_batches") else ()),
                *of_data.left_out(source, self._batch_size),
                *of_data.counts_samples(source, (self.params or {}).get("steps"), self._batch),
                *of_data.held_ahead(of_data.ahead_of(source), self._batch),
                *of_data.shuffled_ahead(source),
                *(of_data.listed(source) if waits else ()),
                *(of_data.piped(source, self._batch, step_seconds) if waits else ()),
                *(of_data.larger(source, self._batch) if waits and trainer is None and not keeps else ()),
                *[_ENDED.format(self._steps.empty_epochs)] * (self._steps.empty_epochs > 0),
                *timing.dropped(timing.asked_of(source), self._steps.steps),
                *timing.empty(self._steps.steps),
                *timing.grows(usage, self._epochs_from),
                *unseen,
                *warnings,
            ),
        )
        self._batch = None
        self._told(found)

    def _alone(self, state: tuple[Any, ...]) -> tuple[list[float], tuple[str, ...]]:
        """Return steps/s of the model on a batch in memory, and the same without its augmentation, if it has any."""

        def placed(leaf: Any) -> Any:
            is_array = hasattr(leaf, "__array__") and hasattr(leaf, "shape")
            return SingleDevice().place(leaf) if is_array and getattr(leaf, "dtype", None) != "string" else leaf

        batch = keras.tree.map_structure(placed, self._batch)
        layers = augmenting_layers(self._seen)
        rates = []
        try:
            with contextlib.nullcontext() if state else unchanged(self._seen):
                for function in [self._owners, *([function_without(self._seen, layers)] if layers else [])]:
                    copy = keras.tree.map_structure(keras.ops.copy, state)  # a step on JAX donates its arrays
                    seen = calls(function, copy, batch, self._look.alone_seconds)
                    # The median of the faster half: other load on the machine can only make a call slower.
                    rates.append(self._seen.steps_per_execution * median(sorted(seen)[len(seen) // 2 :]))
        except (ValueError, TypeError, RuntimeError, MemoryError) as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            return rates, (f"The model could not be timed on a batch alone: {line}",)
        return rates, ()


def calls(function: Callable[..., Any], state: tuple[Any, ...], batch: Any, seconds: float) -> list[float]:
    """Time calls of a model's function on a copied `state`; return calls a second, window by window."""
    given = [batch] if keras.backend.backend() == "torch" else itertools.repeat(batch)

    def took(count: int) -> float:
        nonlocal state
        began = time.perf_counter()
        for _ in range(count):
            result = function(*state, given)
            logs, state = (result[0], tuple(result[1:])) if state else (result, ())
        bench.wait_for_device(logs)
        return max(time.perf_counter() - began, 1e-9)

    took(1)  # which compiles if that was not done
    step_seconds = max(took(2), 1e-6) / 2
    windows = max(3, min(8, int(seconds / step_seconds)))
    count = max(1, int(seconds / windows / step_seconds))
    return [count / took(count) for _ in range(windows)]


_AHEAD_STEPS = 2  # of the host, on JAX
_WAITS = 0.1  # of the time: with less, it is no matter how a batch comes
_OPS_SAMPLES, _OPS_SECONDS = 32, 0.15  # that ops are timed on


def _python(trainer: Any) -> dict[str, Any]:
    """Return the costs of a trainer's ops, and the reason if the native library is not used."""
    workload, config = getattr(trainer, "workload", None), getattr(trainer, "config", None)
    if workload is None or config is None or not workload.ops:
        return {}
    plan, indices = planner.make_plan(workload), spread(len(workload.data), _OPS_SAMPLES)
    try:
        ops, _ = op_costs.op_costs(workload, plan, indices, seconds=_OPS_SECONDS)
        ops = op_costs.with_lock(
            op_costs.as_made(ops, workload, plan, indices, seconds=_OPS_SECONDS), workload, plan, indices
        )
    except AutopipeError:
        return {}
    paid = costs.work(config, facts.LoaderCeiling(op_costs=ops)).paid
    threads = costs.turns(config.loader, machine.core_time())
    return {"ops": paid, "threads": threads, "not_native": native.why_not()}


def _with(first: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    """Yield the first batch and drop it, which `itertools.chain` would not; then the rest."""
    yield first.pop()
    yield from rest


_ENDED = (
    "The data came to their end, and {} epochs trained nothing. A generator is read once: give `fit` one that goes on "
    "for ever, or a new one for each epoch; a dataset ends with `.repeat()`."
)


def _warnings(seen: Sequence[TimedStep], model: Any, source: Any, reader: Any, *, waits: bool) -> tuple[str, ...]:
    said = [*timing.doubts(seen), *of_data.shared(source)]
    found = [epochs.few_weights(source), epochs.orders_nothing(source)]
    if reader is not None:
        found.append(tfdata.thrown_away(reader))
        if waits:
            of_map = tfdata.one_for_each(reader, max(step.images for step in seen))
            found += [tfdata.one_by_one(reader, source), of_map]
    said += [f"{capital(each)}." for each in found if each is not None]
    said += of_data.misordered(source)
    if model.run_eagerly and keras.backend.backend() != "torch":
        said.append(
            "The model runs eagerly, as run_eagerly=True (or tf.config.run_functions_eagerly) asks: that is for "
            "looking for errors. Compiled, its steps take less."
        )
    elif not model.jit_compile and keras.backend.backend() == "jax":
        said.append("The model runs op by op, as jit_compile=False asks: JAX compiles its steps if it is left out.")
    if model.steps_per_execution > 1:
        said.append("Steps were done one by one here, though `steps_per_execution` is set.")
    return tuple(said)


# -------------------- the model alone, without its augmentation, and as it was before

_OTHERS = {"AugMix", "CutMix", "MixUp", "RandAugment"}  # that Keras ships besides those called Random...


def augmenting_layers(model: Any) -> list[Any]:
    """Return the augmenting layers (Random*) of a model, at any depth; they change nothing outside of training."""
    return [
        layer
        for layer in frameworks.layers(model)
        if any(kind.__name__.startswith("Random") or kind.__name__ in _OTHERS for kind in type(layer).__mro__)
        and "training" in inspect.signature(layer.call).parameters
    ]


@contextlib.contextmanager
def turned_off(layers: Sequence[Any]) -> Iterator[None]:
    """Make these layers behave in training as in prediction."""
    with contextlib.ExitStack() as stack:
        for layer in layers:

            def predicting(*inputs: Any, call: Callable[..., Any] = layer.call, **others: Any) -> Any:
                return call(*inputs, **{**others, "training": False})

            stack.enter_context(standing_in(layer, "call", predicting))
        yield


@contextlib.contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """Restore the variables of the model, its optimizer and its metrics when the block ends."""
    kept = [(variable, variable.numpy().copy()) for variable in frameworks.held_variables(model)]
    try:
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)


def function_without(model: Any, layers: list[Any]) -> Callable[..., Any]:
    """Make the model's training function as Keras does, for calls while `layers` are turned off."""
    owners_function, step = model.train_function, model.train_step
    with standing_in(model, "train_step", lambda *given: step(*given)):  # frameworks know the first one's trace
        try:
            model.make_train_function(force=True)
            function = model.train_function
        finally:
            model.train_function = owners_function

    def without(*arguments: Any) -> Any:
        with turned_off(layers):  # it is traced at its first call
            return function(*arguments)

    return without


def Diagnose(*, seconds: float = 10.0, steps: int | None = None) -> Onlooker:
    """Return a Keras callback that watches a running `fit`, and prints its bottleneck once.

    After some seconds of training, the model runs for about as long on one batch that is already in memory, with copies
    of everything that a step changes. Then the training goes on unchanged. Each epoch's `images_per_second` and
    `data_wait_share` go to the logs, and so to callbacks that come later in the list.

    Args:
        seconds: of training to watch, after the first step, which compiles.
        steps: to watch instead, after the first two.

    Examples:
        >>> model.fit(dataset, epochs=3, callbacks=[ap.Diagnose()])  # doctest: +SKIP
    """
    return Onlooker(watched.show, Look(seconds=seconds, steps=steps))
