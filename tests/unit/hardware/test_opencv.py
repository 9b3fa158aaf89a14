from __future__ import annotations

from pathlib import Path

import pytest

from autopipe.hardware import opencv


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which packages are looked for."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    return tmp_path


def install(site: Path, name: str, version: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_installed_distribution_is_told_with_its_version(site: Path) -> None:
    install(site, "opencv-python-headless", "4.10.0.84")
    assert opencv.installed() == {"opencv-python-headless": "4.10.0.84"}


def test_one_distribution_is_fine() -> None:
    assert opencv.warning({"opencv-contrib-python": "5.0"}) is None


def test_two_at_once_are_warned_of_and_headless_is_kept(site: Path) -> None:
    install(site, "opencv-python", "5.0")
    install(site, "opencv-python-headless", "4.10")
    assert opencv.warning(opencv.installed()) == (
        "opencv-python 5.0 and opencv-python-headless 4.10 are installed together, but bring the same module `cv2`. "
        "Run: pip uninstall -y opencv-python opencv-python-headless && pip install opencv-python-headless"
    )


def test_none_is_warned_of(site: Path) -> None:
    assert opencv.warning(opencv.installed()) == (
        "No OpenCV distribution is installed. Run: pip install opencv-python-headless"
    )


def test_opencv_works_in_the_thread_that_calls_it() -> None:
    import cv2

    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(2)
        opencv.one_thread()
        assert cv2.getNumThreads() == 1
    finally:
        cv2.setNumThreads(before)
