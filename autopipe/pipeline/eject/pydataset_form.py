"""A pipeline as a plain `keras.utils.PyDataset` on NumPy and OpenCV."""

from __future__ import annotations

from typing import Final

from autopipe.errors import ConfigError
from autopipe.hardware import machine
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject.written import Written, indented, stages
from autopipe.pipeline.loaders.foreign import Foreign
from autopipe.workload.workload import Workload

KERAS_WORKERS: Final = "keras-workers"
WORKERS: Final = max(2, machine.usable_cores())
_QUEUE_SIZE: Final = 10  # Keras's default
_MOST_WORKERS: Final = 1024

TEMPLATE: Final = '''\
$load$augment$mix$finish
class Batches(keras.utils.PyDataset):
    """The batches of an epoch: `model.fit(Batches($passed), epochs=3)`."""

    def __init__(self$fields) -> None:
        super().__init__(workers=$workers, use_multiprocessing=False, max_queue_size=$queue)
        $opened
        self._epoch = 0
        self._order = self._next_order()

    def __len__(self) -> int:
        return $length

    def __getitem__(self, number: int) -> Any:
        chosen = self._order[number * BATCH_SIZE :][:BATCH_SIZE]
$batch
        return $finished
$sample
    def on_epoch_end(self) -> None:
        """Give the next epoch an order and random numbers of its own."""
        self._epoch += 1
        self._order = self._next_order()

    def _next_order(self) -> Any:
        return $order
'''


def workers_of(form: str) -> int | None:
    """Return the threads of Keras's queue in the form "keras", "keras-workers" or "keras-workers=32"; None for others.

    One is Keras's default: each batch is then made when it is asked for. Raise ConfigError if a PyDataset cannot have
    so many workers.
    """
    name, _, workers = form.partition("=")
    if name == KERAS_WORKERS and workers.isdecimal():
        if not 1 <= int(workers) <= _MOST_WORKERS:
            raise ConfigError(f"`{KERAS_WORKERS}` must be 1 to {_MOST_WORKERS} workers, but got {form!r}.")
        return int(workers)
    return {"keras": 1, KERAS_WORKERS: WORKERS}.get(form)


def texts(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    """Return the texts of the template."""
    assert isinstance(config.loader, Foreign)
    workers = workers_of(config.loader.code)
    assert workers is not None
    source, made = parts.source, parts.finished
    found, sample, loaded = stages(parts, cached=False)
    augment, mix = found["augment"], found["mix"]
    rng = ", rng" if augment else ""
    batch = ["rng = np.random.default_rng((SEED, self._epoch, number))"] if augment or mix else []
    batch.append(f"made = [self._sample(int(index){rng}) for index in chosen]")
    batch.append(f"{made} = {parts.stacked}")
    if augment:
        sample.append(f"{made} = {loaded}")
        loaded = f"augment({made}, rng)"
    method = ["", f"def _sample(self, index: int{rng and f'{rng}: Any'}) -> Any:", *(f"    {line}" for line in sample)]
    method += [f"    return {loaded}", ""]
    if not found["load"] and not augment:  # whole batches of rows
        batch, method = [*batch[: bool(mix)], f"{made} = {source.taken.replace('[index]', '[chosen]')}"], []
    if mix:
        batch.append(f"{made} = mix({made}, rng)")
    order = f"np.arange({source.count})"
    if workload.shuffle:
        order = f"np.random.default_rng((SEED, self._epoch)).permutation({source.count})"
    return {
        **found,
        "workers": workers,
        "queue": max(_QUEUE_SIZE, workers),  # workers would wait for a shorter one
        "length": f"{source.count} // BATCH_SIZE" if workload.drop_remainder else f"-(-{source.count} // BATCH_SIZE)",
        "batch": indented([indented(batch)]),
        "finished": f"finish({made})" if found["finish"] else made,
        "sample": indented(method),
        "order": order,
    }
