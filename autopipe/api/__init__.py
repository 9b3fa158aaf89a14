"""The Python entry points that measure, train and show their results: `ap.tune`, `ap.retune`, `ap.load`, `ap.report`,
`ap.make_trainer`, `ap.make_loader`.

Each combines the rooms below: `search` gives a result, `artifact` keeps it, and `reports` shows it. Nothing is imported
here, so that loading an artifact for a training imports no search, nor Optuna.
"""
