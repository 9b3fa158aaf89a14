"""Plays the module `pynvml` on a machine with as many GPUs as wanted, some of whose calls fail."""

import operator
from dataclasses import dataclass, field
from typing import Any


class NVMLError(Exception):
    """What every failing call raises; the real module has a subclass for each reason."""


@dataclass(frozen=True)
class Device:
    name: str = "NVIDIA A100-SXM4-40GB"
    uuid: str = "GPU-aaaa1111-0000"
    total: int = 40 * 2**30
    used: int = 3 * 2**30
    gpu: int = 75
    milliwatts: int = 250_500


@dataclass
class FakeNvml:
    """The part of `pynvml` that is used, with its names and units."""

    devices: tuple[Device, ...] = (
        Device(),
        Device(uuid="GPU-bbbb2222-0000", used=5 * 2**30, gpu=25, milliwatts=150_000),
    )
    failing: frozenset[str] = frozenset()  # functions that raise, as on a GPU that does not know them
    initialised: int = field(default=0, init=False)  # how often it was opened more than closed
    NVMLError = NVMLError

    def __getattribute__(self, name: str) -> Any:
        if name in object.__getattribute__(self, "failing"):
            raise NVMLError("Not Supported")
        if name.startswith("nvml") and name != "nvmlInit" and not self.initialised:
            raise NVMLError("Uninitialized")
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Device:
        if uuid != "MIG-cccc3333":
            raise NVMLError("Not Found")
        return Device(name="NVIDIA A100 MIG 1g.5gb", uuid=uuid, total=5 * 2**30)

    nvmlSystemGetDriverVersion = staticmethod(lambda: "570.12")
    nvmlDeviceGetUUID = staticmethod(operator.attrgetter("uuid"))
    nvmlDeviceGetName = staticmethod(operator.attrgetter("name"))
    nvmlDeviceGetPowerUsage = staticmethod(operator.attrgetter("milliwatts"))
    nvmlDeviceGetMemoryInfo = nvmlDeviceGetUtilizationRates = staticmethod(lambda device: device)
