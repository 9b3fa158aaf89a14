"""The Python entry points: build, tune, load, and what the commands call.

Nothing is imported here, so that loading an artefact for a training imports no search, nor Optuna.
"""
