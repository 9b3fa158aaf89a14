"""`ap.wrap`: tune a tf.data pipeline, a `keras.utils.PyDataset`, or another dataset of batches, as it is.

A wrapped dataset is a workload whose data are its function (`WrappedData`) and whose op list is empty. The function's
parameters, and Keras's own knobs of a `PyDataset`, are the knobs of a loader (`loaders.wrapped`); their values in
`wrap` make the search space (`space.of_wrapped`), in the place of a file. If `dataset[i]` is a batch, workers of ours
make the batches as well. Caches, storages, finish and channels do not apply; `device_prefetch` does. The baseline is
the dataset with its own settings (`as_it_is`). Autopipe cannot share such a dataset out, or make one without an index
repeat its batches or resume exactly in mid-epoch. `batching.datasets` and `batching.indexed` read it.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autopipe import errors
from autopipe.errors import ConfigError, DataWarning, WorkloadError, near, shortened
from autopipe.frameworks import grain
from autopipe.hardware import machine
from autopipe.hardware.machine import size_text
from autopipe.pipeline.batching import datasets, pickling, torch_batches
from autopipe.pipeline.batching.datasets import Feeder
from autopipe.pipeline.batching.indexed import Indexed
from autopipe.pipeline.config import CACHE_SHARE, LOADERS, PipelineConfig, SettingValue
from autopipe.workload.sample import label, leaves, paths_of
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    from autopipe.pipeline.loader import Loader

OF_DATASETS: Final = "wrapped"
"""The name of the space of wrapped datasets, in `LoaderConfig.spaces` of loaders whose workers make `dataset[i]`."""
_COUNT_SECONDS = 20.0
_SILENT_SECONDS = 1.0  # of counting, before the user is told
_LOOK_SECONDS: Final = 10.0  # for two passes over a dataset, to see whether its batches are always the same
_FIRST_BATCHES: Final = 8  # whose time says how long a pass takes
_OTHERS_SHARE: Final = 0.1  # of the processor time of a batch, from which on the threads of libraries matter
_WAITING: Final = 16  # threads for each core, which are tried in case that reads wait
KNOBS: Final = ("workers", "use_multiprocessing", "max_queue_size")
"""The settings of Keras's own reader of a PyDataset."""


