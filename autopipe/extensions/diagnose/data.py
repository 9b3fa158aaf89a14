"""What the data of a training tell beside the clock: what begins anew in each epoch, what tf.data has chosen, and the
image files that they name. Nothing of it needs a step of the training.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import itertools
import math
import multiprocessing
import os
import re
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from autopipe.errors import AutopipeError, is_users
from autopipe.extensions.diagnose import fit_call
from autopipe.extensions.diagnose import steps as timing
from autopipe.extensions.diagnose.steps import Epochs
from autopipe.frameworks import grain, tfdata
from autopipe.hardware import machine
from autopipe.measure import epochs, randomness
from autopipe.pipeline.batching import pickling, stream, torch_batches
from autopipe.pipeline.batching.datasets import forks
from autopipe.reports import wording
from autopipe.values import capital
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import SUFFIXES, read_file, spread
from autopipe.workload.ops.headers import Progressive, image_size
from autopipe.workload.sample import Source


def of_loader(data: Any, name: str, usual: Any = None) -> Any:
    """Return an attribute of a torch DataLoader. Its iterator has the same, with an underscore."""
    return getattr(data, name, getattr(data, f"_{name}", usual))


def shared(data: Any) -> Iterator[str]:
    """Say that workers share files, draw the same random numbers, keep results each, or copy many objects, if so."""
    source = torch_batches.whole(of_loader(data, "dataset", data))
    name, used = type(source).__name__, pickling.used(source)
    if not (by_keras := forks(data)) and not stream.forks_workers(data):
        for path in pickling.moved_by_threads(data) if getattr(data, "workers", 0) > 1 else []:
            yield (
                f"`{name}.{path}`: workers={data.workers} are threads, which share this open file, and move the "
                "position in it while others read. Open it in `__getitem__`, once for each thread (threading.local()), "
                "or let one read at a time (threading.Lock())."
            )
        return
    if (said := epochs.shared_files(source)) is not None:
        yield f"{said}."
    names = used or {"transform"}  # a library's own dataset, such as ImageFolder, calls that
    drawn = [f"`{name}.{path}`" for path in pickling.generators(source) if path.partition(".")[0] in names]
    by_numpy = [f"`{name}.random`" for name, each in used.items() if each is np and f"{name}.random" in used]
    drawn += by_numpy * (by_keras and _SEEDED.isdisjoint(used))  # torch seeds it in each worker
    if drawn and of_loader(data, "worker_init_fn") is None:
        seed_it = (
            " Or seed it in a `worker_init_fn` of the DataLoader by `torch.initial_seed()`; albumentations has "
            "`set_random_seed` for that."
        )
        yield (
            f"{', '.join(drawn)}: worker processes that are forked copy it as it is, so that all draw the same random "
            "numbers, and those that begin anew draw them again. `np.random.default_rng()`, made in `__getitem__` for "
            f"each sample, does not.{'' if by_keras else seed_it}"
        )
    anew = by_keras or not of_loader(data, "persistent_workers", True)
    kept = [f"what `{each}` returns (lru_cache)" for each in pickling.remembering(source)]
    if kept := [*kept, *(f"what goes into `{name}.{each}`" for each in pickling.filled(source))]:
        instead = "Threads (use_multiprocessing=False) share one" if by_keras else "persistent_workers=True keeps it"
        lost = f", and loses it as the epoch ends. {instead}" if anew else ""
        yield f"Each worker process keeps {', '.join(kept)} on its own{lost}."
    workers = data.workers if by_keras else of_loader(data, "num_workers", 0)
    for path, value in getattr(source, "__dict__", {}).items():
        size = _objects_bytes(value) if isinstance(value, list | tuple | dict) and path in used else 0
        if size * workers >= _COPIED_SHARE * machine.detect_memory().usable_bytes:
            yield (
                f"`{name}.{path}` holds {len(value):,} objects of Python, {machine.size_text(size)} in all. Forked "
                "workers share them only until they read them, as that writes to each object's counter of references: "
                f"{workers} workers come to copy {machine.size_text(size * workers)}, which looks like a leak. "
                "`np.array` of texts or numbers is one object; `datasets.Dataset.from_list(...)` holds dictionaries so."
            )


def _objects_bytes(held: Any, most: int = 256) -> int:
    """Return the bytes of a container with the objects in it, by `most` of these; arrays count as their headers."""
    if not (most and isinstance(held, list | tuple | dict)):
        return _HEADER if hasattr(held, "dtype") else sys.getsizeof(held)
    items = held.values() if isinstance(held, dict) else held  # keys are often the same objects
    some = [_objects_bytes(each, most // 8) for each in itertools.islice(items, 0, None, 1 + len(held) // most)]
    return sys.getsizeof(held) + sum(some) * len(held) // max(1, len(some))


_SEEDED = {"seed", "default_rng", "RandomState", "Generator"}
_COPIED_SHARE, _HEADER = 0.03, 128  # of memory; bytes of an array without its values

# -------------------- what is held ahead, and columns of lists

_MUCH_MEMORY = 0.1  # of all, in batches that wait to be trained on


def ahead_of(data: Any) -> tuple[str, int]:
    """Return the setting for how many batches may wait in a queue, and its value."""
    if hasattr(data, "element_spec"):
        return "prefetch", tfdata.batches_ahead(data)
    if workers := of_loader(data, "num_workers"):
        return "num_workers * prefetch_factor", workers * (of_loader(data, "prefetch_factor") or 0)
    has_queue = forks(data) or getattr(data, "workers", 0) > 1
    return "max_queue_size", getattr(data, "max_queue_size", 0) if has_queue else 0


def held_ahead(ahead: tuple[str, int], batch: Any) -> Iterator[str]:
    """Say that so many batches, by `ahead_of`, are much of the machine's memory, if so."""
    arrays = [(tuple(each.shape), each) for each in randomness.leaves(batch) if hasattr(each, "shape")]
    size = sum(math.prod(side or 1 for side in shape) * _width(each) for shape, each in arrays)  # None: ragged
    name, count = ahead
    if count and size * count >= _MUCH_MEMORY * (usable := machine.detect_memory().usable_bytes):
        yield (
            f"{name} = {count} lets {machine.size_text(size * count)} of batches wait, of "
            f"{machine.size_text(usable)} of memory. More than some 10 make no step faster."
        )


