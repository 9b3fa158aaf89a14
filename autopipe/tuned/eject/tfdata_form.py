"""A pipeline as plain tf.data code."""

from __future__ import annotations

from typing import Final

from autopipe.core.config import PipelineConfig
from autopipe.core.workload import Workload
from autopipe.loaders.tfdata import TfData
from autopipe.tuned.eject.written import Written, function, indented

TEMPLATE: Final = '''\
$load$augment$mix$finish
def make_dataset($given) -> tf.data.Dataset:
    """Return the batches of an epoch: `model.fit(make_dataset($passed), epochs=3)`."""
$dataset
    return dataset
'''


def texts(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    """Return what the template is filled with."""
    loader = config.loader
    assert isinstance(loader, TfData)
    calls = "tf.data.AUTOTUNE" if loader.num_parallel_calls == "auto" else str(loader.num_parallel_calls)
    prefetch = "tf.data.AUTOTUNE" if loader.prefetch == "auto" else str(loader.prefetch)
    source, kept = parts.source, config.cache == "memory"
    loading = [*source.reading, *parts.prefix, *([] if kept else parts.body)]
    load = function("load", "Read a sample.", loading, ", ".join(source.arguments), parts.finished)
    augment = function("augment", "Do to a sample what differs from epoch to epoch.", parts.body if kept else [],
                       parts.finished, parts.finished)  # fmt: skip
    mix = function("mix", "Mix the samples of a batch.", parts.mixing, parts.finished, parts.finished)
    shuffle = f"shuffle({source.count}, seed=SEED)" if workload.shuffle else ""
    steps = [
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