def wrap(  # noqa: PLR0913  the entry point
    dataset: Any,
    *,
    model: Callable[[], Any] | Any = None,
    step: Callable[[Any], Any] | None = None,
    parameters: Mapping[str, Sequence[SettingValue]] | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
) -> Workload:
    """Return a workload that trains on a user's own dataset. Without a model or a step, the dataset is read alone.

    Args:
        dataset: a `keras.utils.PyDataset`, or another object of which `dataset[i]` is a batch for each number below
            `len(dataset)`; a `tf.data.Dataset`, a torch `DataLoader`, a Grain dataset, or another object whose batches
            `for` reads again and again. Or a function that returns one, or a generator. Batches are x, (x, y) or
            (x, y, sample_weight); for a model of several inputs or targets, x and y are tuples or dictionaries of
            arrays. The function is called with a value for each of `parameters`; its own defaults are the baseline of
            the tuning. Its batches may depend on them in speed only.
        model: a function without arguments that returns a compiled `keras.Model`, or such a model.
        step: a function of a batch in place of the model, for a loop of one's own; see the example.
        parameters: the values to try for each parameter of the function: numbers, texts or truth values. Without any,
            those of a `PyDataset` are Keras's own: `workers`, `use_multiprocessing` and `max_queue_size`. If
            `dataset[i]` is a batch, or a `DataLoader` has samples with an index, threads and processes of autopipe are
            tried as well. Beside them, what can be set around the dataset is tuned: whether the process keeps freed
            memory, OpenCV's threads, the options of a `tf.data.Dataset`, and batches put on the device ahead;
            `{"tf_threads": [4, 8]}` names such values.
        steps: batches of an epoch, if the dataset has no length, or another one. An epoch then goes on after the one
            before, as in Keras's `fit(dataset, steps_per_epoch=...)`: in a PyDataset without a length by the numbers of
            its batches. If the length is unknown, the batches are counted once if that takes less than 20 s.
        epochs: how many epochs the training will take, if known.
        shuffle: as in Keras's `fit`: whether each epoch has another order of the batches of a `PyDataset`. Other
            datasets have their own order.
        seed: of that order, and of the random numbers that worker processes draw.

    Raises:
        WorkloadError: the function has no such parameter, raises, or returns no dataset of batches; or `step` is no
            function, or given beside `model`.

    Examples:
        ```python
        workload = ap.wrap(Photos("train", workers=8), model=build_model)    # a PyDataset

        def make_dataset(num_parallel_calls=2, prefetch=1):
            dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths))
            return dataset.map(load, num_parallel_calls=num_parallel_calls).batch(32).prefetch(prefetch)

        workload = ap.wrap(
            make_dataset,
            model=build_model,
            parameters={"num_parallel_calls": [1, 2, 4, 8], "prefetch": [1, 2, 8]},
        )
        ap.tune(workload).make_trainer().fit(epochs=3)

        def train_step(batch):                  # of a loop: for batch in dataset: train_step(batch)
            x, y = batch
            ...

        ap.tune(ap.wrap(Photos("train"), step=train_step)).make_loader()
        ```
    """
    if step is not None and (model is not None or not callable(step)):
        beside = f" and model={shortened(model)}" * (model is not None)
        raise WorkloadError(
            f"`step` must be a function of a batch, in place of `model`, but got step={shortened(step)}{beside}.",
            hint="Such as `def train_step(batch): x, y = batch; ...`, and ap.wrap(dataset, step=train_step).",
        )
    is_itself = not callable(dataset) and (datasets.has_batches(dataset) or datasets.is_read_again(dataset))
    if not callable(dataset) and not is_itself:
        hint = "Put what makes the dataset into a function, and pass the function: ap.wrap(make_dataset, ...)."
        raise WorkloadError(
            f"`dataset` must be batches to read again and again, or a function of such, but got {shortened(dataset)}.",
            hint=f"{hint} {_ONE_READER}" if isinstance(dataset, types.GeneratorType) else hint,
        )
    data = WrappedData(Itself(dataset) if is_itself else dataset, parameters or {}, steps, shuffle=shuffle, seed=seed)
    model = model if step is None else OwnStep(step, data.outline)
    return Workload(data=data, ops=(), batch_size=data.batch_size, model=model, seed=seed, shuffle=False, epochs=epochs)


def kinds_of_workers() -> list[str]:
    """Return the kinds of loaders whose workers make `dataset[i]`, the cheapest first."""
    kinds = [kind for kind in LOADERS if OF_DATASETS in LOADERS[kind].spaces]
    return sorted(kinds, key=lambda kind: LOADERS[kind].rank)


def as_it_is(workload: Workload) -> PipelineConfig | None:
    """Return the configuration of a wrapped dataset with its function's defaults; None for any other workload."""
    if not isinstance(workload.data, WrappedData):
        return None
    loader = LOADERS["wrapped"].model_validate(workload.data.defaults)
    return PipelineConfig(loader=loader, finish="host", device_prefetch=0)


@dataclasses.dataclass(frozen=True, slots=True)
class OwnStep:
    """A function of a batch in the model's place. Batches look like those of the dataset: its `outline` says how."""

    function: Callable[[Any], Any]
    outline: Any

    def __repr__(self) -> str:
        return f"Step({_name(self.function)})"

    def shaped(self, batch: Sequence[Any]) -> Any:
        """Return a batch whose x, y and weights are arrays, tuples or dictionaries, as the dataset gives it."""
        parts = (part for slot in batch if slot is not None for part in leaves(slot))
        return datasets.rebuilt(self.outline, parts)


def backend_of(workload: Workload) -> str | None:
    """Return "torch" for a wrapped dataset that no model of Keras reads, if its batches are tensors of torch alone."""
    packages = set[str]()
    if isinstance(workload.data, WrappedData) and isinstance(workload.model, OwnStep | None):
        datasets.in_containers(packages.add, workload.data.outline)
    return "torch" if packages == {"torch"} else None


def for_loop(loader: Loader, workload: Workload) -> Loader:
    """Have a loader give its reader, who has a step of his own, the batches as the wrapped dataset gave them."""
    if isinstance(workload.model, OwnStep):
        loader.shaped = workload.model.shaped
    return loader


