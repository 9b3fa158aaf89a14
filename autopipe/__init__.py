"""autopipe: measures how to feed a training, and hands back the fastest way as code to import.

This module holds the public names and nothing else. Those of extensions are listed for type checkers only: Python finds
them by entry points. They are imported when first used, so that the command line, and
worker processes, start without what they do not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autopipe._version import __version__

if TYPE_CHECKING:
    from autopipe.api.inspecting import verify_files as verify_files
    from autopipe.api.loading import load as load
    from autopipe.api.reporting import report as report
    from autopipe.api.retuning import retune as retune
    from autopipe.api.tuning import tune as tune
    from autopipe.assembly import build_loader as build_loader
    from autopipe.assembly import build_trainer as build_trainer
    from autopipe.core.config import PipelineConfig as PipelineConfig
    from autopipe.core.loader import Loader as Loader
    from autopipe.core.workload import Workload as Workload
    from autopipe.data.arrays import Arrays as Arrays
    from autopipe.data.image_folder import ImageFolder as ImageFolder
    from autopipe.data.image_pairs import ImagePairs as ImagePairs
    from autopipe.data.npz import NPZ as NPZ
    from autopipe.data.table import Table as Table
    from autopipe.data.tfrecords import TFRecords as TFRecords
    from autopipe.devices.simulated import SimulatedAccelerator as SimulatedAccelerator
    from autopipe.devices.trainer import Trainer as Trainer
    from autopipe.errors import AutopipeError as AutopipeError
    from autopipe.extensions.dali.loader import Dali as Dali
    from autopipe.extensions.diagnose.run import Diagnose as Diagnose
    from autopipe.extensions.grain.loader import Grain as Grain
    from autopipe.extensions.hdf5.source import HDF5 as HDF5
    from autopipe.extensions.huggingface.source import HuggingFace as HuggingFace
    from autopipe.extensions.huggingface.source import Parquet as Parquet
    from autopipe.extensions.ray.loader import Ray as Ray
    from autopipe.extensions.tfds import TFDS as TFDS
    from autopipe.loaders.processes import Processes as Processes
    from autopipe.loaders.tfdata import TfData as TfData
    from autopipe.loaders.threads import Threads as Threads
    from autopipe.ops.colors import GaussianBlur as GaussianBlur
    from autopipe.ops.colors import RandomBrightness as RandomBrightness
    from autopipe.ops.colors import RandomContrast as RandomContrast
    from autopipe.ops.colors import RandomGrayscale as RandomGrayscale
    from autopipe.ops.colors import RandomHue as RandomHue
    from autopipe.ops.colors import RandomSaturation as RandomSaturation
    from autopipe.ops.custom import Map as Map
    from autopipe.ops.decode import Decode as Decode
    from autopipe.ops.geometry import RandomAffine as RandomAffine
    from autopipe.ops.geometry import RandomErasing as RandomErasing
    from autopipe.ops.geometry import RandomFlip as RandomFlip
    from autopipe.ops.image_data_generator import from_image_data_generator as from_image_data_generator
    from autopipe.ops.mix import CutMix as CutMix
    from autopipe.ops.mix import MixUp as MixUp
    from autopipe.ops.on_parts import On as On
    from autopipe.ops.sizes import CenterCrop as CenterCrop
    from autopipe.ops.sizes import Pad as Pad
    from autopipe.ops.sizes import RandomCrop as RandomCrop
    from autopipe.ops.sizes import RandomResizedCrop as RandomResizedCrop
    from autopipe.ops.sizes import Resize as Resize
    from autopipe.ops.sizes import ResizeKeepingAspect as ResizeKeepingAspect
    from autopipe.ops.targets import MaskToClass as MaskToClass
    from autopipe.ops.targets import OneHot as OneHot
    from autopipe.ops.values import Cast as Cast
    from autopipe.ops.values import Normalize as Normalize
    from autopipe.ops.values import Rescale as Rescale
    from autopipe.tuned.drift import DriftMonitor as DriftMonitor
    from autopipe.tuned.wrap import wrap as wrap

_HOMES = {
    "verify_files": "api.inspecting",
    "load": "api.loading",
    "report": "api.reporting",
    "retune": "api.retuning",
    "tune": "api.tuning",
    "build_loader": "assembly",
    "build_trainer": "assembly",
    "PipelineConfig": "core.config",
    "Loader": "core.loader",
    "Workload": "core.workload",
    "Arrays": "data.arrays",
    "NPZ": "data.npz",
    "ImageFolder": "data.image_folder",
    "ImagePairs": "data.image_pairs",
    "Table": "data.table",
    "TFRecords": "data.tfrecords",
    "SimulatedAccelerator": "devices.simulated",
    "Trainer": "devices.trainer",
    "AutopipeError": "errors",
    "Processes": "loaders.processes",
    "TfData": "loaders.tfdata",
    "Threads": "loaders.threads",
    "RandomBrightness": "ops.colors",
    "RandomContrast": "ops.colors",
    "GaussianBlur": "ops.colors",
    "RandomAffine": "ops.geometry",
    "RandomErasing": "ops.geometry",
    "RandomGrayscale": "ops.colors",
    "RandomHue": "ops.colors",
    "RandomResizedCrop": "ops.sizes",
    "RandomSaturation": "ops.colors",
    "ResizeKeepingAspect": "ops.sizes",
    "from_image_data_generator": "ops.image_data_generator",
    "CenterCrop": "ops.sizes",
    "RandomCrop": "ops.sizes",
    "Map": "ops.custom",
    "Decode": "ops.decode",
    "RandomFlip": "ops.geometry",
    "MaskToClass": "ops.targets",
    "CutMix": "ops.mix",
    "MixUp": "ops.mix",
    "On": "ops.on_parts",
    "OneHot": "ops.targets",
    "Pad": "ops.sizes",
    "Resize": "ops.sizes",
    "Cast": "ops.values",
    "Normalize": "ops.values",
    "Rescale": "ops.values",
    "DriftMonitor": "tuned.drift",
    "wrap": "tuned.wrap",
}

_GROUPS = ("autopipe.api", "autopipe.sources", "autopipe.loaders", "autopipe.ops")

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    value = _of_an_extension(name) if home is None else getattr(importlib.import_module(f"autopipe.{home}"), name)
    globals()[name] = value
    return value


def _of_an_extension(name: str) -> Any:
    """Return what an installed package adds under that name, by an entry point of one of these groups."""
    from autopipe.errors import ConfigError, near

    why = f"module 'autopipe' has no attribute {name!r}."
    if not name.startswith("_"):
        from autopipe.core import registry

        try:
            found = registry.named(name, *_GROUPS)
        except ConfigError as error:
            raise AttributeError(f"{why} {error.hint}") from None
        if found is not None:
            return found
        why += near(name, __dir__())
    raise AttributeError(why)


def __dir__() -> list[str]:
    from autopipe.core import registry

    return sorted({*__all__, *(entry.name for group in _GROUPS for entry in registry.declared(group))})
