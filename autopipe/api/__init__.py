"""The Python entry points that measure and show their results: `ap.tune`, `ap.retune`, `ap.load`, `ap.report`.

Each combines the rooms below: `search` gives a result, `artifact` keeps it, and `reports` shows it. Nothing is imported
here, so that loading an artefact for a training imports no search, nor Optuna.
"""