def shuffled_ahead(data: Any) -> Iterator[str]:
    """Say that the shuffle buffer of a `tf.data.Dataset` takes much of the machine's memory, if so."""
    count, size = tfdata.shuffle_buffer(data, shared=False) or (0, None)
    if size is not None and size >= _MUCH_MEMORY * (usable := machine.detect_memory().usable_bytes):
        yield (
            f"`shuffle` holds {count:,} elements, {machine.size_text(size)} of {machine.size_text(usable)} of memory, "
            "and the first step waits until they are made. Shuffle paths or numbers, before `map` reads and decodes."
        )


def _width(array: Any) -> int:
    kind = str(getattr(array.dtype, "name", array.dtype)).rpartition(".")[2]  # of TensorFlow, NumPy, JAX; of torch
    return {"bool": 1, "bfloat16": 2}.get(kind) or (np.dtype(kind).itemsize if hasattr(np, kind) else 1)


def listed(data: Any) -> Iterator[str]:
    """Name the columns of a Hugging Face dataset that hold arrays as lists of lists."""
    for each in _held(data):
        features = getattr(each, "features", None)
        for name, feature in features.items() if isinstance(features, dict) else ():
            depth = 0
            while type(feature).__name__ in ("List", "LargeList", "Sequence"):
                depth, feature = depth + 1, feature.feature
            if depth > 1:
                transformed = (
                    " A transform (`set_transform`) gets lists all the same, and `with_format` takes its place: change "
                    "the arrays in `collate_fn`, or in a Dataset of your own."
                )
                yield (
                    f'The column "{name}" holds lists of lists, which are put together value by value. `.cast_column('
                    f'"{name}", datasets.Array{depth}D(shape=(...), dtype="{getattr(feature, "dtype", "uint8")}"))'
                    '.with_format("numpy")` gives arrays as they lie in memory; datasets.Image() keeps files, and '
                    "decodes them."
                ) + transformed * (getattr(each, "format", {}).get("type") == "custom")


