"""Foreign code as the feed of a trial: the output of `autopipe eject` for the workload, or a function of the user's.

It is trained on unchanged, by Keras's own `fit`, in a process of its own without autopipe's settings (allocator,
OpenCV's threads).
"""

from __future__ import annotations

import functools
import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import keras

from autopipe.errors import DataError, WorkloadError, shortened, told
from autopipe.hardware import machine
from autopipe.measure.bench import ENDLESS, Bench, EpochWatch, Probe
from autopipe.measure.meter import AUTOTUNE_SECONDS
from autopipe.pipeline import assembly
from autopipe.pipeline.eject import module
from autopipe.workload.mode import Mode
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import looked_at, make_plan
from autopipe.workload.sample import SLOTS, Field, Source, leaves, mapped
from autopipe.workload.workload import Workload

_FILL_SECONDS: Final = 2.0  # about, of a cache of tf.data
_RETURNS: Final = (
    "It must return a tf.data.Dataset, a keras.utils.PyDataset, or a pair of arrays (x, y), perhaps with weights third."
)


class ForeignCode:
    """One piece of foreign code: plain code by the name of its form, or the user's function."""

    def __init__(
        self, workload: Workload, plan: Plan, code: str | Callable[[], Any], name: str, mode: Mode = Mode.TRAIN
    ) -> None:
        """Get the data, and look at the first batch of a user's function called `name`."""
        self.workload, self._plan, self._mode = workload, plan, mode
        self.settle_seconds, self.workers = 0.0, 1  # for its own tuning before it is timed; that make whole batches
        self._form = code if isinstance(code, str) else None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._compiled: set[int] = set()  # benches, by their identity: a session keeps them
        if isinstance(code, str):
            self._arguments = self._fed(self._plain(code))
        else:
            try:
                made = code()
            except Exception as error:
                said = f"The baseline `{name}()` raised {told(error)}"
                raise WorkloadError(said, hint=f"It is called without arguments. {_RETURNS}") from error
            self._require_alike(made, name)
            self._arguments = self._fed(_without_last(made))

    def _fed(self, made: Any) -> dict[str, Any]:
        """Return the arguments of `fit`."""
        size, endless = self.workload.batch_size, {"steps_per_epoch": ENDLESS, "epochs": 1}
        if isinstance(made, keras.utils.PyDataset):
            self.workers = max(1, made.workers)
            return {"x": made, **(endless if made.num_batches is None else {})}
        if _is_dataset(made):
            self.settle_seconds = AUTOTUNE_SECONDS
            return {"x": made, "shuffle": False, **(endless if int(made.cardinality()) == -1 else {})}
        rows = len(_arrays(made)[0]) // size * size
        arrays = {key: mapped(lambda part: part[:rows], slot) for key, slot in zip(SLOTS, made, strict=False)}
        return {**arrays, "batch_size": size, "shuffle": self.workload.shuffle}

    def compile(self, bench: Bench) -> None:
        """Train one step unless done already, so that compilation is not timed."""
        if id(bench) not in self._compiled:
            with bench.strategy.scope():
                if self._mode is Mode.TRAIN:
                    bench.model.fit(**{**self._arguments, "epochs": 1, "steps_per_epoch": 1}, verbose=0)
                else:
                    self._serve(bench, {"steps": 1})(verbose=0)
            self._compiled.add(id(bench))

    def _serve(self, bench: Bench, more: Mapping[str, Any]) -> Callable[..., object]:
        """Return Keras's `evaluate` or `predict` of the data."""
        arguments = {**self._arguments, **more}
        left_out = {"epochs", "steps_per_epoch", "shuffle", *(SLOTS[1:] if self._mode is Mode.PREDICT else ())}
        if "steps_per_epoch" in arguments:  # the data do not end
            arguments.setdefault("steps", len(self.workload.data) // self.workload.batch_size)
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
        over = assembly.for_evaluation(self.workload, validation)
        filled = cut and self._form == module.CACHED  # a part of it would be decoded anew in each epoch
        data = self._filled(over, make_plan(over)) if filled else self._made(self._form, over)
        arguments = {**self._arguments, "epochs": ENDLESS, "validation_data": data}
        if cut or "steps_per_epoch" in arguments:
            arguments |= {"steps_per_epoch": steps[0], "validation_steps": steps[1]}
            if _is_dataset(arguments["x"]):
                arguments["x"] = arguments["x"].repeat()  # an epoch goes on where the one before ended
        with bench.strategy.scope():
            bench.model.fit(**arguments, callbacks=[watch], verbose=0)

    def train(self, bench: Bench, probe: Probe, epochs: int) -> None:
        """Train until the probe has seen enough, for at most so many epochs; in another mode, evaluate or predict."""
        with bench.strategy.scope():
            if self._mode is Mode.TRAIN:
                bench.model.fit(**{"epochs": epochs, **self._arguments}, callbacks=[probe], verbose=0)
            else:
                probe.passes(self._serve(bench, {}), epochs)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _plain(self, form: str) -> Any:
        """Write and import the code of `eject`, and call it for the data that it gives to `fit`."""
        if form == module.CACHED:
            return self._filled(self.workload, self._plan)
        data = self._made(form, self.workload)
        return _without_last(data) if form == module.DIRECTORY else data

    def _filled(self, workload: Workload, plan: Plan) -> Any:
        """Return the dataset of the form that has a cache, after the first epoch, in which that fills."""
        numbers, began, count = looked_at(len(workload.data)), time.perf_counter(), len(workload.data)
        module.cached_bytes(workload, plan)  # decodes them
        seconds = (time.perf_counter() - began) * count / len(numbers) / machine.usable_cores()
        every = max(1, min(math.ceil(seconds / _FILL_SECONDS), count // (8 * workload.batch_size)))  # of eight batches
        data = self._made(module.CACHED, workload, every)
        for _ in data:
            pass
        return data.repeat() if every > 1 else data  # the epochs of a part are shorter than those of all

    def _made(self, form: str, workload: Workload, every: int = 1) -> Any:
        """Return the dataset that plain code makes, of each `every`-th sample: as many as a trial can wait for."""
        plan = self._plan if workload is self.workload else None
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
        batch, spec = _first_batch(made, self.workload.batch_size, name), self._plan.finished
        if spec.structure is not None:
            try:
                batch = spec.structure.flat(batch)
            except DataError as error:
                raise WorkloadError(f"The baseline `{name}` gives other batches: {error.message}") from None
        for part, array, field in zip(spec.labels, batch, spec.columns, strict=True):
            wanted = None if field is None else (self.workload.batch_size, *(field.shape or ()))
            got = getattr(array, "shape", None)
            if array is not None and (got is None or wanted != tuple(got)):
                raise WorkloadError(
                    f"The baseline `{name}` must train on what the workload trains on: batches whose {part} is "
                    f"{_shown(wanted, field)}, but it gives {shortened(array) if got is None else tuple(got)}.",
                    hint=f"Give it the workload's batch size, {self.workload.batch_size}, and its ops.",
                )
            if array is None and wanted is not None:
                raise WorkloadError(
                    f"The baseline `{name}` must train on what the workload trains on, but its batches have no {part}.",
                    hint="Return batches (x, y).",
                )


def _shown(wanted: tuple[int, ...] | None, field: Field | None) -> str:
    return "nothing" if wanted is None or field is None else f"{wanted} {field.dtype}"


def _arrays(made: tuple[Any, ...]) -> list[Any]:
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
