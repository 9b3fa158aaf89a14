"""Whether a dataset of one's own gives a sample twice in an epoch, as forked workers do that draw the same numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autopipe import assembly
from autopipe.core.config import PipelineConfig
from autopipe.core.report import Report
from autopipe.core.verification import Agreement, Verification
from autopipe.core.workload import Workload
from autopipe.errors import AutopipeError


def repeats(workload: Workload, configs: Sequence[PipelineConfig], *, samples: int, report: Report) -> Verification:
    """Look at the first `samples` samples of an epoch with each configuration, and count those that came before.

    Samples are the same where all bytes of x and y are. What the data hold twice is counted, too.
    """
    agreements = []
    for config in configs:
        as_data = config.model_dump(mode="json")
        try:
            with assembly.build_loader(workload, config) as loader:
                seen = list(_digests(loader.epoch(0), samples))
        except AutopipeError as error:
            agreements.append(Agreement(config=as_data, digest="", samples=0, message=str(error)))
        else:
            whole = hashlib.blake2b(b"".join(seen), digest_size=8).hexdigest()
            repeated = len(seen) - len(set(seen))
            agreements.append(Agreement(config=as_data, digest=whole, samples=len(seen), repeated=repeated))
        report.progress(len(agreements), 0.0)
    return Verification(agreements=tuple(agreements), compared=False)


def _digests(batches: Iterable[Any], samples: int) -> Iterable[bytes]:
    for x, y in batches:
        for row in range(len(x)):
            if samples <= 0:
                return
            samples -= 1
            found = hashlib.blake2b(np.ascontiguousarray(x[row]).tobytes(), digest_size=16)
            found.update(b"" if y is None else np.ascontiguousarray(y[row]).tobytes())
            yield found.digest()
