"""What a `tf.data.Dataset` is made of, what the steps of its running iterator take, and other random numbers for the
ops of TensorFlow, by its private names.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from autopipe.frameworks import attribute, imported


def texts(dataset: Any) -> Iterator[Any]:
    """Yield the vectors of text that a `tf.data.Dataset` is made from, as arrays of bytes: paths of files, say."""
    for each, _ in dataset_ops(dataset):
        for tensor in getattr(each, "_tensors", ()):  # of `from_tensor_slices` and `list_files`
            if tensor.dtype.name == "string" and tensor.shape.rank == 1 and hasattr(tensor, "numpy"):
                yield tensor.numpy()


_OFFSET = 7919  # of other seeds
_DRAWN = ("random_uniform", "random_uniform_int", "random_standard_normal", "truncated_normal")
_LISTS = {"TensorSlice", "Range", "Zip", "Shuffle", "Cache", "Repeat", "Take", "Skip", "Shard", "Prefetch", "Options"}
_KEEPERS = {"CacheDataset", "SnapshotDataset"}  # what stands before them runs once
_MIXERS = {"ShuffleDataset", "DirectedInterleaveDataset"}


def _is_listed(dataset: Any) -> bool:
    return all(type(each).__name__.strip("_").removesuffix("Dataset") in _LISTS for each, _ in dataset_ops(dataset))


def shuffle_buffer(dataset: Any, *, shared: bool = True) -> tuple[int, int | None] | None:
    """Return the elements of the largest shuffle buffer of a `tf.data.Dataset`, and its bytes, or None if the shapes of
    elements are not known; None if it shuffles nothing, lists of paths only, or before a cache. Without `shared`, not
    of one whose elements lie in memory anyway.
    """
    buffers = []
    for each, later in dataset_ops(dataset):
        caches = (behind for one, behind in dataset_ops(each) if getattr(one, "_filename", None) == b"")
        in_memory = _is_listed(each) or any(not any("Map" in name for name in behind) for behind in caches)
        is_of_own = shared or not in_memory
        if type(each).__name__ == "_ShuffleDataset" and _KEEPERS.isdisjoint(later) and is_of_own:
            specs = sys.modules["tensorflow"].nest.flatten(each.element_spec)
            shapes = [(spec.shape, spec.dtype.size) for spec in specs if hasattr(spec, "dtype")]
            known = all(shape.is_fully_defined() and width for shape, width in shapes)
            each_bytes = sum(shape.num_elements() * width for shape, width in shapes) if known else None
            count, held = int(attribute("tensorflow", each, "_buffer_size")), int(each.cardinality())
            count = count if held < 0 else min(count, held)
            if each_bytes is not None or not _is_listed(each):
                buffers.append((count, None if each_bytes is None else count * each_bytes))
    return max(buffers, key=lambda buffer: (buffer[1] or 0, buffer[0]), default=None)


def batches_ahead(dataset: Any) -> int:
    """Return the most batches that a `prefetch` of a `tf.data.Dataset` is told to hold; 0 if tf.data chooses."""
    queues = [
        int(attribute("tensorflow", each, "_buffer_size"))
        for each, later in dataset_ops(dataset)
        if type(each).__name__ == "_PrefetchDataset" and not any("Batch" in name for name in later)
    ]
    return max(0, *queues, 0)


def other_seeds() -> contextlib.AbstractContextManager[None]:
    """Give random ops that are built meanwhile other seeds than the code asks for, if it asks for any."""
    import tensorflow as tf

    seeds = imported("tensorflow", "python.framework", "random_seed")
    orders = imported("tensorflow", "python.data.util", "random_seed")
    get_seed = attribute("tensorflow", seeds, "get_seed")

    def other_seed(op_seed: Any) -> tuple[Any, Any]:
        first, second = get_seed(op_seed)
        return first, second if second is None else (second + _OFFSET) % 2**31

    own = types.SimpleNamespace(get_seed=get_seed)
    replaced = [(seeds, "get_seed", other_seed), (orders, "random_seed", own)]
    return _traced_anew(lambda seed: tf.convert_to_tensor(seed) + _OFFSET, replaced)


def constant_numbers() -> contextlib.AbstractContextManager[None]:
    """Have random ops that are traced meanwhile give the same numbers for each sample."""
    import tensorflow as tf

    ops = imported("tensorflow", "python.ops", "gen_random_ops")

    def constant(name: str) -> Callable[..., Any]:
        drawn = attribute("tensorflow", ops, name)

        def draw(shape: Any, *limits: Any, **named: Any) -> Any:
            if tf.executing_eagerly():
                return drawn(shape, *limits, **named)
            if name == "random_uniform_int":
                return tf.zeros(shape, tf.convert_to_tensor(limits[0] if limits else named["minval"]).dtype)
            return tf.fill(shape, tf.cast(0.5, limits[0] if limits else named["dtype"]))

        return draw

    replaced = [(ops, name, constant(name)) for name in _DRAWN]
    return _traced_anew(lambda seed: seed if tf.executing_eagerly() else tf.zeros_like(seed), replaced)


@contextlib.contextmanager
def _traced_anew(key: Callable[[Any], Any], replaced: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes of TensorFlow meanwhile, and trace functions anew; stateless ops draw by `key(seed)`."""
    import tensorflow as tf

    keys, function = imported("tensorflow", "python.ops", "random_ops_util"), type(tf.function(lambda: None))
    get_key, call = attribute("tensorflow", keys, "get_key_counter_alg"), function.__call__
    replaced = [
        *replaced,
        (keys, "get_key_counter_alg", lambda seed, alg: get_key(key(seed), alg)),
        (function, "__call__", lambda self, *given, **named: call(tf.function(self.python_function), *given, **named)),
    ]
    with contextlib.ExitStack() as undo:
        for owner, name, value in replaced:
            undo.callback(setattr, owner, name, attribute("tensorflow", owner, name))
            setattr(owner, name, value)
        yield


