"""Puts a note into an Optuna study, where optuna-dashboard shows it beside its own pictures.

The dashboard is an extra: without it, nothing is written, and it opens the study all the same.
"""

from __future__ import annotations

import importlib.util

import optuna

from autopipe.search.mirror import Mirror


def show(study: optuna.Study, note: str) -> None:
    """Write a note in Markdown, in place of a former one, if the dashboard is installed."""
    if importlib.util.find_spec("optuna_dashboard") is None:
        return
    import optuna_dashboard

    optuna_dashboard.save_note(study, note)
    kept = study._storage
    if isinstance(kept, Mirror):
        kept.settle()