# -------------------- what of the data begins anew in each epoch

_HOOK_SHARE = 0.5  # of the longer pause of an epoch, that is the hook's
_ONE_ITERATOR = "`.repeat()` at the end of the dataset and steps_per_epoch= in fit keep one iterator for all epochs"


def begins_anew(
    data: Any, seen: Epochs | None = None, once: str = _ONE_ITERATOR, *, hooks: Sequence[float] = ()
) -> str | None:
    """Say what of a training's data begins anew in each epoch, and what would not; None if that is not known. `once`
    says how an iterator of tf.data is made once for all; `hooks`: seconds that calls of `on_epoch_end` took.
    """
    name = epochs.hook(data)  # of a library's own dataset, such as Keras's, it orders indices only
    pause = max(seen.between_seconds, seen.first_batch_seconds) / seen.count if seen is not None else math.inf
    if hooks and sum(hooks) / len(hooks) >= _HOOK_SHARE * pause:
        code = getattr(inspect.unwrap(type(data).on_epoch_end), "__code__", None)
        if code is not None and is_users(code.co_filename):
            return f"`{name}` runs while nothing trains. Let it order indices or paths, and read in `__getitem__`"
    if forks(data):
        return (
            "Keras's worker processes begin anew in each epoch. Threads (use_multiprocessing=False), or fewer, longer "
            "epochs, are the next step"
        )
    if of_loader(data, "num_workers") and not of_loader(data, "persistent_workers", True):
        return "the DataLoader's workers begin anew in each epoch, which persistent_workers=True ends"
    if grain.is_grain(data):
        return grain.workers_begin_anew()
    goes_on = once == _ONE_ITERATOR and fit_call.batches(data) == math.inf
    if goes_on or not hasattr(data, "element_spec"):
        return None
    if (buffer := tfdata.shuffle_buffer(data)) is None:
        return f"a new iterator is begun. {once}"
    count, size = buffer
    held = "" if size is None else f", {machine.size_text(size)},"
    orders = (each for each, _ in tfdata.dataset_ops(data) if type(each).__name__ == "_ShuffleDataset")
    earlier = "; a shuffle before the images are read holds only their paths" * any(map(tfdata.functions, orders))
    return f"a new iterator fills its shuffle buffer of {count:,} elements{held} first. {once}{earlier}"


def time_hook(data: Any) -> tuple[list[float], Callable[[], None]]:
    """Return a list that gets the seconds of each call of a dataset's own `on_epoch_end`, and what ends this."""
    if not epochs.hook(data):
        return [], lambda: None
    kind: Any = type(data)
    hook = kind.on_epoch_end
    return fit_call.timed(kind, "on_epoch_end"), functools.partial(setattr, kind, "on_epoch_end", hook)


def autotuned(iterator: Any) -> str | None:
    """Say what AUTOTUNE has chosen so far for an iterator of tf.data; None if it chooses nothing."""
    nodes = tfdata.nodes_of(iterator).values()
    words = {"parallelism": "at once", "buffer_size": "ahead"}
    chosen = [
        f"{tfdata.plain_name(node)} {int(parameter.value)} {words[parameter.name]}"
        for node in nodes
        for parameter in node.parameters
        if parameter.tunable and parameter.name in words
    ]
    held = sum(node.buffered_bytes for node in nodes)
    return ", ".join(reversed(chosen)) + f"; buffers hold {machine.size_text(held)}" * (held > 0) if chosen else None


_BEGAN = time.time()


