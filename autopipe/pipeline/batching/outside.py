"""What can be set around a dataset of the user's, without a change to the function that makes it.

These settings are knobs of the loader that feeds such a dataset, beside the parameters of its function. None of them
changes a sample, and only `tf_interleave` their order. Nothing here knows the function.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np
import pydantic

from autopipe.errors import ConfigError, shortened
from autopipe.hardware import machine, processes
from autopipe.hardware.machine import size_text
from autopipe.pipeline.batching.datasets import Feeder, batch_at, parts_of
from autopipe.pipeline.config import CACHE_SHARE, LoaderConfig, Value
from autopipe.workload.sample import leaves

if TYPE_CHECKING:
    from autopipe.pipeline.wrap import WrappedData

_LOOK_SECONDS: Final = 10.0  # for two passes over a dataset, to see whether its batches are always the same
_FIRST_BATCHES: Final = 8  # whose time says how long a pass takes
_OTHERS_SHARE: Final = 0.1  # of the processor time of a batch, from which on the threads of libraries matter
_WAITING: Final = 16  # threads for each core, which are tried in case that reads wait
_PARTS: Final = 8  # of the files, read at once
_BEHIND_CACHE: Final = 2  # batches ahead, so that the end is reached, and the cache complete, with the last batch taken


class Around(LoaderConfig):
    """The settings around a dataset.

    Attributes:
        freed_memory: "kept" by the C library for the next arrays, here and in processes that start from then on.
        library_threads: threads of OpenCV's and BLAS's own pools; 0 leaves their number as it is.
        tf_cache: "memory" keeps the batches of the first epoch for all others.
        tf_threads: threads of a `tf.data.Dataset` of its own; 0: it shares those of the model's ops.
        tf_autotune: whether tf.data may change numbers of threads and buffers while it runs.
        tf_ram_budget: bytes that it may plan with for buffers; 0: its own choice.
        tf_slack: whether the last prefetch waits a little, and leaves the cores to the start of a step.
        tf_prefetch: batches made ahead, behind all that the function does.
        tf_interleave: datasets, each of a part of the files, that are read at once; 0: one of all files.
    """

    takes_any: ClassVar[bool] = True

    freed_memory: Literal["returned", "kept"] = "returned"
    library_threads: int = pydantic.Field(default=0, ge=0, le=1024)
    tf_cache: Literal["none", "memory"] = "none"
    tf_threads: int = pydantic.Field(default=0, ge=0, le=1024)
    tf_autotune: bool = True
    tf_ram_budget: int = pydantic.Field(default=0, ge=0)
    tf_slack: bool = False
    tf_prefetch: int = pydantic.Field(default=0, ge=0, le=1024)
    tf_interleave: int = pydantic.Field(default=0, ge=0, le=1024)

    @property
    def keeps_freed_memory(self) -> bool:
        return self.freed_memory == "kept"

    @property
    def fills_cache(self) -> bool:
        return self.tf_cache == "memory"

    def around(self) -> dict[str, Value]:
        """Return those settings that are not as usual."""
        fields = {name: field.default for name, field in Around.model_fields.items() if name != "kind"}
        return {name: getattr(self, name) for name, usual in fields.items() if getattr(self, name) != usual}


def begin(around: Around, dataset: Feeder) -> None:
    """Set what is set around a dataset that was made and not begun. Raise ConfigError if a setting is for another kind
    of dataset.
    """
    if around.keeps_freed_memory:
        os.environ.update(processes.KEEPING)  # for worker processes of the dataset that are not forked
    if changed := [f"{name}={value!r}" for name, value in around.around().items() if name.startswith("tf_")]:
        if not hasattr(made := dataset.dataset, "element_spec"):
            raise ConfigError(f"{', '.join(changed)} needs a tf.data.Dataset, but it is {shortened(made)}.")
        if around.fills_cache and dataset.is_endless:
            raise ConfigError('A dataset without an end cannot be kept in memory, but got tf_cache="memory".')
        dataset.dataset = _with_options(around, made)
    processes.reset_library_threads()  # which another loader may have set
    if around.library_threads:
        processes.set_library_threads(around.library_threads)


def interleaved(parts: Sequence[Any], batch_size: int) -> Any:
    """Return one dataset of these, which begin together and take turns. Its batches have `batch_size` samples again.

    Raise ConfigError if that cannot be.
    """
    import tensorflow as tf

    if reason := _against_interleave(parts[0]):
        raise ConfigError(f"Its files cannot be read in parts: {reason}. Use tf_interleave=0.")
    spec = parts[0].element_spec
    # The function was called with names and not with tensors, which Python could not read.
    variants = tf.stack([tf.data.experimental.to_variant(part) for part in parts])
    dataset = tf.data.Dataset.from_tensor_slices(variants).interleave(
        lambda variant: tf.data.experimental.from_variant(variant, spec),
        cycle_length=len(parts),
        num_parallel_calls=len(parts),
    )
    return dataset.rebatch(batch_size).prefetch(tf.data.AUTOTUNE).with_options(parts[0].options())


def _against_interleave(dataset: Any) -> str | None:
    """Return the reason why datasets like this one, of a part of the files each, cannot take turns, or None."""
    if not hasattr(dataset, "element_spec"):
        return "the dataset is no tf.data.Dataset"
    import tensorflow as tf

    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        return "the dataset has no end"
    shapes = [tf.TensorShape(part.shape) for part in tf.nest.flatten(dataset.element_spec)]
    if any(shape.rank is None or None in shape[1:] for shape in shapes):
        return "its batches differ in another axis than that of the samples"
    if any(shape[0] is not None for shape in shapes):
        return "the function leaves a short last batch out (drop_remainder=True), and would do so in each part"
    return None


def against_parts(function: Callable[..., Any], files: Sequence[Any], arguments: Mapping[str, Value]) -> str | None:
    """Return the reason why parts of the files would not hold the samples of all of them, or None.

    A function that gives a batch of a file that does not exist reads others: each part would have all samples.
    """
    if not isinstance(files[0], str | Path):
        return None
    first = Path(files[0])
    missing = f"{str(files[0]).removesuffix(first.name)}{first.stem}-which-is-not-there{first.suffix}"
    try:
        next(iter(function([type(files[0])(missing)], **arguments)))
    except Exception:  # noqa: BLE001  # whatever the user's code raises
        return None
    return f"the function gives a batch of {missing!r}, too, so it reads other files than those that it is given"


def _with_options(around: Around, dataset: Any) -> Any:
    import tensorflow as tf

    options = tf.data.Options()  # what is not set here stays as the function set it
    if around.tf_threads:
        options.threading.private_threadpool_size = around.tf_threads
    if not around.tf_autotune:
        options.autotune.enabled = False
    if around.tf_ram_budget:
        options.autotune.ram_budget = around.tf_ram_budget
    if around.tf_slack:
        options.experimental_slack = True
    if around.fills_cache:
        dataset = dataset.cache()
    if ahead := max(around.tf_prefetch, _BEHIND_CACHE if around.fills_cache else 0):
        dataset = dataset.prefetch(ahead)
    return dataset.with_options(options)


# -------------------- what a search tries


def offered(data: WrappedData) -> tuple[dict[str, tuple[Value, ...]], list[tuple[str, str | int, str | None]]]:
    """Return the values of each setting that a search tries, and the reason against one: parameter, value, reason.

    A `tf.data.Dataset` is read twice at once, until its batches differ, to see whether they may be kept.
    """
    dataset, cores = data.make(data.defaults), machine.usable_cores()
    found: dict[str, tuple[Value, ...]] = {"freed_memory": ("returned", "kept")}
    if cores > 1 and (_is_opencv_used() or (data.by_index and _others_work(dataset.dataset, data.steps))):
        found["library_threads"] = (0, 1)
    if not hasattr(dataset.dataset, "element_spec"):
        return found, []
    found |= {"tf_cache": ("none", "memory"), "tf_threads": (0, cores, _WAITING * cores), "tf_prefetch": (0, 4)}
    against: list[tuple[str, str | int, str | None]] = [("wrapped.tf_cache", "memory", _against_cache(dataset, data))]
    if (parts := min(_PARTS, len(data.listed))) > 1:
        found["tf_interleave"] = (0, parts)
        reason = _against_interleave(dataset.dataset) or against_parts(data.function, data.listed, data.defaults)
        against.append(("wrapped.tf_interleave", parts, reason))
    return found, against


def _is_opencv_used() -> bool:
    """Return True if a module that is not autopipe's has imported OpenCV by its name."""
    others = [each for name, each in sys.modules.items() if name.partition(".")[0] not in ("autopipe", "cv2")]
    return any("cv2" in getattr(each, "__dict__", ()) for each in others)