# -------------------- data: the function in the place of samples


class Itself:
    """A dataset in the place of a function that makes it, or that makes a copy of it at each call."""

    def __init__(self, dataset: Any, *, copies: bool = False) -> None:
        self.dataset, self._copies = dataset, copies
        self.__name__ = type(dataset).__name__

    def __call__(self) -> Any:
        asked = datasets.has_batches(self.dataset) or torch_batches.is_loader(self.dataset)
        return datasets.copied(self.dataset) if self._copies and asked else self.dataset


_ONE_READER: Final = (
    "A generator has one reader. Workers can make its batches if it becomes a class: "
    "`class Batches(keras.utils.PyDataset)` with `def __len__(self): return STEPS` and "
    "`def __getitem__(self, i): return make_batch(i)`."
)


class WrappedData:
    """The samples of a dataset that a function makes, as far as they are visible from outside."""

    def __init__(
        self,
        function: Callable[..., Any],
        choices: Mapping[str, Sequence[SettingValue]],
        steps: int | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        in_loop: bool = False,
    ) -> None:
        """Make the dataset with the function's defaults, and look at its first batches. `in_loop`: a loop of the user's
        begins and ends its epochs. Without `steps`, an unknown length is counted if that is quick. Raise WorkloadError
        if the function has no such parameters, or does not return a dataset of batches.
        """
        self.function = function  # makes the dataset
        self.shuffle, self.seed = shuffle, seed  # of the order of a PyDataset's batches
        self._in_loop = in_loop
        self.wanted_steps = steps  # batches of an epoch, if given
        if not isinstance(choices, Mapping) or not all(
            isinstance(name, str) and isinstance(values, Iterable) for name, values in choices.items()
        ):
            raise WorkloadError(
                f"`parameters` must name parameters and list the values to try of each, but got {shortened(choices)}.",
                hint='Such as parameters={"num_parallel_calls": [1, 2, 4]}.',
            )
        # The values that each of its parameters may take in a search.
        given = {name: tuple(_plain(value) for value in values) for name, values in choices.items()}
        settings = LOADERS["wrapped"].model_fields.keys() - {"kind"}
        # The same for settings around the dataset, in place of those that a search tries unasked.
        self._around = {name: given.pop(name) for name in settings & given.keys() if not _takes(function, name)}
        for name, values in self._around.items():
            for value in values:
                LOADERS["wrapped"].model_validate({name: value})
        self.choices, self.defaults = given, _defaults(function, given)  # which make the dataset as it is today
        dataset = self.make(self.defaults)
        grain.refuse_in_a_worker(dataset.dataset)
        self.steps = _steps(dataset, steps, self)  # batches of an epoch
        self.is_pass = not dataset.is_endless and steps in (None, dataset.length)  # an epoch is all of the dataset
        self.by_index = dataset.by_index  # whether `dataset[i]` is a batch of an epoch
        self.is_itself = isinstance(function, Itself)  # whether the user gave the dataset, and no function
        is_generator = isinstance(dataset.dataset, types.GeneratorType)
        one_reader = _ONE_READER if is_generator else torch_batches.why_own_workers(dataset.dataset)
        # Whether loaders with workers are tried, or named with the reason against them, which is the other.
        self.with_workers = self.by_index or one_reader is not None
        self.why_one_reader = one_reader or "the dataset has no index: dataset[i] is no batch of it"
        self._batch, self.like, self._last, self.outline = datasets.first_batch(self._aside(dataset))
        self.structure, self.batch_size = self.like.structure, self.like.batch_size
        # Whether its epochs change it, so that one object of it has to make a whole epoch.
        self.has_hooks = self.indexed(dataset.dataset, whole=False).begins_anew
        self._add_knobs(dataset.dataset)
        doubts = [] if in_loop else [datasets.race_of_workers(dataset.dataset), datasets.like_one_image(self._batch)]
        for warning in filter(None, doubts):
            warnings.warn(warning, DataWarning, stacklevel=3)

    @property
    def is_of_pairs(self) -> bool:
        """Whether what follows x has its shape: it may be the other one of a pair, drawn at random, and no y."""
        first = [part for part in self._batch if part is not None]
        return len(first) > 1 and first[0].shape == first[1].shape

    def _add_knobs(self, dataset: Any) -> None:
        """Have Keras's own knobs of a PyDataset tried, those that were named or, if nothing was, all."""
        present: dict[str, Any] = {name: getattr(dataset, name, None) for name in KNOBS}
        if None in present.values() or not self.by_index:
            if named := self._knobs_in(self.choices):
                raise WorkloadError(f"`{_name(self.function)}` has no parameter `{min(named)}`.")
            return
        if not self.choices:
            tried: tuple[set[int], ...] = ({1, machine.usable_cores()}, {False, True}, {10})
            tried_of = zip(KNOBS, tried, strict=True)
            self.choices = {name: tuple(sorted(values | {present[name]})) for name, values in tried_of}
        self.defaults |= {name: present[name] for name in self._knobs_in(self.choices)}

    def _knobs_in(self, parameters: Mapping[str, Any]) -> set[str]:
        return {name for name in parameters if name in KNOBS and not _takes(self.function, name)}

    def make(self, parameters: Mapping[str, SettingValue]) -> Feeder:
        """Make the dataset. Raise WorkloadError if the function raises, or returns no dataset."""
        call = f"{_name(self.function)}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"
        knobs = self._knobs_in(parameters)
        own = {name: value for name, value in parameters.items() if name not in knobs}

        def made() -> Any:
            dataset = self.function(**own)
            for name in knobs:
                setattr(dataset, name, parameters[name])
            return dataset

        try:
            return datasets.feeder(made(), call, self.wanted_steps, made, shuffle=self.shuffle)
        except errors.AutopipeError:
            raise
        except Exception as error:
            hint = errors.hint_of_workers(error)
            raise WorkloadError(f"`{call}` raised {errors.told(error)}", hint=hint) from error

    def untouched(self) -> WrappedData:
        """Return data that look at copies of the user's dataset, if a dataset was given: no look changes it."""
        other = copy.copy(self)
        if isinstance(self.function, Itself):
            other.function = Itself(self.function.dataset, copies=True)
        return other

    def _aside(self, dataset: Feeder) -> Feeder:
        """Return the reader of a copy, if the dataset is an object that asking for a batch may change."""
        made = dataset.dataset
        if datasets.has_batches(made) or torch_batches.is_loader(made):
            try:
                other = datasets.copied(made)
            except WorkloadError:
                if self.is_itself:
                    raise  # else the function makes another one
            else:
                name = _name(self.function)
                return datasets.feeder(other, name, self.wanted_steps, lambda: other, shuffle=self.shuffle)
        return dataset

    def indexed(self, dataset: Any, *, whole: bool, by_keras: bool = False) -> Indexed:
        """Return a made dataset's batches by index, for workers; without a short last one if all must be `whole`."""
        return Indexed(
            torch_batches.of_batches(dataset),
            self.like,
            steps=self.steps - (whole and self._last < self.batch_size),
            seed=self.seed,
            shuffle=self.shuffle and all(hasattr(dataset, name) for name in KNOBS) and not datasets.counts_on(dataset),
            by_keras=by_keras,
            in_loop=self._in_loop,
        )

    def why_unpicklable(self) -> str | None:
        """Return the reason why the dataset cannot be sent to another process, if so."""
        try:
            pickling.apart(torch_batches.of_batches(self.make(self.defaults).dataset))
        except errors.LoaderError as error:
            return error.message
        return None

    def tried(self) -> tuple[dict[str, tuple[SettingValue, ...]], list[tuple[str, str | int, str | None]]]:
        """Return the values that a search tries of each parameter, and of each setting around the dataset; and the
        reason against one: parameter, value, reason. A `tf.data.Dataset` is read twice at once, until its batches
        differ, to see whether they may be kept.
        """
        dataset, cores = self.make(self.defaults), machine.usable_cores()
        found: dict[str, tuple[SettingValue, ...]] = {"freed_memory": ("returned", "kept")}
        against: list[tuple[str, str | int, str | None]] = []
        if cores > 1 and (
            _is_opencv_used() or (self.by_index and _others_work(self._aside(dataset).dataset, self.steps))
        ):
            found["library_threads"] = (0, 1)
        if hasattr(dataset.dataset, "element_spec"):
            found |= {"tf_cache": ("none", "memory"), "tf_threads": (0, cores, _WAITING * cores)}
            found |= {"tf_autotune": (True, False), "tf_prefetch": (0, 4)}
            against.append(("wrapped.tf_cache", "memory", _against_cache(dataset, self)))
        return self.choices | found | self._around, against

    def __len__(self) -> int:
        return (self.steps - 1) * self.batch_size + self._last

    def __repr__(self) -> str:
        return f"WrappedData({_name(self.function)}: {self.steps} batches of {self.batch_size})"

    def read(self, index: int) -> object:
        """Return a sample of the first batch, as an example of all."""
        sample = tuple(None if part is None else part[index % self.batch_size] for part in self._batch)
        slots = sample if self.structure is None else self.structure.packed(sample)
        return slots[0] if all(slot is None for slot in slots[1:]) else slots

    def mean_bytes(self) -> float:
        return float(sum(part.nbytes for part in self._batch if part is not None)) / self.batch_size

    def digest(self) -> str:
        """Describe the dataset by the name of its function and by its first batch's shapes."""
        shapes = ",".join(
            f"{label(path)}:{part.dtype}{list(part.shape[1:])}"
            for path, part in zip(paths_of(self.structure), self._batch, strict=True)
            if part is not None
        )
        order = " shuffled" if self.by_index and self.shuffle else ""
        return f"function={_name(self.function)} samples={len(self)} shapes={shapes.replace(' ', '')}{order}"


