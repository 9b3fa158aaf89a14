"""Writes the verdict into the Optuna study as a note, which optuna-dashboard shows beside its own pictures.

If the extra `dashboard` is not installed, no note is written. optuna-dashboard opens the study all the same.
"""

from __future__ import annotations

import importlib.util

import optuna


def write(study: optuna.Study, note: str) -> None:
    """Write a note in Markdown in place of an earlier one."""
    if importlib.util.find_spec("optuna_dashboard") is None:
        return
    import optuna_dashboard

    optuna_dashboard.save_note(study, note)
