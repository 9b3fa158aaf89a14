"""The search: which configuration is fastest, found with few trials and proved. Nothing here runs a trial itself."""

import sys
import warnings

if "ipykernel" in sys.modules:
    with warnings.catch_warnings():  # tqdm, which Optuna imports, asks a notebook for widgets that nothing here shows
        warnings.filterwarnings("ignore", "IProgress not found")
        import optuna as optuna
