"""How much room all samples of a workload would take in each storage form, and after how many ops they can be kept."""

from __future__ import annotations

from autopipe.core.config import STORAGES
from autopipe.core.description import CutSize
from autopipe.core.plan import Plan
from autopipe.core.workload import Workload
from autopipe.storage.conversion import Conversion
from autopipe.storage.convert import estimate_bytes


def sizes(workload: Workload, plan: Plan) -> tuple[CutSize, ...]:
    """Return the size of the whole set for each storage form that is written, and each cut that it can hold.

    Raises:
        DataError: samples cannot be read.
    """
    return tuple(
        CutSize(storage=name, cut=cut, bytes=int(estimate_bytes(Conversion.of(workload, plan, cut), STORAGES[name])))
        for name in STORAGES
        if STORAGES[name].converts
        for cut in STORAGES[name].cuts(plan)
    )
