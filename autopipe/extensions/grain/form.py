"""`autopipe eject --to grain`: a pipeline as a plain Grain dataset on NumPy and OpenCV."""

from __future__ import annotations

from typing import Final

from autopipe.extensions.grain.loader import Grain
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject.written import Written, indented, stages
from autopipe.workload.workload import Workload

TEMPLATE: Final = '''\
$load$augment$mix$finish
class Samples:
    """The samples by number: a data source of Grain's."""

    def __init__(self$fields) -> None:
        $opened

    def __len__(self) -> int:
        return $count

    def __getitem__(self, index: int) -> Any:
$sample

def make_dataset($given) -> grain.IterDataset:
    """Return batches without end: `model.fit(make_dataset($passed), steps_per_epoch=STEPS_PER_EPOCH, epochs=3)`."""
$dataset
    return dataset
'''


USUAL: Final = PipelineConfig(loader=Grain(num_threads=16, buffer_size=16), finish="host", device_prefetch=0)
"""Grain as people have it, with its default threads: what a tune takes for a baseline."""

IMPORTS: Final = {"flags.": "from absl import flags", "grain.": "import grain"}


def in_processes(loader: Grain) -> bool:
    """Return True if worker processes make the samples."""
    return loader.workers > 0


def texts(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    """Return the texts of the template."""
    loader = config.loader
    assert isinstance(loader, Grain)
    source, star = parts.source, parts.starred
    found, sample, loaded = stages(parts, cached=config.kept.in_memory)
    waiting = loader.num_threads if loader.workers else loader.buffer_size
    threads = f"num_threads={loader.num_threads}, prefetch_buffer_size={waiting}"
    steps = [
        "seed(SEED)",
        "shuffle()" if workload.shuffle else "",
        f"random_map(lambda sample, rng: augment({star}sample, rng))" if found["augment"] else "",
        f"batch(BATCH_SIZE, drop_remainder={workload.drop_remainder})",
        f"random_map(lambda batch, rng: mix({star}batch, rng))" if found["mix"] else "",
        f"map(lambda batch: finish({star}batch))" if found["finish"] else "",
        "repeat()",
        f"to_iter_dataset(grain.ReadOptions({threads}))",
    ]
    if loader.workers:
        processes = f"num_workers={loader.workers}, per_worker_buffer_size={loader.of_each(loader.buffer_size)}"
        steps.append(f"mp_prefetch(grain.multiprocessing.MultiprocessingOptions({processes}))")
    made_of = [f"dataset = grain.MapDataset.source(Samples({parts.passed}))"]
    return {
        **found,
        "count": source.count,
        "sample": indented([indented([*sample, f"return {loaded}"])]) + "\n",
        "dataset": indented([*made_of, *(f"dataset = dataset.{step}" for step in steps if step)]),
    }


def constants(workload: Workload, loader: Grain) -> list[str]:
    """Return lines at the top of the file."""
    count = len(workload.data)
    batches = count // workload.batch_size if workload.drop_remainder else -(-count // workload.batch_size)
    found = [f"STEPS_PER_EPOCH = {batches}  # of the {count} samples that there were when this was written"]
    if loader.workers:
        found.append("flags.FLAGS.mark_as_parsed()  # Grain reads some where its workers start")
    return found
