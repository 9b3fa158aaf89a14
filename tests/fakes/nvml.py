"""Plays the module `pynvml` on a machine with as many GPUs as wanted, some of whose calls fail."""

from __future__ import annotations

from dataclasses import dataclass, field


class NVMLError(Exception):
    """What every failing call raises; the real module has a subclass for each reason."""


@dataclass(frozen=True)
class Device:
    """A GPU, and the handle to it."""

    name: str = "NVIDIA A100-SXM4-40GB"
    uuid: str = "GPU-aaaa1111-0000"
    total: int = 40 * 2**30
    used: int = 3 * 2**30
    gpu: int = 75
    milliwatts: int = 250_500


TWO = (Device(), Device(uuid="GPU-bbbb2222-0000", used=5 * 2**30, gpu=25, milliwatts=150_000))


@dataclass
class FakeNvml:
    """The part of `pynvml` that is used, with its names and units.

    Attributes:
        devices: the GPUs.
        failing: names of functions that raise, as on a GPU that does not know them or without a driver.
        initialised: how often it was opened more than closed.
    """

    devices: tuple[Device, ...] = TWO
    failing: frozenset[str] = frozenset()
    initialised: int = field(default=0, init=False)

    NVMLError = NVMLError

    def nvmlInit(self) -> None:
        self._check("nvmlInit")
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self._check("nvmlShutdown")
        self.initialised -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._check("nvmlSystemGetDriverVersion")
        return "570.12"

    def nvmlDeviceGetCount(self) -> int:
        self._check("nvmlDeviceGetCount")
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        self._check("nvmlDeviceGetHandleByIndex")
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Device:
        self._check("nvmlDeviceGetHandleByUUID")
        if uuid != "MIG-cccc3333":
            raise NVMLError("Not Found")
        return Device(name="NVIDIA A100 MIG 1g.5gb", uuid=uuid, total=5 * 2**30)

    def nvmlDeviceGetUUID(self, device: Device) -> str:
        self._check("nvmlDeviceGetUUID")
        return device.uuid

    def nvmlDeviceGetName(self, device: Device) -> str:
        self._check("nvmlDeviceGetName")
        return device.name

    def nvmlDeviceGetMemoryInfo(self, device: Device) -> Device:
        self._check("nvmlDeviceGetMemoryInfo")
        return device

    def nvmlDeviceGetUtilizationRates(self, device: Device) -> Device:
        self._check("nvmlDeviceGetUtilizationRates")
        return device

    def nvmlDeviceGetPowerUsage(self, device: Device) -> int:
        self._check("nvmlDeviceGetPowerUsage")
        return device.milliwatts

    def _check(self, function: str) -> None:
        if function in self.failing:
            raise NVMLError("Not Supported")
        if not self.initialised and function != "nvmlInit":
            raise NVMLError("Uninitialized")