def misordered(data: Any) -> Iterator[str]:
    """Say which steps of a `tf.data.Dataset` stand in the wrong order, and which lists of files do not match, if so."""
    if tfdata.splits_anew(data):
        yield (
            "The training's data are a part (`take`, `skip`, `shard`) of what a `shuffle` orders anew in each epoch. A "
            "validation that was split off alike is trained on, too: shuffle(..., reshuffle_each_iteration=False) "
            "before the split."
        )
    if tfdata.zips_apart(data):
        yield (
            "`zip` puts parts together that are each shuffled on their own, as `list_files` does unless shuffle=False: "
            "if they are x and y, they do not belong together. Zip first, then shuffle."
        )
    yield from [f"{epochs.SHUFFLED_BATCHES}."] * tfdata.shuffles_batches(data)
    yield from [f"{epochs.LOST_CACHE}."] * tfdata.loses_cache(data)
    yield from [f"{epochs.MIXED_EPOCHS}."] * tfdata.mixes_epochs(data)
    yield from cached_before(data)
    yield from [f"{capital(epochs.CACHED[kind])}." for kind in dict.fromkeys(tfdata.cached(data))]
    yield from mispaired(data)


def cached_before(data: Any) -> Iterator[str]:
    """Say that a `cache` of tf.data reads a file that was written before this process had looked at any data, if so."""
    for each, _ in tfdata.dataset_ops(data):
        file: Any = getattr(each, "_filename", None)
        name = os.fsdecode(file.numpy()) if hasattr(file, "numpy") else ""
        with contextlib.suppress(OSError):
            written = os.stat(f"{name}.index").st_mtime  # noqa: PTH116
            if written < _BEGAN:
                when = time.strftime("%Y-%m-%d %H:%M", time.localtime(written))
                yield (
                    f'`cache("{name}")` reads what was written on {when}. All that stands before it is not run, so '
                    f"that a change of it has no effect: delete {name}.* after each."
                )


_PIPED_SHARE, _PIPED_TIMES = 0.25, 3  # of a step, and how often one is sent


def piped(data: Any, batch: Any, step_seconds: float) -> Iterator[str]:
    """Say that a batch is too large for the pipe by which Keras's worker processes send it; one is sent here."""
    keras = sys.modules["keras"]
    if not (isinstance(data, keras.utils.PyDataset) and forks(data)):
        return
    parts = itertools.chain(*map(timing.replicas, keras.tree.flatten(batch)))
    arrays = [keras.ops.convert_to_numpy(part) for part in parts if part is not None]
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def send() -> None:
        thread = threading.Thread(target=sender.send, args=(arrays,), daemon=True)
        thread.start()
        receiver.recv()
        thread.join()

    with receiver, sender:
        took = min(timeit.repeat(send, number=1, repeat=_PIPED_TIMES))  # other load can only make one slower
    if took >= _PIPED_SHARE * step_seconds:
        size = sum(each.nbytes for each in arrays)
        yield (
            f"Worker processes of Keras send batches of {machine.size_text(size)} through "
            f"a pipe: one takes {wording.milliseconds(took)} here, a step {wording.milliseconds(step_seconds)}. "
            "Threads (use_multiprocessing=False) pass them on as they are, processes of `ap.wrap` share memory, and "
            "uint8 is smaller."
        )


# -------------------- the image files that the data name

_FILES = 512  # whose folders are looked at
_REFUSED, _REFUSED_SECONDS = 5, 20.0  # files that are named, and the time for all
_FIRST = 3  # parts of a tuple that may be the path
_DEPTH = 3  # datasets in datasets, as torch has them in a DataLoader


def image_files(data: Any) -> tuple[Progressive, str] | None:
    """Return a training's progressive image files and the folder of all; None if its data name no files."""
    if not (paths := _paths(data)):
        return None
    named = [paths[index] for index in spread(len(paths), _FILES)]
    parents = {os.path.dirname(os.path.abspath(path)) for path in named if path}  # noqa: PTH100, PTH120
    found = Progressive.of(len(paths), lambda index: read_file(os.fsencode(paths[index])))
    return found, os.path.commonpath(parents)


_LARGE, _SIZES = 4, 32  # times the pixels of a batch's image, and the files that are looked at


