"""The Python entry points that measure and show what they do: `ap.tune`, `ap.retune`, `ap.load`, `ap.report`.

Each puts the rooms below together: it asks `search` for a result, has `artifact` keep it, and shows it by `reports`.
Nothing is imported here, so that loading an artefact for a training imports no search, nor Optuna.
"""
