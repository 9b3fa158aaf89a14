"""A pipeline as a plain `keras.utils.PyDataset` on NumPy and OpenCV."""

from __future__ import annotations

from typing import Final

from autopipe.core.config import PipelineConfig
from autopipe.core.workload import Workload
from autopipe.loaders.keras import Keras
from autopipe.tuned.eject.written import Written, indented, stages

TEMPLATE: Final = '''\
$load$augment$mix$finish
class Batches(keras.utils.PyDataset):
    """The batches of an epoch: `model.fit(Batches($passed), epochs=3)`."""

    def __init__(self$fields) -> None:
        super().__init__(workers=$workers, use_multiprocessing=$forked, max_queue_size=$queue)
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


def texts(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    """Return what the template is filled with."""
    loader = config.loader
    assert isinstance(loader, Keras)
    source, made = parts.source, parts.finished
    found, sample, loaded = stages(parts, cached=config.cache == "memory")
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
        "workers": loader.workers,
        "forked": loader.use_multiprocessing,
        "queue": loader.max_queue_size,
        "length": f"{source.count} // BATCH_SIZE" if workload.drop_remainder else f"-(-{source.count} // BATCH_SIZE)",
        "batch": indented([indented(batch)]),
        "finished": f"finish({made})" if found["finish"] else made,
        "sample": indented(method),
        "order": order,
    }
