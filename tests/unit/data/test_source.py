from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.data import source
from autopipe.data.arrays import Arrays


class Own:
    """A user's source with nothing but the two methods."""

    def __len__(self) -> int:
        return 8

    def read(self, index: int) -> tuple[bytes, int]:
        return b"x" * index, index


class Described(Own):
    def digest(self) -> str:
        return "mine"

    def mean_bytes(self) -> float:
        return 3.5

    def files(self, indices: object) -> list[Path]:
        return [Path("/a/b.jpg")]


def test_a_source_with_two_methods_is_described_as_far_as_it_can_be() -> None:
    assert source.files(Own()) == []
    assert source.digest(Own()) == "type=Own count=8"
    assert source.mean_bytes(Own()) == (0 + 2 + 4 + 7) / 4 + np.asarray(0).nbytes


class Spoilt(Own):
    def read(self, index: int) -> tuple[bytes, int]:
        if index == 7:
            raise OSError("gone")
        return super().read(index)


def test_the_mean_size_is_of_the_samples_that_can_be_read() -> None:
    assert source.mean_bytes(Spoilt()) == (0 + 2 + 4) / 3 + np.asarray(0).nbytes


def test_what_a_source_says_of_itself_is_taken() -> None:
    assert source.files(Described(), [0]) == ["/a/b.jpg"]
    assert source.digest(Described()) == "mine"
    assert source.mean_bytes(Described()) == 3.5


def test_a_difference_names_the_parts() -> None:
    assert source.difference("files=3 sizes=a times=b", "files=3 sizes=c times=d") == "sizes, times"
    assert source.difference("a=1", "b=1") == "a, b"
    assert source.difference("a=1", "a=1") == ""
    assert source.difference("mine", "yours") == "mine, yours"


@pytest.mark.parametrize(
    ("digest", "left"),
    [
        ("files=3 sizes=a times=b mask_sizes=c mask_times=d", "files=3 sizes=a mask_sizes=c"),
        ("x_array=a x_time=1 y.kind_content=b y.kind_time=2 sample_weight_time=3 time=4", "x_array=a y.kind_content=b"),
        ("exposure_time=3 start_times=a timed=b", "exposure_time=3 start_times=a timed=b"),
    ],
)
def test_a_digest_without_times_lacks_those_of_files_alone(digest: str, left: str) -> None:
    assert source.undated(digest) == left


def test_the_time_of_a_file_is_known_whatever_its_part_is_called(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    data = Arrays({"left eye": tmp_path / "x.npy", "exposure_time": np.ones(4)}, np.zeros(4, np.int64))
    kept = source.undated(data.digest()).split()
    parts = ("x.left_eye", "x.exposure_time", "y")
    assert {each.partition("=")[0] for each in kept} == {
        f"{part}_{what}" for part in parts for what in ("array", "content")
    }


class Shifted(Arrays):
    """A user's own reading of what has a batch half."""

    def read(self, index: int) -> Any:
        sample: Any = super().read(index)
        return sample[0], sample[1] + 1


class Around:
    """A user's source that hands on whatever it does not do itself."""

    def __init__(self, inner: Arrays) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def read(self, index: int) -> Any:
        return self._inner.read(len(self) - 1 - index)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_a_batch_half_counts_only_beside_the_read_that_it_speaks_of() -> None:
    arrays = np.zeros((4, 2, 2, 3), np.uint8), np.arange(4)
    assert source.batch_half(Arrays(*arrays)) is not None
    assert source.batch_half(Shifted(*arrays)) is None
    assert source.batch_half(Around(Arrays(*arrays))) is None
    assert source.batch_half(Own()) is None