def dataset_ops(dataset: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield a `tf.data.Dataset` and each one that it is made from, with the names of the classes that come after it."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(dataset, ())]
    while pending:
        each, later = pending.pop()
        yield each, later
        inputs = getattr(each, "_inputs", None)
        names = (type(each).__name__.strip("_"), *later)
        pending += [(one, names) for one in (inputs() if callable(inputs) else ())]


def splits_anew(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` is a part of what a shuffle gives in another order each time."""
    orders = (later for each, later in dataset_ops(dataset) if _shuffles_anew(each))
    until = (itertools.takewhile(lambda name: name not in ("RepeatDataset", *_KEEPERS), later) for later in orders)
    return any(not {"TakeDataset", "SkipDataset", "ShardDataset"}.isdisjoint(each) for each in until)


def shuffles_anew(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` has its samples in another order each time."""
    return any(_shuffles_anew(each) for each, later in dataset_ops(dataset) if _KEEPERS.isdisjoint(later))


def _shuffles_anew(one: Any) -> bool:
    if type(one).__name__ != "_ShuffleDataset":
        return False
    return attribute("tensorflow", one, "_reshuffle_each_iteration") is not False


def zips_apart(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` puts tensors of several kinds together that are each shuffled on their own."""

    def seeds(part: Any) -> set[tuple[int, ...]]:
        return {(int(a._seed), int(a._seed2)) for a, _ in dataset_ops(part) if type(a).__name__ == "_ShuffleDataset"}

    zips = [each._inputs() for each, _ in dataset_ops(dataset) if type(each).__name__ == "_ZipDataset"]
    pairs = [(one, other) for parts in zips for one, other in itertools.pairwise(parts) if seeds(one) and seeds(other)]
    specs = [(a.element_spec, b.element_spec) for a, b in pairs if seeds(a) != seeds(b) or (0, 0) in seeds(a)]
    return any(one != other and hasattr(one, "dtype") and hasattr(other, "dtype") for one, other in specs)


def mixes_epochs(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` shuffles what `repeat` made endless, and that alone."""
    repeats = ((each, later) for each, later in dataset_ops(dataset) if type(each).__name__ == "_RepeatDataset")
    endless = (later for each, later in repeats if int(each.cardinality()) == -1)
    ends = ("ZipDataset", "DirectedInterleaveDataset")
    return any("ShuffleDataset" in itertools.takewhile(lambda name: name not in ends, later) for later in endless)


def shuffles_batches(dataset: Any) -> bool:
    """Return True if a `tf.data.Dataset` shuffles whole batches, and no samples."""
    apart = {"UnbatchDataset", "FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDataset"}
    orders = [(each, later) for each, later in dataset_ops(dataset) if type(each).__name__ == "_ShuffleDataset"]
    return bool(orders) and all(
        any("Batch" in type(one).__name__ and apart.isdisjoint(names) for one, names in dataset_ops(order))
        and not any("Batch" in name for name in later)  # of parts of a series, say, that a batch is made of
        for order, later in orders
    )


def loses_cache(dataset: Any) -> bool:
    """Return True if less is taken than a `cache` would hold, so that TensorFlow throws that away."""
    takes = [each for each, _ in dataset_ops(dataset) if type(each).__name__ == "_TakeDataset"]
    pairs = ((each, whole) for each in takes for whole in each._inputs())
    short = [whole for each, whole in pairs if 0 <= int(each.cardinality()) < int(whole.cardinality())]
    caches = (later for whole in short for each, later in dataset_ops(whole) if type(each).__name__ == "CacheDataset")
    return any({"RepeatDataset", "ShuffleDataset"}.isdisjoint(later) for later in caches)


def cached(dataset: Any) -> Iterator[str]:
    """Yield what is wrong with each `cache` or `snapshot` of a `tf.data.Dataset`: it keeps "endless" data, "lists" as
    of paths, "changes" that a `map` before it makes with random numbers, or the "order" of a shuffle.
    """
    for each, later in dataset_ops(dataset):
        if type(each).__name__.strip("_") in _KEEPERS:
            before = [one for one, _ in dataset_ops(each)]
            kinds = ["lists"] * _is_listed(each) + ["changes"] * any(map(_draws, functions(each)))
            kinds += ["order"] * (any(map(_shuffles_anew, before)) and _MIXERS.isdisjoint(later))
            yield from ["endless"] if int(each.cardinality()) == -1 else kinds


def draws(dataset: Any) -> bool:
    """Return True if a function of a `tf.data.Dataset` draws random numbers, also with a seed for each sample."""
    made = functions(dataset)
    return any(_draws(each) or any(op.startswith("StatelessRandom") for op in _ops_of(each)) for each in made)


def functions(dataset: Any) -> list[Any]:
    """Return the functions of a `tf.data.Dataset` that were traced for it, as by `map`."""
    return [each for one, _ in dataset_ops(dataset) if (each := getattr(one, "_map_func", None)) is not None]


def _ops_of(function: Any) -> set[str]:
    graph = attribute("tensorflow", function, "function").graph.as_graph_def()
    return {node.op for node in itertools.chain(graph.node, *(each.node_def for each in graph.library.function))}


def _draws(function: Any) -> bool:
    """Return True if a function of a dataset draws random numbers, by TensorFlow's ops or from a Keras layer's seed."""
    ops = _ops_of(function)
    by_layer = any(op.startswith("Assign") for op in ops) and any(op.startswith("StatelessRandom") for op in ops)
    return by_layer or any(op.startswith(("Random", "TruncatedNormal", "RngReadAndSkip")) for op in ops)


# -------------------- the steps of a running iterator, as TensorFlow counts them for its own tuning

_MADE_SHARE, _FEWEST = 0.25, 64  # of the time, for making samples; and samples that tell
_MADE_NANOSECONDS: Final = 100_000  # of a sample: making less costly ones costs nothing


def nodes_of(iterator: Any) -> Mapping[int, Any]:
    """Return the steps of a running iterator of tf.data by number; none if it was told not to tune itself."""
    tensorflow = sys.modules["tensorflow"]
    with contextlib.suppress(tensorflow.errors.OpError, AttributeError, ValueError):
        return dict(tensorflow.data.experimental.get_model_proto(iterator).nodes)
    return {}


def plain_name(node: Any) -> str:
    """Return the kind of such a step, such as "Map"."""
    return re.sub("^Parallel|V[0-9]+$", "", node.name)


def thrown_away(iterator: Any) -> str | None:
    """Say what share of samples is thrown away after it was made, and what saves that; None if little."""
    nodes = nodes_of(iterator)

    def nanoseconds(node: Any) -> float:
        return float(node.processing_time + sum(nanoseconds(nodes[each]) for each in node.inputs if each in nodes))

    whole = sum(float(node.processing_time) for node in nodes.values())
    found = []
    for node in nodes.values():
        made = max((nodes[each].num_elements for each in node.inputs if each in nodes), default=0)
        took = nanoseconds(node)
        if (
            (kind := plain_name(node).removeprefix("Finite")) in _THROWING
            and made >= _FEWEST
            and took >= max(_MADE_SHARE * whole, _MADE_NANOSECONDS * made)
        ):
            found.append((1 - node.num_elements / made, took / whole, _THROWING[kind]))
    thrown, share, (what, instead) = max(found, default=(0.0, 0.0, ("", "")))
    if thrown < 0.2:
        return None
    return (
        f"{what} throws away {thrown:.0%} of the samples that reach it, after the steps before it have made them, "
        f"which takes {share:.0%} of the time of tf.data. {instead}"
    )


_THROWING: Final = {
    "Filter": (
        "`filter` (or `rejection_resample`)",
        "Choose by path or label before `map` decodes, or once, and keep a list; to balance classes, give each a "
        "dataset of its own: `tf.data.Dataset.sample_from_datasets`",
    ),
    "Skip": ("`skip`", "Skip paths or numbers, before `map` reads and decodes"),
}
_ONE_FILE: Final = {
    "Interleave": (
        "`interleave` makes one element after the other: num_parallel_calls=tf.data.AUTOTUNE, with a cycle_length "
        "above 1, reads several files at once"
    ),
    "FlatMap": (
        "one thread reads TFRecords, and unpacks them if they are compressed, one file after the other: write several "
        "files, and give TFRecordDataset all of them with num_parallel_reads=tf.data.AUTOTUNE"
    ),
}


_OF_MAP: Final = "`map` makes one element after the other: num_parallel_calls=tf.data.AUTOTUNE makes several at once"
_OF_DATASETS: Final = (
    "`to_tf_dataset` makes one batch after the other: its num_workers= gives it worker processes, which import the "
    "script, so that what trains has to stand under `if __name__ == '__main__':`; `ap.HuggingFace(dataset)`, as the "
    "data of an ap.Workload, needs neither"
)


def one_by_one(iterator: Any, dataset: Any) -> str | None:
    """Say that a costly `map`, `interleave` or read of TFRecords makes one element after the other, or None."""
    nodes = nodes_of(iterator)
    whole = sum(float(node.processing_time) for node in nodes.values())

    def is_costly(node: Any, nanoseconds: float, share: float = 1 / 2) -> bool:  # which is worth several threads
        return bool(nanoseconds >= max(share * whole, _MADE_NANOSECONDS * node.num_elements, 1))

    # Datasets within `interleave` come to their end: what an element takes is known of those that are open.
    for node in nodes.values():
        made = [nodes[each] for each in node.inputs if each in nodes and nodes[each].num_elements]
        taken = max((float(each.processing_time) / each.num_elements for each in made), default=0.0)
        reads = node.name == "Interleave" or any(each.name == "TFRecord" for each in made)
        # What follows records, such as a `map`, has several threads already.
        share = 1 / 3 if node.name == "FlatMap" else 1 / 2
        if reads and node.name in _ONE_FILE and is_costly(node, taken * node.num_elements, share):
            return _ONE_FILE[node.name]
    alone = (
        node
        for node in nodes.values()
        if node.name == "Map"
        or any(each.name == "parallelism" and not each.tunable and each.value <= 1 for each in node.parameters)
    )
    if not any(is_costly(node, float(node.processing_time)) for node in alone):
        return None
    makers = {getattr(each._func, "__module__", "") for each in functions(dataset)}
    return _OF_DATASETS if "datasets.utils.tf_utils" in makers else _OF_MAP


def one_for_each(iterator: Any, batch_size: int) -> str | None:
    """Say that a `map` does so little for each element that the calls take the time, or None."""
    nodes = nodes_of(iterator)
    whole = sum(float(node.processing_time) for node in nodes.values())
    batches = min((node.num_elements for node in nodes.values()), default=0)
    for node in nodes.values():
        calls = node.num_elements * (batch_size if "AndBatch" in node.name else 1)
        took = float(node.processing_time)
        is_called = "Map" in node.name and calls > 2 * max(batches, _FEWEST)
        if is_called and took >= _MADE_SHARE * whole and took / calls < _MADE_NANOSECONDS / 2:
            return (
                f"`map` takes {took / calls / 1000:.0f} us for each element, most of which is the call. If its "
                "function takes whole batches as well, as arithmetic does, `.batch(...)` before `.map(...)` calls it "
                "once for each"
            )
    return None
