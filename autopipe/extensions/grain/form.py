"""`autopipe eject --to grain`: a pipeline as a plain Grain dataset on NumPy and OpenCV."""

from __future__ import annotations

from typing import Final

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
        return $loaded


def make_dataset($given) -> grain.IterDataset:
    """Return batches without end: `model.fit(make_dataset($passed), steps_per_epoch=STEPS_PER_EPOCH, epochs=3)`."""
$dataset
    return dataset
'''

IMPORTS: Final = {"grain.": "import grain"}


def texts(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    """Return the texts of the template."""
    star = parts.starred
    found, loaded = stages(parts)
    steps = [
        "seed(SEED)",
        "shuffle()" if workload.shuffle else "",
        f"random_map(lambda sample, rng: augment({star}sample, rng))" if found["augment"] else "",
        f"batch(BATCH_SIZE, drop_remainder={workload.drop_remainder})",
        f"random_map(lambda batch, rng: mix({star}batch, rng))" if found["mix"] else "",
        f"map(lambda batch: finish({star}batch))" if found["finish"] else "",
        "repeat()",
        "to_iter_dataset(grain.ReadOptions(num_threads=16, prefetch_buffer_size=16))",
    ]
    made_of = [f"dataset = grain.MapDataset.source(Samples({parts.passed}))"]
    return {
        **found,
        "count": parts.source.count,
        "loaded": loaded,
        "dataset": indented([*made_of, *(f"dataset = dataset.{step}" for step in steps if step)]),
    }


def constants(workload: Workload) -> list[str]:
    """Return lines at the top of the file."""
    count = len(workload.data)
    batches = count // workload.batch_size if workload.drop_remainder else -(-count // workload.batch_size)
    return [f"STEPS_PER_EPOCH = {batches}  # of the {count} samples that there were when this was written"]
