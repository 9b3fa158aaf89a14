from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import replace
from importlib import metadata

import numpy as np
import pydantic
import pytest

from autopipe.hardware import machine
from autopipe.hardware.cpu import Cpu
from autopipe.hardware.gpu import Gpu
from autopipe.hardware.machine import Machine
from autopipe.hardware.memory import Memory

GIB = 2**30
H200 = Gpu(name="NVIDIA H200", memory_bytes=141 * GIB, driver="570.12")
THIS = Machine(
    cpu=Cpu(model="AMD EPYC 7B13", cores=2, logical_cores=2),
    memory=Memory(usable_bytes=int(23.4 * GIB), available_bytes=20 * GIB),
    gpus=(),
    os="Debian GNU/Linux 12 (bookworm)",
    kernel="Linux 6.1.0",
    python="3.11.7",
    versions={"autopipe": "0.1", "tensorflow": "2.21", "keras": "3.15", "jax": None, "opencv": "5.0", "numpy": "2.4"},
)


def test_a_machine_in_one_line() -> None:
    assert THIS.one_line() == "2 cores (AMD EPYC 7B13), 23.4 GiB, no GPU"


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ((H200,), "NVIDIA H200 141 GiB"),
        ((H200, H200), "2 x NVIDIA H200 141 GiB"),
        ((H200, replace(H200, name="GB10", memory_bytes=None)), "NVIDIA H200 141 GiB, GB10"),
    ],
)
def test_equal_gpus_are_counted(gpus: tuple[Gpu, ...], text: str) -> None:
    assert replace(THIS, gpus=gpus).one_line().endswith(f" GiB, {text}")


def test_limited_cores_are_shown_beside_those_of_the_machine() -> None:
    limited = replace(THIS, cpu=Cpu(model="Xeon", cores=1, logical_cores=64))
    assert limited.one_line() == "1 of 64 cores (Xeon), 23.4 GiB, no GPU"


def test_a_machine_is_the_same_with_less_free_memory() -> None:
    assert replace(THIS, memory=Memory(usable_bytes=THIS.memory.usable_bytes, available_bytes=0)) == THIS


def test_a_machine_survives_json() -> None:
    adapter = pydantic.TypeAdapter(Machine)
    there = replace(THIS, gpus=(H200, H200))
    assert adapter.validate_json(adapter.dump_json(there)) == there


def test_this_machine_is_found() -> None:
    found = machine.detect()
    assert found.python == platform.python_version()
    assert found.versions["numpy"] == np.__version__
    assert found.versions["kornia-rs"] == metadata.version("kornia-rs")
    assert found.cpu.cores >= 1


def test_looking_imports_no_framework() -> None:
    code = (
        "import sys; from autopipe.hardware import machine; machine.detect()\n"
        "print({'tensorflow', 'keras', 'jax', 'torch', 'cv2', 'optuna'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"
