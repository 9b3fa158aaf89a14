"""From a loader to what a plain `fit` or `evaluate` takes: a `tf.data.Dataset`, or a `keras.utils.PyDataset`.

For scripts that call Keras themselves, by public interfaces of Keras and TensorFlow only; the trainer has `feed`. Each
pass is the loader's next epoch. Keras begins passes that it does not train (to learn shapes, to build a model), and
leaves others before their end: an epoch counts once its last batch has been taken, and is begun again until then.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Literal

import keras

from autopipe.hardware import allocator
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.loader import Loader, end
from autopipe.workload.structure import mapped


def dataset(loader: Loader, first_epoch: int = 0) -> Any:
    """Return the epochs of `loader`, one a pass, from `first_epoch` on: a `tf.data.Dataset` on TensorFlow.

    The loader is closed when nothing refers to the dataset any more, or when the process ends. Whatever the loader
    leaves to the device is done on the host.
    """
    epochs = _Epochs(loader, first_epoch)
    made = _tensorflow(epochs) if keras.backend.backend() == "tensorflow" else _Batches(epochs)
    weakref.finalize(made, loader.close)
    return made


def channels() -> Literal["last", "first"]:
    """Return the order of image axes that models built now expect."""
    return "first" if keras.config.image_data_format() == "channels_first" else "last"


class _Epochs:
    """Calls give the passes, one at a time. Passes that were left may still be held by a framework."""

    def __init__(self, loader: Loader, first: int) -> None:
        self.loader = loader
        self._next = first

    def __len__(self) -> int:
        return len(self.loader)

    def __call__(self) -> Iterator[tuple[Any, ...]]:
        allocator.keep_freed_memory()  # once more: a dataset of a generator changes that
        epoch, batches = self._next, self.loader.batches(self._next)
        try:
            for taken, batch in enumerate(batches, start=1):
                if taken == len(self):
                    self._next = epoch + 1
                finished = self.loader.spec.packed(self.loader.finish.batch(batch))
                yield tuple(part for part in finished if part is not None)
                del batch  # the consumer may be done with it: do not hold it while waiting for the next
        finally:
            end(batches)


def _tensorflow(epochs: _Epochs) -> Any:
    import tensorflow as tf

    def spec(part: Any) -> Any:
        return tf.TensorSpec((None, *part.shape[1:]), part.dtype)

    signature = tuple(mapped(spec, slot) for slot in models.finished_batch(epochs.loader) if slot is not None)
    made = tf.data.Dataset.from_generator(epochs, output_signature=signature)
    made = made.apply(tf.data.experimental.assert_cardinality(len(epochs))).prefetch(1)
    options = tf.data.Options()
    options.autotune.enabled = False  # a short queue: the loader has its own
    # Waiting for the loader in a thread of its own: where there is one core, TensorFlow has one thread for all others,
    # and a loader that reads by tf.data needs it.
    options.threading.private_threadpool_size = 1
    return made.with_options(options)


class _Batches(keras.utils.PyDataset):
    """Hands out the next batch, whichever number is asked for: `fit` shuffles the numbers."""

    def __init__(self, epochs: _Epochs) -> None:
        super().__init__(workers=1, use_multiprocessing=False)  # one is none: batches are made by the loader's workers
        self._epochs = epochs
        self._pass: Iterator[tuple[Any, ...]] = iter(())
        self._taken = 0  # since Keras began an epoch; several of its epochs may be parts of one pass
        self._begins = False

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def num_batches(self) -> int:
        """Batches of a pass. Keras asks before each, and before no other batch."""
        self._begins = not self._taken
        return len(self._epochs)

    def on_epoch_begin(self) -> None:
        """Know that a pass may begin with the next batch."""
        self._taken = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from self._epochs()  # the loader stays open as long as this refers to `self`

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        if self._begins:
            self._pass, self._begins = self._epochs(), False
        batch = next(self._pass, None)
        if batch is None:
            self._pass = self._epochs()
            batch = next(self._pass)
        self._taken += 1
        return batch
