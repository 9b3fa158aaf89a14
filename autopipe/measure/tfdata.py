"""The steps of a running iterator of tf.data, as TensorFlow counts them for its own tuning.

They show samples that are thrown away once they are made, and steps that make one element after the other. Samples
themselves are compared in `epochs`.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

_MADE_SHARE, _FEWEST = 0.25, 64  # of the time, for making samples; and samples that tell
_MADE_NANOSECONDS: Final = 100_000  # of a sample: making less costly ones costs nothing


def nodes_of(iterator: Any) -> Mapping[int, Any]:
    """Return the steps of a running iterator of tf.data by their numbers; none if it was told not to tune itself, or
    belongs to something else.
    """
    tensorflow = sys.modules["tensorflow"]
    with contextlib.suppress(tensorflow.errors.OpError, AttributeError, ValueError):
        return dict(tensorflow.data.experimental.get_model_proto(iterator).nodes)
    return {}


def plain_name(node: Any) -> str:
    """Return the kind of such a step, such as "Map"."""
    return re.sub("^Parallel|V[0-9]+$", "", node.name)


def thrown_away(iterator: Any) -> str | None:
    """Say what share of the samples a running iterator of tf.data throws away after it has made them, and what saves
    that; None if it is little, or making them is.
    """
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


def one_by_one(iterator: Any) -> str | None:
    """Say that a costly `map` or `interleave` of a running iterator of tf.data makes one element after the other; None
    if none does.
    """
    nodes = nodes_of(iterator)
    whole = sum(float(node.processing_time) for node in nodes.values())

    def is_costly(node: Any, nanoseconds: float) -> bool:  # half of the time is worth several threads
        return bool(nanoseconds >= max(whole / 2, _MADE_NANOSECONDS * node.num_elements, 1))

    # Datasets within `interleave` come to their end: what an element takes is known of those that are open.
    for node in nodes.values():
        made = [nodes[each] for each in node.inputs if each in nodes and nodes[each].num_elements]
        taken = max((float(each.processing_time) / each.num_elements for each in made), default=0.0)
        if node.name == "Interleave" and is_costly(node, taken * node.num_elements):
            return (
                "`interleave` makes one element after the other: num_parallel_calls=tf.data.AUTOTUNE, with a "
                "cycle_length above 1, reads several files at once"
            )
    alone = (
        node
        for node in nodes.values()
        if node.name == "Map"
        or any(each.name == "parallelism" and not each.tunable and each.value <= 1 for each in node.parameters)
    )
    said = "`map` makes one element after the other: num_parallel_calls=tf.data.AUTOTUNE makes several at once"
    return said if any(is_costly(node, float(node.processing_time)) for node in alone) else None


def one_for_each(iterator: Any, batch_size: int) -> str | None:
    """Say that a `map` of a running iterator of tf.data does so little for each element that the calls are what takes
    the time; None if none does.
    """
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
