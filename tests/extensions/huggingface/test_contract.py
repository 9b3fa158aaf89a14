"""The contract of sources, on columns of Hugging Face datasets and of Parquet files."""

from __future__ import annotations

from pathlib import Path

from autopipe.extensions.huggingface.source import HuggingFace, Parquet
from autopipe.workload.sample import Source
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import SEVERAL, Case, columns_of_several, image, of_several, written

del test_every_source_of_the_core_is_here  # noqa: F821


def hugging_face(root: Path, count: int) -> Source:
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    values = {
        "image": [{"bytes": image(n), "path": None} for n in range(count)],
        "label": [n % 3 for n in range(count)],
    }
    datasets.Dataset.from_dict(values, features=features).save_to_disk(root / "set")
    return HuggingFace(root / "set")


def image_folder_of_hugging_face(root: Path, count: int) -> Source:
    import datasets

    paths = [str(written(root / f"{number:06}.jpg", image(number))) for number in range(count)]
    made = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    made.save_to_disk(root / "set")
    return HuggingFace(root / "set", label=None)


def parquet(root: Path, count: int) -> Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    root.mkdir(parents=True, exist_ok=True)
    columns = {"image": [image(n) for n in range(count)], "label": [7 * n for n in range(count)]}
    pq.write_table(pa.table(columns), root / "set.parquet", row_group_size=4)
    return Parquet(root / "*.parquet")


def hugging_face_of_several(root: Path, count: int) -> Source:
    import datasets

    datasets.Dataset.from_dict(columns_of_several(count)).save_to_disk(root / "set")
    return HuggingFace(root / "set", SEVERAL["x"], SEVERAL["y"], SEVERAL["sample_weight"])


CASES = {
    "HuggingFace of several parts": Case(hugging_face_of_several, of_several, "set/data-00000-of-00001.arrow", None),
    "HuggingFace": Case(
        hugging_face, lambda number: (image(number), number % 3), "set/data-00000-of-00001.arrow", None
    ),
    "HuggingFace of files": Case(
        image_folder_of_hugging_face, lambda number: (image(number),), "set/data-00000-of-00001.arrow", None
    ),
    "Parquet": Case(parquet, lambda number: (image(number), 7 * number), "set.parquet", None),
}
