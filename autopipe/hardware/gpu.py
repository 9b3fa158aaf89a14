"""NVIDIA GPUs through NVML, Keras's backend in this process, and virtual CPU devices.

Without a driver, a library or a GPU the list is empty; a figure that a GPU does not give is None. Nothing here starts
CUDA, so it takes no GPU memory and may run beside a training.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from autopipe.errors import ConfigError, MissingExtraError, near


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU that CUDA would show to this process."""

    name: str  # the product name, such as `NVIDIA H200`
    memory_bytes: int | None  # its own memory; None if it shares the host's
    driver: str | None  # the version of the NVIDIA driver


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """The use of one GPU at a moment by all processes together."""

    busy_percent: float | None  # share of the last 1/6 to 1 s (NVML's own window) in which any kernel ran
    memory_used_bytes: int | None  # memory in use; memory that a framework has reserved counts, too
    power_watts: float | None  # power drawn by the whole board; since Ampere an average over the last second


class Nvml:
    """An open NVML library, until it is closed. It lists the GPUs of CUDA_VISIBLE_DEVICES in bus
    order; CUDA's own order differs if kinds are mixed. `library` is the module `pynvml`, or a substitute.
    """

    def __init__(self, library: Any = None, environment: Mapping[str, str] = os.environ) -> None:
        self._library = library
        self._open = self._init()
        self._handles = self._visible(environment.get("CUDA_VISIBLE_DEVICES")) if self._open else []

    def gpus(self) -> tuple[Gpu, ...]:
        found = []
        for handle in self._handles:
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
            name = self._ask("nvmlDeviceGetName", handle) or "NVIDIA GPU"
            size, driver = None if memory is None else int(memory.total), self._ask("nvmlSystemGetDriverVersion")
            found.append(Gpu(name=name, memory_bytes=size, driver=driver))
        return tuple(found)

    def use(self) -> tuple[GpuUse, ...]:
        found = []
        for handle in self._handles:
            names = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage")
            rates, memory, milliwatts = (self._ask(name, handle) for name in names)
            use = GpuUse(
                busy_percent=None if rates is None else float(rates.gpu),
                memory_used_bytes=None if memory is None else int(memory.used),
                power_watts=None if milliwatts is None else milliwatts / 1000,
            )
            found.append(use)
        return tuple(found)

    def close(self) -> None:
        if self._open:
            self._ask("nvmlShutdown")
        self._open, self._handles = False, []

    def _init(self) -> bool:
        try:
            if self._library is None:
                import pynvml  # 45 ms, for a few commands only

                self._library = pynvml
            self._library.nvmlInit()
        except ImportError:
            return False
        except self._library.NVMLError:  # no driver, no library, or one that does not fit the other
            return False
        return True

    def _ask(self, function: str, *arguments: object) -> Any:
        """Call NVML; None if this GPU or driver has no answer."""
        try:
            return getattr(self._library, function)(*arguments)
        except self._library.NVMLError:
            return None

    def _visible(self, setting: str | None) -> list[Any]:
        every = [self._ask("nvmlDeviceGetHandleByIndex", i) for i in range(self._ask("nvmlDeviceGetCount") or 0)]
        if setting is None:
            return [handle for handle in every if handle is not None]
        uuids = [self._ask("nvmlDeviceGetUUID", handle) or "" for handle in every]
        chosen: list[Any] = []
        for entry in map(str.strip, setting.split(",")):
            handle = self._ask("nvmlDeviceGetHandleByUUID", entry) if entry.startswith("MIG-") else None
            if entry.isdecimal():
                named = every[int(entry) : int(entry) + 1]
            else:
                named = [each for each, uuid in zip(every, uuids, strict=True) if entry and uuid.startswith(entry)]
            if handle is None and len(named) == 1:
                (handle,) = named
            if handle is None:  # CUDA hides the first entry that names no GPU, and all behind it
                break
            chosen.append(handle)
        return chosen


def detect(library: Any = None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA would show to this process; empty without any."""
    with contextlib.closing(Nvml(library)) as nvml:
        return nvml.gpus()


# -------------------- backend: found without importing Keras


BACKENDS: Final = ("jax", "numpy", "openvino", "tensorflow", "torch")  # those that Keras has
_EXTRAS: Final = ("jax", "torch")  # backends that an extra of the same name brings


def keras_backend(environment: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules) -> str | None:
    """Return Keras's backend; None if it is not imported and nothing is set. A script may choose despite its file."""
    config = getattr(modules.get("keras"), "config", None)
    if config is not None:
        return str(config.backend())
    return environment.get("KERAS_BACKEND") or None


def require_installed(environment: Mapping[str, str] = os.environ) -> None:
    """Raise MissingExtraError if `KERAS_BACKEND` names a backend whose extra is not installed."""
    asked = environment.get("KERAS_BACKEND", "")
    if asked in _EXTRAS and importlib.util.find_spec(asked) is None:
        raise MissingExtraError.of(asked, asked)


def require_known(environment: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError if `KERAS_BACKEND` is unknown to Keras, whose own error would not name the variable."""
    asked = environment.get("KERAS_BACKEND", "")
    if asked and asked not in BACKENDS:
        raise ConfigError(
            f"The environment variable KERAS_BACKEND must be one of {', '.join(BACKENDS)}, but got {asked!r}."
            f"{near(asked.lower(), BACKENDS)}",
            hint="Set it to the backend that the workload trains on, or unset it for Keras's own choice.",
        )


# -------------------- virtual: parts of the CPU that stand for accelerators, for tests and trials
# The parent of a process asks by an environment variable, because a framework splits the CPU before it runs anything.


VARIABLE: Final = "AUTOPIPE_VIRTUAL_DEVICES"


def asked(environment: Mapping[str, str] = os.environ) -> int:
    """Return the requested number of virtual CPU devices, 0 by default; raise ConfigError for no whole number."""
    text = environment.get(VARIABLE, "").strip() or "0"
    if not text.isdecimal():
        raise ConfigError(
            f"`{VARIABLE}` must be a whole number, but got {text!r}.",
            hint=f"Unset it to train on the CPU as one device, or use {VARIABLE}=2.",
        )
    return int(text)
