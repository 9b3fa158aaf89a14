"""Trains the user's model from a loader, by Keras's own `fit`; a trial times the same code.

The trainer owns the loader and closes it; the model stays the user's own object. How batches travel is in `feed`, the
ops inside the step are the last part of this file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from types import MappingProxyType
from typing import Any, Final, Literal, Self

import keras

from autopipe import frameworks
from autopipe.errors import ModelError, shortened
from autopipe.frameworks.hooks import standing_in
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices.callbacks import TrainingCallbacks, listed, of_rank, restored
from autopipe.pipeline.devices.feed import Fault, Placement, Stream, replayed
from autopipe.pipeline.devices.strategy import DeviceStrategy, SingleDevice
from autopipe.pipeline.loader import Finish, Loader, LoaderState
from autopipe.pipeline.switching import SwitchingLoader, check_tune
from autopipe.workload.data.source import require_same_classes
from autopipe.workload.mode import Mode
from autopipe.workload.op import ArrayNamespace
from autopipe.workload.sample import Source
from autopipe.workload.workload import Workload

_ELSEWHERE: Final = {
    **dict.fromkeys(("x", "y", "batch_size", "shuffle"), "Set it in the workload."),
    "sample_weight": "Let the workload's samples be (x, y, sample_weight).",
    "validation_split": "Pass samples that are not trained as validation=..., such as those of "
    'ap.ImageFolder("photos", validation_split=0.2, subset="validation", seed=1).',
    "validation_data": "Pass it as validation=...",
}
"""Arguments of Keras's `fit` that a trainer has in another form, and which that is."""
_log = logging.getLogger(__name__)
_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_KNOW_BETTER = {"keras", "autopipe"}  # packages whose callbacks count several steps at once
_NOTHING: Final = Finish()