def larger(data: Any, batch: Any) -> Iterator[str]:
    """Say that the image files that the data name have many times the pixels of a batch's images, if so."""
    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in randomness.leaves(batch)]
    images = [sorted(shape[1:])[1:] for shape in shapes if len(shape) == 4 and None not in shape]  # no channels
    every = pickling.attributes(torch_batches.whole(of_loader(data, "dataset", data))).values()
    paths = [] if any("Crop" in type(each).__name__ for each in every) else _paths(data)  # of which parts are cut out
    sizes = list[tuple[int, int]]()
    for at in spread(len(paths), _SIZES):
        with contextlib.suppress(AutopipeError):
            sizes += filter(None, [image_size(read_file(os.fsencode(paths[at])))])
    sizes.sort(key=math.prod)
    if not images or not sizes:
        return
    (short, long), median = max(images, key=math.prod), sizes[len(sizes) // 2]
    times = math.prod(median) / max(1, short * long)
    if times < _LARGE:
        return
    scale = next((each for each in (8, 4, 2) if min(median) >= each * short and max(median) >= each * long), None)
    is_jpeg = any(path.lower().endswith((".jpg", ".jpeg")) for path in paths)
    wide, high = (long, short) if median[1] >= median[0] else (short, long)
    scaled = (
        f", or decode JPEG at a smaller scale: cv2.IMREAD_REDUCED_COLOR_{scale}, `Image.draft` of Pillow, "
        f"tf.io.decode_jpeg(ratio={scale}); ap.Decode() does that before ap.Resize"
    )
    yield (
        f"Its image files have {median[1]:,} x {median[0]:,} pixels, as the median, of which a batch holds {wide:,} x "
        f"{high:,}: {times:.0f} times fewer. If that is by resizing, and no part cut out, write files of about that "
        f"size once{scaled if scale is not None and is_jpeg else ''}."
    )


def refused_files(data: Any) -> str | None:
    """Name the image files of a training's data that cannot be decoded; None if there are none, or no files."""
    until, seen, refused = time.monotonic() + _REFUSED_SECONDS, 0, list[str]()
    for path in itertools.takewhile(lambda _: time.monotonic() < until, _paths(data)):
        seen += 1
        refused += [path] * (path != "" and not _is_decoded(path, by_tensorflow=hasattr(data, "element_spec")))
    if not refused:
        return None
    named = ", ".join(refused[:_REFUSED]) + ", ..." * (len(refused) > _REFUSED)
    return f"{len(refused)} of {seen:,} image files of its data cannot be decoded: {named}."


_SHAPES = ("shape", "equal size", "number of elements")  # in errors of arrays that do not fit together
_PNG = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGBA"}
_JPEG = {"Gray": "grey", "YCbCr": "RGB"}


def modes(data: Any, error: str) -> str | None:
    """Say that the image files are of several modes, such as grey and RGB, if an error is of shapes."""
    until, found = time.monotonic() + _REFUSED_SECONDS, dict[str, list[str]]()
    paths = _paths(data) if any(each in error for each in _SHAPES) else []
    for path in itertools.takewhile(lambda _: time.monotonic() < until, paths):
        if path and (mode := _mode(path)):
            found.setdefault(mode, []).append(path)
    if len(found) < 2:
        return None
    each = (f"{len(paths):,} {mode} (such as {paths[0]})" for mode, paths in found.items())
    return (
        f'Its image files are of several modes: {", ".join(each)}. Decode all to one: `.convert("RGB")` of Pillow, '
        "channels=3 of tf.io, cv2.IMREAD_COLOR."
    )


def _mode(path: str) -> str | None:
    with contextlib.suppress(AutopipeError, ValueError, KeyError, IndexError):
        data = read_file(os.fsencode(path))
        if data[1:4] == b"PNG":
            return _PNG[data[25]]
        space = simplejpeg.decode_jpeg_header(data, strict=False)[2]
        return _JPEG.get(str(space), str(space))
    return None


def _is_decoded(path: str, *, by_tensorflow: bool) -> bool:
    if not by_tensorflow:
        import cv2  # with threads of its own

        return os.path.isfile(path) and cv2.imread(path) is not None  # noqa: PTH113
    tensorflow = sys.modules["tensorflow"]
    with contextlib.suppress(tensorflow.errors.OpError):
        tensorflow.io.decode_image(tensorflow.io.read_file(path), channels=3, expand_animations=False)
        return True
    return False


def _paths(data: Any) -> list[str]:
    """Return the paths of the image files that a training's data name, "" for what is none; [] if they name none."""
    return next((paths for paths in _named(_lists(data)) if os.path.isfile(paths[0])), [])  # noqa: PTH113


def mispaired(data: Any) -> Iterator[str]:
    """Say that two lists of files have the same numbers in their names, but not place by place, if so."""
    own = inspect.getgeneratorlocals(data) if inspect.isgenerator(data) else getattr(data, "__dict__", {})
    lists = [*tfdata.texts(data), *(each for each in own.values() if isinstance(each, list | tuple | np.ndarray))]
    for pair in itertools.combinations(_named(lists), 2):
        one, other = ([tuple(map(int, _NUMBERS.findall(Path(path).stem))) for path in each] for each in pair)
        is_pair = len({_MASKS.search(each[0]) is None for each in pair}) == 2 or all(x == sorted(x) for x in pair)
        if is_pair and one != other and len({*one}) == len(one) and sorted(one) == sorted(other):
            apart = [at for at, numbers in enumerate(one) if numbers != other[at]]
            first, second = (each[apart[0]] for each in pair)
            yield (
                f"Two lists of files in its data have other numbers in {len(apart):,} of {len(one):,} places: {first} "
                f'stands where {second} does. `os.listdir` has no order, and as text "10" comes before "2". If what '
                "stands in one place is a pair, sort both by key=lambda path: [int(number) for number in "
                're.findall(r"\\d+", os.path.basename(path))].'
            )


_NUMBERS, _MASKS = re.compile(r"\d+"), re.compile("mask|label|seg|gt|annot|target", re.IGNORECASE)


def look_at_labels(keras: Any, told: Callable[[str, str], None]) -> None:
    """From now on, tell of labels in a mistaken order, of renumbered classes, and of several seeds of a split."""
    made, known = keras.utils.image_dataset_from_directory, list[dict[str, int]]()
    seeds = collections.defaultdict[tuple[str, Any], list[Any]](list)

    @functools.wraps(made)
    def looked_at(directory: Any, labels: Any = "inferred", *arguments: Any, **named: Any) -> Any:
        dataset = made(directory, labels, *arguments, **named)
        files = sorted(getattr(dataset, "file_paths", ()))
        numbers = [tuple(map(int, _NUMBERS.findall(Path(path).name))) for path in files]
        if isinstance(labels, list | tuple) and len(files) == len(labels) and numbers != sorted(numbers):
            first = ", ".join(f"{Path(path).name}: {label}" for path, label in zip(files[:4], labels, strict=False))
            told(
                "`labels=` goes to the files in the order of their names as text, which is not that of their numbers: "
                f"{first}. If your list is in another order, images have labels of others.",
                "labels",
            )
        classes = {name: number for number, name in enumerate(getattr(dataset, "class_names", None) or ())}
        for each in known:  # of other classes are other data
            is_part = each.keys() <= classes.keys() or each.keys() >= classes.keys()
            if is_part and (said := fit_call.renumbered(each, classes)) is not None:
                told(said, "classes")
                break
        known.append(classes)
        if named.get("shuffle", True):
            seeds[str(directory), named.get("subset")].append(named.get("seed"))
            one, other = (seeds[str(directory), subset] for subset in ("training", "validation"))
            if one and len(one) == len(other) and one[-1] != other[-1]:  # else the other part is yet to come
                told(
                    f"`image_dataset_from_directory` splits {directory} by seed={one[-1]} and by seed={other[-1]}: "
                    "each seed draws another split, so that the validation has samples of the training. Give both "
                    "subsets the same seed=.",
                    "seeds",
                )
        return dataset

    for each in (keras, getattr(getattr(keras, "_tf_keras", keras), "keras", keras)):  # the second is `tf.keras`
        each.utils.image_dataset_from_directory = each.preprocessing.image_dataset_from_directory = looked_at


def left_out(data: Any, batch_size: int) -> Iterator[str]:
    """Say that the last files of a PyDataset's list are in no batch, if so and if nothing orders them anew."""
    batches: int = getattr(data, "num_batches", None) or 0
    for files in _named(_lists(data)) if batches and not epochs.hook(data) else ():
        if batches * batch_size < len(files) - _LEFT_OUT * len(files) and len(files) < (batches + 1) * batch_size:
            yield (
                f"`__len__` leaves out {len(files) - batches * batch_size:,} of {len(files):,} files, the same in each "
                "epoch if `__getitem__` takes them in order. `math.ceil(len(files) / batch_size)` counts the last, "
                "smaller batch, too; or let `on_epoch_end` shuffle the list."
            )


_LEFT_OUT = 0.02  # of the files, from which on it is said


def counts_samples(data: Any, steps: int | None, batch: Any) -> Iterator[str]:
    """Say that an epoch of so many steps has as many batches as the data have samples, if so."""
    count, batches = timing.rows_of(batch), getattr(data, "num_batches", None)
    if steps is None or count < 2 or steps == batches:
        return
    shape = tuple(timing.replicas(next(iter(randomness.leaves(batch))))[0].shape)
    batched = (each for each, later in tfdata.dataset_ops(data) if any("Batch" in name for name in later))
    known = [int(each.cardinality()) for each in batched]
    known += [len(each) for each in _lists(data) if getattr(each, "shape", ())[1:] == shape[1:]]
    known += [steps] * (math.ceil(steps / count) == batches)
    one_pass = f"steps_per_epoch={math.ceil(steps / count)} is one pass"
    if steps in known:
        yield (
            f"steps_per_epoch={steps} is the number of samples, but counts batches, here of {count} samples: an epoch "
            f"is {count} passes over the data, or they run out. {one_pass}."
        )
    elif steps in map(len, _named(_lists(data))):
        yield (
            f"steps_per_epoch={steps} is the number of files that the data name, and counts batches, here of {count} "
            f"samples. If a file is one sample, and no whole batch, {one_pass} over the data."
        )


def missing_files(data: Any) -> str | None:
    """Say that image files are not where the data say; None if a folder may be put before their names."""
    for paths in _named(_lists(data)):
        by_windows = "\\" in paths[0]
        named = [path for path in paths if path]
        missing = [path for path in named if not os.path.exists(path)]  # noqa: PTH110
        if missing and missing[0] == paths[0] and (by_windows or os.path.isabs(paths[0])):  # noqa: PTH117
            said = f"{len(missing):,} of {len(named):,} image files that its data name are not there: {missing[0]}, ..."
            slashes = ' Paths that Windows wrote have backslashes: `path.replace("\\\\", "/")`.'
            return said + slashes * by_windows
    return None


def _named(lists: Iterable[Sequence[Any] | NDArray[Any]]) -> Iterator[list[str]]:
    for listed in lists:
        place = next((at for at in range(_FIRST) if len(listed) and _path(listed[0], at)), None)
        if place is not None:
            yield [_path(value, place) for value in listed]


def _lists(data: Any) -> Iterator[Sequence[Any] | NDArray[Any]]:
    """Yield the lists and vectors in a training's data that may be of files, or of tuples with a file."""
    if isinstance(data, Source):
        yield data_source.files(data)
    yield from tfdata.texts(data)
    for _ in range(_DEPTH):
        for value in _held(data):
            is_table = hasattr(value, "iloc") and hasattr(value, "columns")  # of pandas, not of pyarrow
            columns = [value[name] for name in value.columns] if is_table else [value]
            yield from (each.tolist() for each in columns if hasattr(each, "iloc"))
            yield from (each for each in columns if isinstance(each, list | tuple | np.ndarray))
        data = of_loader(data, "dataset")


def _held(data: Any) -> Iterator[Any]:
    frame = data.gi_frame if inspect.isgenerator(data) else None
    if frame is None:
        yield from [*getattr(data, "__dict__", {}).values(), *pickling.used(data).values()]
    else:
        named = [frame.f_globals.get(name) for name in pickling.code_names(frame.f_code)]
        yield from [*frame.f_locals.values(), *named]


def _path(value: Any, place: int) -> str:
    if isinstance(value, tuple | list):
        value = value[place] if place < len(value) else None
    elif place > 0:
        return ""
    is_path = isinstance(value, str | bytes | os.PathLike) and os.fsencode(value).lower().endswith(SUFFIXES)
    return os.fsdecode(value) if is_path else ""
