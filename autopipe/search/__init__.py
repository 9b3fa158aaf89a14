"""The search: which configurations are tried, when it stops, and which one wins. The only room that imports Optuna.

`searching` runs one search on this machine. `study` is its order: the model alone, the `race`, baselines, the
confirmation run. `session` holds its state and runs a trial, `confirmation` compares, `space` says what may be tried,
`record` writes the Optuna study, `result` is the outcome as one value.

Nothing here imports a training framework, prints, or writes an artifact: `api` searches, and keeps the result.
"""

import sys
import warnings

if "ipykernel" in sys.modules:
    with warnings.catch_warnings():  # tqdm, which Optuna imports, asks a notebook for widgets that nothing here shows
        warnings.filterwarnings("ignore", "IProgress not found")
        import optuna as optuna