def _checked(data: tuple[Any, ...], epochs: int, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the epochs and the other arguments for Keras's `fit`; raise ModelError if one cannot be."""
    if len(data) > 1 or not all(isinstance(each, numbers.Integral) for each in data):
        raise ModelError(
            f"A trainer has its data already, but `fit` got {shortened(data[0])}.",
            hint="Write fit(epochs=3). Other data need a trainer of their own; validation=... takes samples.",
        )
    for name, hint in _ELSEWHERE.items():
        if name in arguments:
            raise ModelError(
                f"`fit` of a trainer does not take `{name}`, but got {name}={shortened(arguments[name])}.", hint=hint
            )
    weights = arguments.get("class_weight")
    named = isinstance(weights, Mapping) and all(isinstance(each, numbers.Number) for each in weights)
    if weights is not None and not named:
        raise ModelError(
            f"`class_weight` must map the number of a class to its weight, but got {shortened(weights)}.",
            hint="Write class_weight=dict(enumerate(weights)); names are numbered as in `data.classes`.",
        )
    counts = {
        name: _whole_number(name, arguments[name], least)
        for name, least in (("steps_per_epoch", 1), ("initial_epoch", 0))
        if arguments.get(name) is not None
    }
    return _whole_number("epochs", data[0] if data else epochs, least=0), {**arguments, **counts}


def _check_class_weight(weights: Any, workload: Workload | None) -> None:
    """Raise ModelError if weights are of classes from 1 on. An op on y may number them so."""
    if weights is None or workload is None:
        return
    if any(op.acting.any_y and op.target != "image" for op in workload.ops):
        return
    known = {*getattr(workload.data, "class_numbers", {}).values()}
    if known - weights.keys() and (lost := [each for each in weights if each not in known]):
        raise ModelError(
            f"`class_weight` must be of the classes {min(known)} to {max(known)}, but has one of {shortened(lost[0])}.",
            hint="Classes are numbered from 0, as in `data.classes`: class_weight=dict(enumerate(weights)).",
        )


def _whole_number(name: str, value: Any, least: int) -> int:
    with contextlib.suppress(TypeError):
        if (number := operator.index(value)) >= least:
            return number
    raise ModelError(f"`{name}` must be a whole number of at least {least}, but got {shortened(value)}.")


def steps_of_a_call(model: keras.Model, wanted: int, callbacks: Iterable[Any]) -> int | None:
    """Return the number of batches that one call trains; None for the number that the model was compiled for. A model
    that was compiled for several keeps its own number, and so does one with a user's callback after each batch. On
    torch Keras trains one batch at a time, and so may a custom training function.
    """
    is_usual = type(model).make_train_function is keras.Model.make_train_function
    fits = model.steps_per_execution == 1 and not model.run_eagerly and keras.backend.backend() != "torch"
    if wanted == 1 or not fits or not is_usual:
        return None
    for callback in callbacks:
        methods = (vars(callback).get(hook) or getattr(type(callback), hook, None) for hook in _HOOKS)
        packages = {(getattr(each, "__module__", None) or "").partition(".")[0] for each in methods}
        if not packages <= _KNOW_BETTER:
            watching = type(callback).__name__
            _log.warning("steps_per_execution=%d is left at 1: `%s` looks at each batch.", wanted, watching)
            return None
    return wanted


# -------------------- trainer


class Trainer:
    """A model and the loader that feeds it.

    Examples:
        ```python
        with ap.make_trainer(workload, config) as trainer:
            history = trainer.fit(epochs=3, callbacks=[keras.callbacks.ModelCheckpoint("best.keras")])
        trainer.model.save("final.keras")
        ```

    Attributes:
        model: the user's own model.
        loader: the model's loader; within `fit` and after it, its state is the trainer's.
        steps: the model's compiled steps; with them a further trainer of the same model compiles nothing again.
        setup: the trainer's settings of the configuration, such as to train several batches by one call of the model's
            function, unless the model was compiled for several or a callback looks at each batch.
        promise: the measured speed of this pipeline, for callbacks that compare; None without a measurement.
        workload: what is trained on, for callbacks that look at its samples; None if it is not known.
        config: how the batches were made at first, for the same; None if it is not known.
        validation: the samples that `fit` validates on if it is given none; None for no validation.
        tune: "live" has each `fit` tune the pipeline while it trains; None leaves it as it is.
        live: returns the loader of a trainer as one that tunes itself; None for a trainer that cannot.
        opened: opens a loader of the trainer's batches by another configuration; None for a trainer that cannot.
        serving: makes loaders for `evaluate` and `predict` where these differ from validation's.
    """

    setup: ModelSetup = ModelSetup()
    promise: Any = None
    workload: Workload | None = None
    config: PipelineConfig | None = None
    validation: Source | None = None
    tune: Literal["live"] | None = None
    live: Callable[[Trainer], Loader] | None = None
    opened: Callable[[PipelineConfig], Loader] | None = None
    serving: Mapping[Mode, Callable[[Source, int], Loader]] = MappingProxyType({})

    def __init__(
        self,
        model: keras.Model,
        loader: Loader,
        *,
        strategy: DeviceStrategy | None = None,
        device_prefetch: int = 0,
        steps: FinishedSteps | None = None,
        evaluation_loader: Callable[[Source, int], Loader] | None = None,
    ) -> None:
        """Take over `loader`, which feeds `model`, compiled and built in the scope of `strategy`: the first device
        unless told.

        `device_prefetch` batches are placed on the device ahead of the one in use; `steps` come from an earlier trainer
        of the same model; `evaluation_loader` makes a loader over samples, in order and without chance, that fits the
        model, and is also told how often they are read.

        Raises:
            ModelError: the model cannot take the loader's batches, or they cannot be shared out between the devices.
        """
        self.model, self.loader = model, loader
        self.steps = steps if steps is not None else FinishedSteps(model)
        self._strategy = strategy or SingleDevice()
        self._placement = Placement(self._strategy, device_prefetch, on_host=getattr(model, "takes_arrays", False))
        self._evaluation_loader = evaluation_loader
        self._first = (0, 0)
        self._session: TrainingCallbacks | None = None
        self._strategy.check_rows(loader.batch_size)
        self._strategy.check_rows(loader.last_batch_samples or loader.batch_size)
        if (devices := self._strategy.devices) > 1 and (reason := self._strategy.unfit(model)) is not None:
            raise ModelError(
                f"`model` cannot be trained on several devices: {reason}, and devices={devices}.",
                hint="Compile it without that, or use devices=1 or the jax backend.",
            )
        with self._strategy.scope():
            models.check(model, loader)

    def fit(
        self,
        *data: Any,
        epochs: int = 1,
        validation: Any = None,
        callbacks: Iterable[Any] | keras.callbacks.Callback | None = None,
        tune: Literal["live"] | None = None,
        **keras_fit_arguments: Any,
    ) -> keras.callbacks.History:
        """Train, and return Keras's history.

        Without `initial_epoch`, a call continues with the data after the last one: two calls of one epoch equal one
        call of two. A checkpoint that `BackupAndRestore` restores, and a state given to `load_state_dict`, are
        continued with the next batch, also within an epoch.

        Args:
            data: none, as the loader has them; a number is `epochs`.
            epochs: as in Keras: the epoch to stop before, counted from `initial_epoch` or 0.
            validation: samples, a loader, or anything that Keras takes as `validation_data`. Samples are taken in order
                and without chance: a random crop is one at the centre, a random flip none. Arrays are cut into batches
                of the workload's size unless `validation_batch_size` is given. None: the workload's own `validation`.
            callbacks: Keras callbacks, or one.
            tune: "live" tries other configurations of the loader while it trains, if the model waits for data, and
                keeps what is faster; batches stay the same. None: as the trainer's `tune` says.
            **keras_fit_arguments: other arguments of Keras's `fit`, except those that the workload fixes.

        Raises:
            ModelError: an argument is fixed by the workload, or a count is no whole number; the model does not fit the
                batches, or the devices cannot share the last batch of `validation`, or its samples have no targets; or
                this trainer cannot tune itself.
            ConfigError: `tune` is neither "live" nor None.
            AutopipeError: an error of the loader, unchanged.
        """
        epochs, arguments = _checked(data, epochs, keras_fit_arguments)
        _check_class_weight(arguments.get("class_weight"), self.workload)
        self._tune_itself(self.tune if tune is None else tune)
        if self._strategy.rank[0] > 0:
            arguments.setdefault("verbose", 0)  # one process tells how it goes
        steps = arguments.pop("steps_per_epoch", None) or len(self.loader)
        placement = dataclasses.replace(self._placement, class_weight=arguments.pop("class_weight", None))
        initial_epoch = arguments.pop("initial_epoch", None)
        fault, own = Fault(), listed(callbacks)
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "loader", self.loader)  # a monitor that saw no end leaves its own there
            if (loaded := self.loader.loaded_state()) is not None:
                self._first, self._session = (loaded.epoch, loaded.batch), None
            stack.enter_context(self.loader.trained(self._stands))
            validation = self.validation if validation is None else validation
            pausing = self._enter_validation(stack, fault, validation, arguments, epochs)
            # Of several processes, Keras shares out one batch at a time.
            wanted = self.setup.steps_per_execution if self._strategy.rank == (0, 1) else 1
            # All samples are an argument of a step that gathers its batch: they cannot be stacked.
            together = 1 if self.loader.on_device else steps_of_a_call(self.model, wanted, own)
            self._enter(stack, fault, self.loader, together, train=self.loader.finish)
            told = [*of_rank(self._strategy.rank, own), *pausing]
            verbose = arguments.get("verbose", "auto")
            session = TrainingCallbacks(told, self, model=self.model, epochs=epochs, steps=steps, verbose=verbose)
            session.begin()
            epoch, done, first = self._start(session, initial_epoch, steps)
            self._first, self._session = first, session
            total = max(0, (epochs - epoch) * steps - done)
            if together is not None:
                placement = placement.for_several(self.loader)
            stream = Stream(self.loader, placement, fault, first=first, steps=total)
            stack.callback(stream.close)
            if done and epoch < epochs:
                session.skipped = done
                feed = stream.data(steps - done, together)
                self.model.fit(feed, initial_epoch=epoch, epochs=epoch + 1, callbacks=session, **arguments)
                epoch += 1
            if not (done and self.model.stop_training):
                feed = stream.data(steps, together)
                self.model.fit(feed, initial_epoch=epoch, epochs=epochs, callbacks=session, **arguments)
            session.end()
        return self.model.history

    def evaluate(self, data: Any, **keras_arguments: Any) -> Any:
        """Return the result of Keras's `evaluate`.

        Args:
            data: samples, taken in order and without chance; a loader; or anything that Keras takes.
            **keras_arguments: arguments of Keras's `evaluate`; `batch_size` is the workload's unless told.

        Raises:
            ModelError: the samples do not fit the model, or lack the targets that it is trained with.
        """
        with self._over(data, keras_arguments, Mode.EVALUATE) as x:
            return self.model.evaluate(x, **keras_arguments)

    def predict(self, data: Any, **keras_arguments: Any) -> Any:
        """Return the result of Keras's `predict`.

        Args:
            data: samples, taken in order and without chance; a loader; or anything that Keras takes.
            **keras_arguments: arguments of Keras's `predict`; `batch_size` is the workload's unless told.
        """
        if (ranks := self._strategy.rank[1]) > 1:  # each would predict a part of the results only
            raise ModelError(
                f"`predict` runs in one process, but this is one of {ranks} that train together.",
                hint="Save the model in process 0, and predict in a process of its own.",
            )
        with self._over(data, keras_arguments, Mode.PREDICT) as x:
            return self.model.predict(x, **keras_arguments)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the training as data: the batch after the last trained one. Callbacks may use it."""
        epoch, batch = self._stands()
        return LoaderState(epoch=epoch, batch=batch, identity=self.loader.identity).model_dump()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `fit` continue at `state`; the state contains no weights.

        Raises:
            ConfigError: the state is malformed, or of another workload or shard.
        """
        self.loader.load_state_dict(state)
        self._first, self._session = (state["epoch"], state["batch"]), None

    def close(self) -> None:
        """Close the loader. May be called more than once."""
        self.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _tune_itself(self, tune: str | None) -> None:
        check_tune(tune, self._strategy.rank)
        if tune is not None and not isinstance(self.loader, SwitchingLoader):
            if self.live is None:
                raise ModelError(
                    "This trainer cannot tune itself, because it was given its loader.",
                    hint="Make it by ap.make_trainer, or by make_trainer() of a tuned pipeline.",
                )
            self.loader = self.live(self)

    def _stands(self) -> tuple[int, int]:
        trained = 0 if self._session is None else self._session.trained
        return divmod(self._first[0] * len(self.loader) + self._first[1] + trained, len(self.loader))

    def _start(
        self, session: TrainingCallbacks, initial_epoch: int | None, steps: int
    ) -> tuple[int, int, tuple[int, int]]:
        """Return the first epoch as Keras counts, its finished batches, and the data's (epoch, batch)."""
        stands = self._stands()
        done = stands[1] if steps == len(self.loader) else 0
        if (saved := restored(session)) is not None:
            epoch, done = saved[0] + saved[1] // steps, saved[1] % steps
        elif initial_epoch is not None:
            epoch, done = initial_epoch, done if stands[0] == initial_epoch else 0
        else:
            return 0, done, stands
        return epoch, done, divmod(epoch * steps + done, len(self.loader))

    def _enter(
        self, stack: contextlib.ExitStack, fault: Fault, loader: Loader, together: int | None = None, **finish: Finish
    ) -> None:
        stack.enter_context(fault.raised_as_itself())
        stack.enter_context(self._strategy.together())
        stack.enter_context(self._strategy.scope())
        stack.enter_context(self.steps.applied(**finish, together=together))
        stack.enter_context(models.built_from(self.model, loader))

    def _enter_validation(
        self, stack: contextlib.ExitStack, fault: Fault, data: Any, arguments: dict[str, Any], epochs: int
    ) -> list[keras.callbacks.Callback]:
        """Put validation's data among Keras's arguments; return callbacks that pause its workers."""
        loader = self._loader_over(stack, data, arguments.get("validation_steps"), epochs)
        models.check_targets(self.model, self.loader, data if loader is None else loader)
        if loader is None:
            if data is not None:
                self._set_batch_size(data, arguments, "validation_batch_size", arguments.get("validation_steps"))
            arguments["validation_data"] = data
            return []
        arguments.pop("validation_batch_size", None)  # the loader has its own
        steps = arguments.pop("validation_steps", None) or len(loader)
        # The epochs of a loader that was made here are equal, so that it may go on from one to the next. A model that
        # trains on the same cores would be slowed down by it, so that it stops there until the next validation: it only
        # fills the pauses at the end of an epoch (benchmarks/RESULTS.md).
        beside = self._strategy.looks_ahead
        reads_on = loader is not data and steps == len(loader) and (beside or loader.stop_ahead() is not None)
        often = arguments.get("validation_freq", 1)
        most = max(1, len(often) if isinstance(often, Sized) else epochs // max(1, int(often)))  # validations
        passes = most if reads_on else 1
        feed = stack.enter_context(replayed(loader, self._placement, fault, steps, passes))
        arguments["validation_data"] = feed
        stack.enter_context(self.steps.validated(feed, loader.finish))
        if beside or not reads_on:
            return []
        return [keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: loader.stop_ahead())]

    @contextlib.contextmanager
    def _over(self, data: Any, arguments: dict[str, Any], mode: Mode) -> Iterator[Any]:
        fault, steps = Fault(), arguments.get("steps")
        with contextlib.ExitStack() as stack:
            loader = self._loader_over(stack, data, steps, 1, mode)
            if loader is None:
                self._set_batch_size(data, arguments, "batch_size", steps)
                yield data
                return
            if mode is Mode.EVALUATE:
                models.check_targets(self.model, self.loader, loader)
            self._enter(stack, fault, loader, test=loader.finish)
            yield stack.enter_context(replayed(loader, self._placement, fault, len(loader)))

    def _loader_over(
        self, stack: contextlib.ExitStack, data: Any, steps: int | None, passes: int, mode: Mode = Mode.TRAIN
    ) -> Loader | None:
        """Return a loader for `data`, closed with `stack` if it was made here; None if Keras takes the data itself."""
        if isinstance(data, Loader):
            self._check_last(data, steps)
            models.check_inputs(self.model, data)
            return data
        if isinstance(data, Workload | str | bytes | os.PathLike | int | float):  # Keras says it after an epoch
            got, hint = shortened(data), 'Pass samples, such as ap.ImageFolder("photos/validation").'
            if isinstance(data, Workload):
                hint = "Pass its samples, `workload.data`: they go through the ops of the trainer's own workload."
                got = "a whole Workload"
            raise ModelError(f"A trainer takes samples, a loader or data that Keras takes, but got {got}.", hint=hint)
        if not isinstance(data, Source):
            return None
        if (make := self.serving.get(mode, self._evaluation_loader)) is None:
            hint = "Pass a loader, or make the trainer by ap.make_trainer."
            raise ModelError("This trainer cannot load samples itself.", hint=hint)
        if self.workload is not None and mode is not Mode.PREDICT:
            require_same_classes(self.workload.data, data)
        loader = stack.enter_context(make(data, passes))
        self._check_last(loader, steps)
        return loader

    def _check_last(self, loader: Loader, steps: int | None) -> None:
        if not steps or steps >= len(loader):  # the last batch is taken
            self._strategy.check_evaluation_rows(loader.last_batch_samples or loader.batch_size)

    def _set_batch_size(self, data: Any, arguments: dict[str, Any], name: str, steps: int | None) -> None:
        size = arguments[name] = arguments.get(name) or self.loader.batch_size
        shape = getattr(data[0] if isinstance(data, tuple) and data else data, "shape", ())
        if shape and (not steps or steps * size > shape[0]):
            self._strategy.check_array_rows(shape[0] % size or size)