def _others_work(dataset: Any, steps: int) -> bool:
    """Return True if other threads than this one work on a batch: those of BLAS, say."""
    own, all_of_them = time.thread_time(), time.process_time()
    batch_at(dataset, 0, steps)
    own, all_of_them = time.thread_time() - own, time.process_time() - all_of_them
    return all_of_them - own > _OTHERS_SHARE * all_of_them


def _against_cache(dataset: Feeder, data: WrappedData) -> str | None:
    """Return the reason why a dataset's batches cannot be kept in memory, or None."""
    if dataset.is_endless:
        return "the dataset has no end"
    needed, free = data.mean_bytes() * len(data), machine.detect_memory().available_bytes
    if needed > CACHE_SHARE * free:
        return f"needs {size_text(needed)}, {size_text(free)} free"
    began = time.monotonic()
    passes = (dataset.begin("arrays"), dataset.begin("arrays"))
    for count, (one, other) in enumerate(itertools.zip_longest(*passes), start=1):
        if one is None or other is None or _bytes(one) != _bytes(other):
            return "two passes over the dataset differ, because it shuffles or draws random numbers"
        seconds = time.monotonic() - began
        if count >= _FIRST_BATCHES and seconds / count * max(count, data.steps) > _LOOK_SECONDS:
            return f"two passes over the dataset, which would show that it repeats, take over {_LOOK_SECONDS:.0f} s"
    return None


def _bytes(batch: Any) -> list[bytes]:
    arrays = (np.asarray(part) for slot in parts_of(batch) if slot is not None for part in leaves(slot))
    return [array.tobytes() for array in arrays]
