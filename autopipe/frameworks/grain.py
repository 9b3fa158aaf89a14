"""What is particular to Grain: when it orders and draws anew, and its worker processes. Grain is not imported here."""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing
import sys
import traceback
from typing import Any, Final

from autopipe.errors import LoaderError

ORDERS_ANEW: Final = (
    "Grain orders and draws anew only in data that go on: `.repeat()`, or num_epochs= of an IndexSampler, and steps= "
    "for the batches of an epoch"
)
ENOUGH_BATCHES: Final = 8  # it draws the same whenever it is read: as many as chance does not give
_BEGIN_ANEW: Final = (
    "Grain's worker processes begin anew, and import the script. `.repeat()` of the MapDataset, or num_epochs=None of "
    "an IndexSampler, and one iterator for all epochs keep them"
)


def is_in_use() -> bool:
    """Return True if the user's code has imported Grain."""
    return "grain" in sys.modules


def is_grain(dataset: Any) -> bool:
    """Return True for a dataset, a loader or an iterator of Grain."""
    return type(dataset).__module__.startswith("grain")


def workers(loader: Any) -> int | None:
    """Return the worker processes of a DataLoader, or of its iterator; None for what is neither."""
    loader = getattr(loader, "_data_loader", loader)
    options = getattr(loader, "multiprocessing_options", getattr(loader, "_multiprocessing_options", None))
    return None if options is None else int(options.num_workers)


def in_this_process(loader: Any) -> Any:
    """Return a copy of a DataLoader that makes its samples in this process; None for other data."""
    if (options := getattr(loader, "multiprocessing_options", None)) is None:
        return None
    here = copy.copy(loader)
    here._multiprocessing_options = dataclasses.replace(options, num_workers=0)
    vars(here).pop("_local_num_workers", None)
    if hasattr(here, "_create_dataset"):  # a version that makes it at once
        here._dataset = here._create_dataset()
    return here


def workers_begin_anew() -> str | None:
    """Say that worker processes begin anew in each epoch, if there are any."""
    begun = any(each.name.startswith("grain") for each in multiprocessing.active_children())
    return _BEGIN_ANEW if begun else None


def refuse_in_a_worker(dataset: Any) -> None:
    """Raise LoaderError in a worker process that imports the file: its own workers would wait for it."""
    if not workers(dataset) or multiprocessing.parent_process() is None:
        return
    frames = (frame for frame, _ in traceback.walk_stack(None))
    if any(each.f_code.co_name == "<module>" and each.f_globals.get("__name__") != "__main__" for each in frames):
        raise LoaderError(
            "Worker processes of Grain import the file again, and `ap.wrap` at its top would begin others there.",
            hint="Put it into a function, `def workload(): return ap.wrap(...)`.",
        )