# -------------------- finished steps: the cheap last ops of a workload inside the compiled step
# While `applied()` is entered, the model's steps finish the batch first; after it the model is unchanged, so that
# saving, pickling and calling `fit` on other data are unaffected. Within a `fit`, callbacks may evaluate and predict on
# data of their own, so there `validated()` finishes the data that `fit` itself evaluates. Compiled functions are kept
# between calls, so that the next `fit`, or the next trial on the same model, compiles nothing.


KERAS_OPS = ArrayNamespace(
    keras.ops.cast,
    keras.ops.convert_to_tensor,
    lambda ids, classes, dtype: keras.ops.one_hot(ids, classes, dtype=dtype),
    keras.ops.transpose,
)
"""For batchable ops: compiled or eager."""
_KINDS = ("train", "test", "predict")


class FinishedSteps:
    """The steps of one model, with the finish of the batches before them."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        # Of each compiled function its kind, finish and number of steps, and the object of the last `compile()`, of
        # which each call makes another.
        self._compiled: list[tuple[tuple[str, Finish, int], Any, Any]] = []

    @contextlib.contextmanager
    def applied(
        self, *, train: Finish = _NOTHING, test: Finish = _NOTHING, together: int | None = None
    ) -> Iterator[None]:
        """Let the model's steps take compact batches, `test` for evaluation, too; a call trains `together` of them."""
        model = self._model
        owners = model.steps_per_execution
        with contextlib.ExitStack() as stack:
            if together is not None:
                stack.callback(setattr, model, "steps_per_execution", owners)
                model.steps_per_execution = together
            for kind, finish in zip(_KINDS, (train, test, test), strict=True):
                if not finish.is_identity or model.steps_per_execution != owners:
                    stack.enter_context(self._finishing(kind, finish))
            yield

    @contextlib.contextmanager
    def validated(self, feed: Any, finish: Finish) -> Iterator[None]:
        """Let a `fit` finish the batches of `feed`, its validation data, when it evaluates the model on them."""
        evaluate = self._model.evaluate

        @functools.wraps(evaluate)
        def finishing(*arguments: Any, **named: Any) -> Any:
            if named.get("x") is not feed:  # a callback's own
                return evaluate(*arguments, **named)
            with contextlib.nullcontext() if finish.is_identity else self._finishing("test", finish):
                return evaluate(*arguments, **named)

        with standing_in(self._model, "evaluate", finishing):
            yield

    @contextlib.contextmanager
    def _finishing(self, kind: str, finish: Finish) -> Iterator[None]:
        model, step, function = self._model, f"{kind}_step", f"{kind}_function"
        owners_function = getattr(model, function)
        with standing_in(model, step, _finished(getattr(model, step), finish)):
            setattr(model, function, self._find(kind, finish))
            try:
                yield
            finally:
                self._keep(kind, finish, getattr(model, function))
                setattr(model, function, owners_function)

    def _find(self, kind: str, finish: Finish) -> Any:
        made_by = frameworks.compilation(self._model)
        self._compiled = [entry for entry in self._compiled if entry[1] is made_by]
        wanted = kind, finish, self._model.steps_per_execution
        return next((function for key, _, function in self._compiled if key == wanted), None)  # else Keras makes it

    def _keep(self, kind: str, finish: Finish, function: Any) -> None:
        if isinstance(getattr(function, "__self__", None), keras.callbacks.Callback):
            return  # it stands there in the function's place, because an error kept it from being told of the end
        if function is not None and self._find(kind, finish) is None:
            key = kind, finish, self._model.steps_per_execution
            self._compiled.append((key, frameworks.compilation(self._model), function))


def _finished(step: Callable[..., Any], finish: Finish) -> Callable[..., Any]:
    def finished_step(*arguments: Any) -> Any:
        *state, data = arguments  # the batch comes last on every backend; JAX puts the state before it
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        x, y, sample_weight = finish.step_data(x, y, sample_weight, KERAS_OPS)
        return step(*state, keras.utils.pack_x_y_sample_weight(x, y, sample_weight))

    return finished_step
