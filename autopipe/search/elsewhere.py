"""What other studies in a storage found for the same workload: on other machines that share it, or here before."""

from __future__ import annotations

import optuna

from autopipe.core.config import PipelineConfig
from autopipe.search.record import Record, Row
from autopipe.search.storage import STORAGE_ERRORS, open_storage, settle, unusable


def _is_ours(row: Row) -> bool:
    return not row.config.loader.is_foreign


def best_elsewhere(storage_url: str | None, workload: str) -> list[PipelineConfig]:
    """Return the best configuration of every study of a workload, the latest study's first.

    Args:
        storage_url: an Optuna storage; None, one in memory, holds nothing.
        workload: the digest that the studies were opened with.

    Raises:
        TrialError: the storage cannot be used.
    """
    if storage_url is None:
        return []
    storage = open_storage(storage_url)
    best: dict[str, PipelineConfig] = {}
    try:
        for name in reversed(optuna.get_all_study_names(storage)):
            study = optuna.load_study(study_name=name, storage=storage)
            if study.user_attrs.get("digests", {}).get("workload") != workload:
                continue
            rows = [row for row in Record(study).rows() if row.value is not None and row.feasible and _is_ours(row)]
            if rows:
                row = max(rows, key=lambda each: each.value or 0.0)
                best.setdefault(row.key, row.config)
    except STORAGE_ERRORS as error:
        raise unusable(storage_url, error) from error
    settle(storage)
    return list(best.values())