def _defaults(function: Callable[..., Any], choices: Mapping[str, Sequence[SettingValue]]) -> dict[str, SettingValue]:
    """Return present values: the function's defaults if they can be written down, or else the first choice."""
    known = inspect.signature(function).parameters
    found: dict[str, SettingValue] = {}
    for name, values in choices.items():
        if name in LOADERS["wrapped"].model_fields:
            raise WorkloadError(f"`{name}` is autopipe's own setting. Give the function's parameter another name.")
        if not (_takes(function, name) or name in KNOBS):
            raise WorkloadError(
                f"`{_name(function)}` has no parameter `{name}`.{near(name, known)}",
                hint=f"Give it one, whose default is what it does today: `def {_name(function)}({name}=1)`, and use it "
                "there. Or leave it out of `parameters`.",
            )
        if not values or not all(isinstance(value, bool | int | float | str) for value in values):
            raise WorkloadError(
                f"`{name}` must have some values to try (numbers, texts, truth values), but got {values!r}."
            )
        if not _takes(function, name):
            continue
        default: Any = _plain(known[name].default) if name in known else inspect.Parameter.empty
        if default is inspect.Parameter.empty:
            found[name] = values[0]
        elif isinstance(default, bool | int | float | str):
            found[name] = default
    return found


def _takes(function: Callable[..., Any], name: str) -> bool:
    known = inspect.signature(function).parameters
    return name in known or any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())


