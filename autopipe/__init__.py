"""autopipe: measures how to feed a training, and hands back the fastest way as code to import.

This module holds the public names and nothing else. Those of extensions are listed for type checkers only: Python finds
them by entry points. They are imported when first used, so that the command line, and worker processes, start without
what they do not need.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

from autopipe._version import __version__

if TYPE_CHECKING:
    from autopipe.api.loading import eject as eject
    from autopipe.api.loading import load as load
    from autopipe.api.loading import report as report
    from autopipe.api.loading import show as show
    from autopipe.api.measuring import measure as measure
    from autopipe.api.samples import convert as convert
    from autopipe.api.samples import verify as verify
    from autopipe.api.training import live as live
    from autopipe.api.training import make_loader as make_loader
    from autopipe.api.training import make_trainer as make_trainer
    from autopipe.api.tuning import check as check
    from autopipe.api.tuning import retune as retune
    from autopipe.api.tuning import tune as tune
    from autopipe.artifact.artifact import KeptWarning as KeptWarning
    from autopipe.artifact.drift import DriftMonitor as DriftMonitor
    from autopipe.artifact.drift import DriftWarning as DriftWarning
    from autopipe.artifact.factory import NamelessWarning as NamelessWarning
    from autopipe.artifact.factory import ProfileWarning as ProfileWarning
    from autopipe.artifact.factory import Tuned as Tuned
    from autopipe.artifact.verifying import verify_files as verify_files
    from autopipe.errors import ArtifactError as ArtifactError
    from autopipe.errors import AutopipeError as AutopipeError
    from autopipe.errors import BadSampleError as BadSampleError
    from autopipe.errors import ConfigError as ConfigError
    from autopipe.errors import DataError as DataError
    from autopipe.errors import DataWarning as DataWarning
    from autopipe.errors import FrameworkError as FrameworkError
    from autopipe.errors import FrameworkWarning as FrameworkWarning
    from autopipe.errors import LoaderError as LoaderError
    from autopipe.errors import MissingExtraError as MissingExtraError
    from autopipe.errors import ModelError as ModelError
    from autopipe.errors import NothingMeasuredError as NothingMeasuredError
    from autopipe.errors import OpError as OpError
    from autopipe.errors import PeerLostError as PeerLostError
    from autopipe.errors import PlainCodeError as PlainCodeError
    from autopipe.errors import SearchInterruptedError as SearchInterruptedError
    from autopipe.errors import SpaceError as SpaceError
    from autopipe.errors import StorageError as StorageError
    from autopipe.errors import TrialError as TrialError
    from autopipe.errors import WorkerDiedError as WorkerDiedError
    from autopipe.errors import WorkloadError as WorkloadError
    from autopipe.extensions.dali.loader import Dali as Dali
    from autopipe.extensions.diagnose.loop import watch as watch
    from autopipe.extensions.diagnose.run import Diagnose as Diagnose
    from autopipe.extensions.diagnose.script import diagnose as diagnose
    from autopipe.extensions.hdf5.source import HDF5 as HDF5
    from autopipe.extensions.huggingface.source import HuggingFace as HuggingFace
    from autopipe.extensions.huggingface.source import Parquet as Parquet
    from autopipe.extensions.raster.windows import Windows as Windows
    from autopipe.extensions.ray.loader import Ray as Ray
    from autopipe.extensions.tfds import TFDS as TFDS
    from autopipe.pipeline.assembly import CacheWarning as CacheWarning
    from autopipe.pipeline.config import LoaderConfig as LoaderConfig
    from autopipe.pipeline.config import PipelineConfig as PipelineConfig
    from autopipe.pipeline.devices.simulated import SimulatedAccelerator as SimulatedAccelerator
    from autopipe.pipeline.devices.trainer import Trainer as Trainer
    from autopipe.pipeline.loader import Loader as Loader
    from autopipe.pipeline.loaders.resident import DeviceMemoryWarning as DeviceMemoryWarning
    from autopipe.pipeline.loaders.resident import Resident as Resident
    from autopipe.pipeline.loaders.tfdata import TfData as TfData
    from autopipe.pipeline.loaders.workers import Processes as Processes
    from autopipe.pipeline.loaders.workers import Threads as Threads
    from autopipe.pipeline.wrap import wrap as wrap
    from autopipe.workload.data.arrays import Arrays as Arrays
    from autopipe.workload.data.columns import NPZ as NPZ
    from autopipe.workload.data.images import ImageFolder as ImageFolder
    from autopipe.workload.data.images import ImagePairs as ImagePairs
    from autopipe.workload.data.records import TFRecords as TFRecords
    from autopipe.workload.data.table import Table as Table
    from autopipe.workload.op import Op as Op
    from autopipe.workload.ops.colors import GaussianBlur as GaussianBlur
    from autopipe.workload.ops.colors import RandomBrightness as RandomBrightness
    from autopipe.workload.ops.colors import RandomContrast as RandomContrast
    from autopipe.workload.ops.colors import RandomGrayscale as RandomGrayscale
    from autopipe.workload.ops.colors import RandomHue as RandomHue
    from autopipe.workload.ops.colors import RandomSaturation as RandomSaturation
    from autopipe.workload.ops.custom import Map as Map
    from autopipe.workload.ops.decode import Decode as Decode
    from autopipe.workload.ops.geometry import RandomAffine as RandomAffine
    from autopipe.workload.ops.geometry import RandomErasing as RandomErasing
    from autopipe.workload.ops.geometry import RandomFlip as RandomFlip
    from autopipe.workload.ops.image_data_generator import from_image_data_generator as from_image_data_generator
    from autopipe.workload.ops.mix import CutMix as CutMix
    from autopipe.workload.ops.mix import MixUp as MixUp
    from autopipe.workload.ops.on_parts import On as On
    from autopipe.workload.ops.sizes import CenterCrop as CenterCrop
    from autopipe.workload.ops.sizes import Pad as Pad
    from autopipe.workload.ops.sizes import RandomCrop as RandomCrop
    from autopipe.workload.ops.sizes import RandomResizedCrop as RandomResizedCrop
    from autopipe.workload.ops.sizes import Resize as Resize
    from autopipe.workload.ops.sizes import ResizeKeepingAspect as ResizeKeepingAspect
    from autopipe.workload.ops.values import Cast as Cast
    from autopipe.workload.ops.values import MaskToClass as MaskToClass
    from autopipe.workload.ops.values import Normalize as Normalize
    from autopipe.workload.ops.values import OneHot as OneHot
    from autopipe.workload.ops.values import Rescale as Rescale
    from autopipe.workload.order import Blocks as Blocks
    from autopipe.workload.sample import Source as Source
    from autopipe.workload.workload import Workload as Workload

_NAMES = {
    "api.loading": "eject load report show",
    "api.measuring": "measure",
    "api.samples": "convert verify",
    "api.training": "live make_loader make_trainer",
    "api.tuning": "check retune tune",
    "artifact.artifact": "KeptWarning",
    "artifact.drift": "DriftMonitor DriftWarning",
    "artifact.factory": "NamelessWarning ProfileWarning Tuned",
    "artifact.verifying": "verify_files",
    "errors": "ArtifactError AutopipeError BadSampleError ConfigError DataError DataWarning FrameworkError "
    "FrameworkWarning LoaderError MissingExtraError ModelError NothingMeasuredError OpError PeerLostError "
    "PlainCodeError SearchInterruptedError SpaceError StorageError TrialError WorkerDiedError "
    "WorkloadError",
    "pipeline.assembly": "CacheWarning",
    "pipeline.config": "LoaderConfig PipelineConfig",
    "pipeline.devices.simulated": "SimulatedAccelerator",
    "pipeline.devices.trainer": "Trainer",
    "pipeline.loader": "Loader",
    "pipeline.loaders.resident": "DeviceMemoryWarning Resident",
    "pipeline.loaders.tfdata": "TfData",
    "pipeline.loaders.workers": "Processes Threads",
    "pipeline.wrap": "wrap",
    "workload.data.arrays": "Arrays",
    "workload.data.columns": "NPZ",
    "workload.data.images": "ImageFolder ImagePairs",
    "workload.data.table": "Table",
    "workload.data.records": "TFRecords",
    "workload.op": "Op",
    "workload.ops.colors": "GaussianBlur RandomBrightness RandomContrast RandomGrayscale RandomHue RandomSaturation",
    "workload.ops.custom": "Map",
    "workload.ops.decode": "Decode",
    "workload.ops.geometry": "RandomAffine RandomErasing RandomFlip",
    "workload.ops.image_data_generator": "from_image_data_generator",
    "workload.ops.mix": "CutMix MixUp",
    "workload.ops.on_parts": "On",
    "workload.ops.sizes": "CenterCrop Pad RandomCrop RandomResizedCrop Resize ResizeKeepingAspect",
    "workload.ops.values": "Cast MaskToClass Normalize OneHot Rescale",
    "workload.order": "Blocks",
    "workload.sample": "Source",
    "workload.workload": "Workload",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

_GROUPS = ("autopipe.api", "autopipe.sources", "autopipe.loaders", "autopipe.ops")

__all__ = ["__version__", *sorted(_HOMES)]


class _Package(types.ModuleType):
    """Keeps the function `measure` apart from the room of that name, which Python binds here when it is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


_RENAMED = {"build_loader": "make_loader", "build_trainer": "make_trainer"}  # as those of a tuned pipeline


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(f"`ap.{name}` is `ap.{_RENAMED[name]}` now.", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[__name__], _RENAMED[name])
    home = _HOMES.get(name)
    value = _of_an_extension(name) if home is None else getattr(importlib.import_module(f"autopipe.{home}"), name)
    globals()[name] = value
    return value


def _of_an_extension(name: str) -> Any:
    from autopipe.errors import ConfigError, near

    why = f"module 'autopipe' has no attribute {name!r}."
    if not name.startswith("_") and importlib.util.find_spec(f"autopipe.{name}") is None:
        registry = importlib.import_module("autopipe.registry")
        try:
            found = registry.named(name, *_GROUPS)
        except ConfigError as error:
            raise AttributeError(f"{why} {error.hint}") from None
        if found is not None:
            return found
        why += near(name, __dir__())
    raise AttributeError(why)


def __dir__() -> list[str]:
    from autopipe import registry

    return sorted({*__all__, *(entry.name for group in _GROUPS for entry in registry.declared(group))})
