"""Which files are loaded as the native library: the one that was built from this version's C files, and no other."""

from __future__ import annotations

import _ctypes
import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autopipe import native
from tests.fakes.facts import known

BUILT = Path(native.__file__).with_name("_native.so")
SOURCES = Path(__file__).parents[3] / "native"

pytestmark = pytest.mark.skipif(not BUILT.exists(), reason="the native library was not built")


OTHER = "was not built from the C files of this version"


def _copy(folder: Path) -> Path:
    """Copy the module, its library and the C files, as they lie in a checkout."""
    (folder / "autopipe").mkdir()
    shutil.copytree(SOURCES, folder / "native")
    for file in (Path(native.__file__), BUILT):
        shutil.copy(file, folder / "autopipe")
    return folder / "autopipe" / BUILT.name


def _loaded(library: Path) -> Any:
    """Return the copy of the module that lies beside a library."""
    spec = known(importlib.util.spec_from_file_location("copied_native", library.with_name("native.py")))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    known(spec.loader).exec_module(module)
    return module


def test_the_library_of_this_version_is_loaded_and_doctor_names_it_its_instructions_and_its_decoder(
    tmp_path: Path,
) -> None:
    copied = _loaded(_copy(tmp_path))
    assert copied.why_not() is None
    name, simd, jpeg = copied.facts().split(", ")
    assert name == f"{BUILT.name} {native.digest()}"
    assert simd in {"avx2", "ssse3", "scalar"}
    assert jpeg.startswith("libjpeg-turbo ")


def _old(library: Path) -> None:
    with (library.parents[1] / "native" / "fill.c").open("a") as file:
        file.write("/* a later version */\n")


def _old_where_installed(library: Path) -> None:
    shutil.rmtree(library.parents[1] / "native")
    library.with_suffix(".digest").write_text("0123456789abcdef")


def _of_another_machine(library: Path) -> None:
    data = bytearray(library.read_bytes())
    data[18:20] = (183 if data[18] != 183 else 62).to_bytes(2, "little")  # ELF's e_machine: aarch64 or x86-64
    library.write_bytes(data)


def _folder(library: Path) -> None:
    library.unlink()
    library.mkdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_old, OTHER),
        (_old_where_installed, OTHER),
        (lambda library: library.write_bytes(Path(_ctypes.__file__).read_bytes()), OTHER),
        (lambda library: library.write_bytes(library.read_bytes()[:5000]), OTHER),
        (lambda library: library.write_bytes(b""), OTHER),
        (_of_another_machine, "cannot be loaded"),
        (_folder, "cannot be loaded"),
        (Path.unlink, "does not exist"),
    ],
)
def test_no_other_file_is_loaded(spoil: Callable[[Path], Any], reason: str, tmp_path: Path) -> None:
    library = _copy(tmp_path)
    spoil(library)
    copied = _loaded(library)
    assert reason in str(copied.why_not())
    assert copied.facts() == f"none: {copied.why_not()}"
    assert str(library) not in Path("/proc/self/maps").read_text()


def test_the_reference_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOPIPE_NATIVE", "0")
    copied = _loaded(_copy(tmp_path))
    assert copied.facts() == "none: AUTOPIPE_NATIVE=0 is set"