_NONE = "An empty folder or list gives none, nor do fewer samples than a batch has, if only whole batches count."


def _steps(dataset: Feeder, wanted: int | None, data: WrappedData) -> int:
    if wanted is not None and not (isinstance(wanted, int | np.integer) and wanted >= 1):
        raise WorkloadError(
            f"`steps` must be a whole number of 1 or more, but got {wanted!r}.",
            hint="Such as steps=len(files) // batch_size",
        )
    steps = wanted if wanted is not None else dataset.length
    if dataset.length == 0:
        raise WorkloadError(f"The dataset of `{_name(data.function)}` holds no batch: its length is 0.", hint=_NONE)
    if steps is None and not dataset.is_endless:
        steps = _counted(data.make(data.defaults), _name(data.function))
    if steps is None or steps < 1:
        call = "live" if data._in_loop else "wrap"
        why = "goes on without an end" if dataset.is_endless else f"did not end in {_COUNT_SECONDS:.0f} s"
        raise WorkloadError(
            f"The dataset of `{_name(data.function)}` {'holds no batch' if steps == 0 else why}.",
            hint=_NONE if steps == 0 else f"Say how many batches an epoch has: ap.{call}(..., steps=1000)",
        )
    return steps


def _counted(dataset: Feeder, name: str) -> int | None:
    """Return how many batches a dataset has, by reading them; None if that takes too long."""
    began, count, said = time.monotonic(), 0, False
    for count, _ in enumerate(dataset.begin("elements"), start=1):  # noqa: B007
        took = time.monotonic() - began
        if took > _COUNT_SECONDS:
            return None
        if took > _SILENT_SECONDS and not said:
            said = True
            warnings.warn(
                f"The dataset of `{name}` has no length, so its batches are counted, for {_COUNT_SECONDS:.0f} s at "
                "most. `ap.wrap(..., steps=1000)` says how many an epoch has.",
                DataWarning,
                stacklevel=5,
            )
    return count


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


