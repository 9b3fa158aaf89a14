from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from autopipe.core.sample import FieldKind, Source
from autopipe.data.image_folder import ImageFolder
from autopipe.errors import BadSampleError, DataError, DataWarning


def write(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def test_samples_are_file_bytes_and_class_numbers_in_sorted_order(tmp_path: Path) -> None:
    data = ImageFolder(write(tmp_path, "dog/2.jpg", "dog/1.PNG", "cat/b.webp", "cat/a.tif"))
    assert data.classes == ("cat", "dog")
    expected = [(b"cat/a.tif", 0), (b"cat/b.webp", 0), (b"dog/1.PNG", 1), (b"dog/2.jpg", 1)]
    assert expected == [data.read(i) for i in range(len(data))]
    assert isinstance(data, Source)
    assert (data.x_kind, data.y_kind) == (FieldKind.ENCODED, FieldKind.LABEL)


def test_images_in_folders_below_a_class_belong_to_it(tmp_path: Path) -> None:
    data = ImageFolder(write(tmp_path, "cat/1.jpg", "cat/old/2.jpg", "dog/x/3.jpg", "dog/x/y/4.jpg"))
    assert [data.read(i)[1] for i in range(4)] == [0, 0, 1, 1]


def test_it_survives_pickling_and_a_change_of_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "photos/a/1.jpg", "photos/a/2.jpg")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(DataWarning, match="not beside"):
        pickled = pickle.dumps(ImageFolder("photos"))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).read(1) == (b"photos/a/2.jpg", 0)


def test_names_and_files_are_paths(tmp_path: Path) -> None:
    data = ImageFolder(write(tmp_path, "a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"))
    assert data.name(2) == str(tmp_path / "b/1.jpg")
    assert data.files([0, 3]) == [str(tmp_path / "a/1.jpg"), str(tmp_path / "b/2.jpg")]
    assert len(data.files()) == 4


def test_names_that_are_no_text_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff\xfe.jpg")).write_bytes(b"odd")
    assert ImageFolder(tmp_path).read(1) == (b"odd", 0)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere` does not exist"):
        ImageFolder(tmp_path / "nowhere")


def test_an_empty_folder_names_the_expected_layout(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no images in .*One folder for each class is expected, such as .*/cat/1\.jpg"):
        ImageFolder(tmp_path)


def test_a_flat_folder_names_the_expected_layout(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the 2 images lie in .* itself.*One folder for each class"):
        ImageFolder(write(tmp_path, "1.jpg", "2.jpg"))


def test_folders_without_images_name_the_extensions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no images below .*in 2 folders.*jpg, jpeg, png"):
        ImageFolder(write(tmp_path, "a/1.gif", "b/readme.txt"))


def test_one_folder_without_images_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"`logs` hold none.*Remove them"):
        ImageFolder(write(tmp_path, "a/1.jpg", "a/2.jpg", "logs/run.txt"))


def test_a_class_of_one_image_warns(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=r"Only one image is in `b` of"):
        data = ImageFolder(write(tmp_path, "a/1.jpg", "a/2.jpg", "b/1.jpg"))
    assert len(data) == 3


def test_images_beside_the_class_folders_warn(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=r"1 images lie in .* itself and are left out"):
        data = ImageFolder(write(tmp_path, "preview.jpg", "a/1.jpg", "a/2.jpg"))
    assert len(data) == 2


def test_a_file_that_vanished_is_a_bad_sample(tmp_path: Path) -> None:
    data = ImageFolder(write(tmp_path, "a/1.jpg", "a/2.jpg"))
    (tmp_path / "a/2.jpg").unlink()
    with pytest.raises(BadSampleError, match=r"a/2\.jpg"):
        data.read(1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg")
    (tmp_path / "a").chmod(0)
    try:
        with pytest.raises(DataError, match="Permission denied"):
            ImageFolder(tmp_path)
    finally:
        (tmp_path / "a").chmod(0o700)
