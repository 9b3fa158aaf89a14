"""The installed OpenCV distribution, found without importing cv2; and OpenCV's own threads.

Four distributions on PyPI bring one and the same module. With two of them, the one installed last has overwritten files
of the other, and removing either leaves a broken one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata

DISTRIBUTIONS = (
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)


def installed() -> dict[str, str]:
    """Return the installed OpenCV distributions with their versions; normally one."""
    return {name: version for name in DISTRIBUTIONS if (version := distribution_version(name)) is not None}


def warning(found: Mapping[str, str]) -> str | None:
    """Return a warning about the result of `installed`, with advice; None if all is well."""
    if not found:
        return "No OpenCV distribution is installed. Run: pip install opencv-python-headless"
    if len(found) == 1:
        return None
    names = " and ".join(f"{name} {version}" for name, version in found.items())
    keep = next((name for name in found if name.endswith("-headless")), next(iter(found)))
    return (
        f"{names} are installed together, but bring the same module `cv2`. "
        f"Run: pip uninstall -y {' '.join(found)} && pip install {keep}"
    )


def one_thread() -> None:
    """Have OpenCV work in the calling thread: loaders share whole samples out, and its own pool would compete."""
    import cv2

    cv2.setNumThreads(0)


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution from its metadata, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