# -------------------- what a search tries around a dataset


def _is_opencv_used() -> bool:
    others = [each for name, each in sys.modules.items() if name.partition(".")[0] not in ("autopipe", "cv2")]
    return any("cv2" in getattr(each, "__dict__", ()) for each in others)


def _others_work(dataset: Any, steps: int) -> bool:
    """Return True if other threads than this one work on a batch: those of BLAS, say."""
    own, all_of_them = time.thread_time(), time.process_time()
    datasets.batch_at(torch_batches.of_batches(dataset), 0, steps)
    own, all_of_them = time.thread_time() - own, time.process_time() - all_of_them
    return all_of_them - own > _OTHERS_SHARE * all_of_them


def _against_cache(dataset: Feeder, data: WrappedData) -> str | None:
    """Return the reason why a dataset's batches cannot be kept in memory, or None."""
    if dataset.is_endless:
        return "the dataset has no end"
    needed, free = data.mean_bytes() * len(data), machine.detect_memory().available_bytes
    if needed > CACHE_SHARE * free:
        return f"needs {size_text(needed)}, {size_text(free)} free"
    began, passes = time.monotonic(), (dataset.begin("arrays"), dataset.begin("arrays"))
    for count, (one, other) in enumerate(itertools.zip_longest(*passes), start=1):
        if one is None or other is None or datasets.bytes_of(one) != datasets.bytes_of(other):
            return "two passes over the dataset differ, because it shuffles or draws random numbers"
        seconds = time.monotonic() - began
        if count >= _FIRST_BATCHES and seconds / count * max(count, data.steps) > _LOOK_SECONDS:
            return f"two passes over the dataset, which would show that it repeats, take over {_LOOK_SECONDS:.0f} s"
    return None


def require_feedable(workload: Workload, config: PipelineConfig, rank: tuple[int, int]) -> None:
    """Raise ConfigError if a configuration cannot feed a workload, or this process, `(i, n)` of n, its part of it."""
    if isinstance(workload.data, WrappedData) and config.loader.kind != "wrapped":
        if OF_DATASETS not in config.loader.spaces or not workload.data.by_index:
            raise ConfigError(
                f"A wrapped dataset makes its own batches: `{config.loader.kind}` cannot feed it.",
                hint="Use the `wrapped` loader with the parameters of its function.",
            )
        if config.keep != "none" or config.loader.reads_ahead():
            raise ConfigError(
                "The samples of a wrapped dataset cannot be kept, or read ahead: only its whole batches are known.",
                hint='Use keep="none" and read_ahead=0.',
            )
    if config.arguments and (config.loader.kind == "wrapped" or not isinstance(workload.data, WrappedData)):
        raise ConfigError(
            f"`arguments` are for workers that make the batches of a wrapped dataset, but got {config.arguments}.",
            hint="Give those of the `wrapped` loader to it: Wrapped(NAME=VALUE).",
        )
    if isinstance(workload.data, WrappedData) and rank != (0, 1):
        raise ConfigError(
            f"A wrapped dataset makes its own batches: {rank[1]} processes cannot share them.",
            hint="Make a workload of the files, with ap.ImageFolder say.",
        )
    mixing = next((type(op).__name__ for op in workload.ops if op.mixes), None)
    if rank[1] > 1 and mixing is not None:
        raise ConfigError(
            f"`{mixing}` mixes the samples of a whole batch, but each of {rank[1]} processes makes only a part of it.",
            hint="Leave it out, or mix inside the model.",
        )
