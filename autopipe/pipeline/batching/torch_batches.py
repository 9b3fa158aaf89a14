"""The batches of a torch `DataLoader` by their index, as its own workers would make them. It starts no workers."""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from autopipe.errors import AutopipeError, DataWarning, WorkloadError, called, raised


def is_loader(dataset: Any) -> bool:
    """Return True for a torch `DataLoader`."""
    data = sys.modules.get("torch.utils.data")  # imported already, if the dataset is one of its own
    return data is not None and isinstance(dataset, data.DataLoader)


def is_streamed(loader: Any) -> bool:
    """Return True if a torch DataLoader, or its iterator, reads an IterableDataset, whose samples have no index."""
    samples = getattr(loader, "dataset", getattr(loader, "_dataset", None))
    return any(kind.__name__ == "IterableDataset" for kind in type(samples).__mro__)


def fits_workers(dataset: Any) -> bool:
    """Return True for a `DataLoader` whose batches other workers can make as its own would."""
    return is_loader(dataset) and _refusal(dataset) is None and dataset.worker_init_fn is None


def why_own_workers(dataset: Any) -> str | None:
    """Return the reason why only the own workers of a `DataLoader` can make its batches; None if others can, too."""
    if not is_loader(dataset) or fits_workers(dataset):
        return None
    why = _refusal(dataset) or _OWN_INIT
    return f'{why}; or have those tried, by ap.wrap(make_loader, parameters={{"num_workers": [0, 2, 4]}})'


def copied(loader: Any) -> Any:
    """Return a copy of a `DataLoader` whose samples are an object of its own, of the same attributes."""
    samples, made = copy.copy(loader.dataset), copy.copy(loader)
    getattr(samples, "__dict__", {}).update(getattr(loader.dataset, "__dict__", {}))  # `copy` may leave some out
    vars(made).update(dataset=samples)  # torch refuses `setattr`
    return made


def set_epoch(dataset: Any, epoch: int) -> None:
    """Tell a dataset, and a `DataLoader`'s samplers and samples, the epoch: some shuffle by it alone."""
    loader = dataset._loader if isinstance(dataset, TorchBatches) else dataset
    held = [getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler")]
    for each in (loader, *held, getattr(held[-1], "sampler", None)):
        if callable(told := getattr(each, "set_epoch", None)):
            told(epoch)


def samples_of(dataset: Any) -> Any:
    """Return the dataset that gives single samples: that of a `DataLoader` or of its batches, or any other as it is."""
    return dataset.dataset if is_loader(dataset) else getattr(dataset, "of_samples", dataset)


def whole(samples: Any) -> Any:
    """Return the user's own dataset behind torch's `random_split` and the like; of several the first."""
    while type(samples).__module__.startswith("torch.utils.data"):
        inner = getattr(samples, "dataset", next(iter(getattr(samples, "datasets", ())), None))
        if inner is None:
            break
        samples = inner
    return samples


def of_batches(dataset: Any) -> Any:
    """Return such a `DataLoader`'s batches by index, by random numbers that come again; another dataset as it is."""
    if not fits_workers(dataset):
        return dataset
    import torch

    generators = [torch.default_generator, *([] if dataset.generator is None else [dataset.generator])]
    states = [each.get_state() for each in generators]
    batches = TorchBatches(dataset)
    batches.on_epoch_begin()
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
    return batches


def _refusal(loader: Any) -> str | None:
    """Return the reason why samples and sampler do not tell the batches of a `DataLoader`; None if they do."""
    is_own = loader.batch_sampler is None and loader.batch_size is not None
    if is_own or is_streamed(loader) or not hasattr(loader.dataset, "__len__"):
        return "its samples have no index: give them `__len__` and `__getitem__`"
    own = getattr(type(loader), "__iter__", None)
    if own is not None and not own.__module__.startswith("torch."):
        return f"`{type(loader).__name__}` has an `__iter__` of its own: make it a DataLoader of torch's own class"
    return None


_OWN_INIT = "`worker_init_fn` is called in its own workers only: open in `__getitem__` what a worker needs"
_MANY = 100_000  # batches of an epoch


class TorchBatches:
    """`batches[i]` is the i-th batch of the epoch that was drawn last. It pickles without the loader."""

    def __init__(self, loader: Any) -> None:
        """Take a loader's samples, sampler and collating. Raise WorkloadError if samples have no index."""
        if (said := _refusal(loader)) is not None:
            raise WorkloadError(
                f"`ap.live` asks a DataLoader for batches by their index, but of this one, with samples of "
                f"{type(loader.dataset).__name__}, that cannot be: {said}.",
                hint="Or use the DataLoader's own num_workers.",
            )
        if loader.worker_init_fn is not None:
            said = "`worker_init_fn` of the DataLoader is not called: open in `__getitem__` what a worker needs."
            warnings.warn(said, DataWarning, stacklevel=5)
        self.of_samples, self._collate = loader.dataset, loader.collate_fn
        self._is_batched, self._loader = loader.batch_sampler is not None, loader
        self._indices: Sequence[Any] = ()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_loader": None}

    def on_epoch_begin(self) -> None:
        """Draw the indices of another epoch, with the random numbers that the loader itself would take."""
        import torch

        drawn = iter(self._loader.batch_sampler if self._is_batched else self._loader.sampler)
        if not (self._indices and self._loader.persistent_workers):  # which are seeded once
            torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
        most = _MANY
        with contextlib.suppress(TypeError):  # a sampler need not know its length
            most = 2 + 10 * len(self._loader)
        self._indices = list(itertools.islice(drawn, most))
        if len(self._indices) == most:
            raise WorkloadError(
                f"The sampler of a DataLoader must come to its end in each epoch, but it gave {most:,} and more.",
                hint="Have its `__iter__` give one epoch, or use the DataLoader's own num_workers.",
            )

    def __len__(self) -> int:
        return len(self._indices or self._loader)

    def __getitem__(self, index: int) -> Any:
        indices = self._indices[index]
        if not self._is_batched:
            return self._collate(self.of_samples[indices])
        at_once: Callable[[Any], Any] | None = getattr(self.of_samples, "__getitems__", None)
        return self._collate([*map(self._sample, indices)] if at_once is None else list(at_once(indices)))

    def _sample(self, index: Any) -> Any:
        try:
            return called(self.of_samples.__getitem__, index)
        except (AutopipeError, MemoryError):
            raise
        except Exception as error:
            said = raised(f"{type(self.of_samples).__name__}[{index}]", error)
            raise WorkloadError(f"{said}. It is a sample of the DataLoader.") from error


TorchBatches.__name__ = "DataLoader"  # in messages, which name a dataset by its class
