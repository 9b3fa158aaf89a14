"""Puts pictures and a note into an Optuna study, where optuna-dashboard shows them beside its own; by its functions.

What they show is `autopipe.reports.plots`'s. The dashboard is an extra: without it, nothing is written.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna

from autopipe.search.mirror import Mirror


def is_installed() -> bool:
    """Whether the dashboard is there; it is not imported for that."""
    return importlib.util.find_spec("optuna_dashboard") is not None


def show(study: optuna.Study, figures: Mapping[str, Mapping[str, Any]], note: str) -> None:
    """Write figures, as Plotly's JSON by their names, and a note in Markdown, in place of former ones."""
    import optuna_dashboard

    for name, figure in figures.items():
        optuna_dashboard.save_plotly_graph_object(study, _Figure(figure), graph_object_id=f"autopipe-{name}")
    optuna_dashboard.save_note(study, note)
    kept = study._storage
    if isinstance(kept, Mirror):
        kept.settle()


@dataclass(frozen=True, slots=True)
class _Figure:
    """As much of a Plotly figure as the dashboard asks for, without Plotly."""

    figure: Mapping[str, Any]

    def to_json(self) -> str:
        return json.dumps(self.figure, allow_nan=False)
