"""`ImageFolder`: one folder for each class, as in most classification sets. Labels kept elsewhere are other modules."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Iterable

from autopipe.core.plain_code import PlainSource, quoted
from autopipe.core.sample import FieldKind, SampleSpec
from autopipe.data import places, source
from autopipe.data.paths import EXTENSIONS, PLAIN_ENDINGS, PLAIN_IMAGES_IN
from autopipe.errors import DataError, DataWarning

_PLAIN_SAMPLES = '''

def samples() -> tuple[list[str], list[int]]:
    """Return the path and the class of every image."""
    found = [(path, label) for label, name in enumerate(CLASSES) for path in images_in(FOLDER / name)]
    return [path for path, _ in found], [label for _, label in found]
'''
_LAYOUT = "One folder for each class is expected, such as `{root}/cat/1.jpg` and `{root}/dog/2.jpg`."


class ImageFolder:
    """Images in one folder for each class; y is the number of the class, in sorted order of the folders' names.

    Images count wherever they lie below their class's folder. Hidden files and folders, and files that are no images by
    their extension (jpg, jpeg, png, bmp, webp, tif, tiff), are left out; links are followed.

    Args:
        path: the folder that holds the classes' folders; or its URL, such as "s3://bucket/photos". A relative path
            starts at the folder of the script that writes it.

    Attributes:
        classes: the names of the classes; y indexes it.
        remote: the kind of URL, such as "s3"; None for files on a disk.

    Raises:
        DataError: the folder is missing or unreadable, or not laid out like this.

    Example:
        >>> data = ap.ImageFolder("photos/")        # doctest: +SKIP
        >>> encoded, label = data.read(0)           # doctest: +SKIP
    """

    x_kind = FieldKind.ENCODED
    y_kind = FieldKind.LABEL

    def __init__(self, path: str | os.PathLike[str]) -> None:
        root = places.root_of(path)
        loose, folders = places.scan(root)
        if not folders:
            _refuse_flat(root, len(loose))
        entries = dict(zip(folders, places.walk(root, folders), strict=True))
        _check_counts(root, {folder: len(found) for folder, found in entries.items()})
        if loose:
            warnings.warn(
                f"{len(loose)} images lie in `{os.fsdecode(root)}` itself and are left out: they belong to no class.",
                DataWarning,
                stacklevel=2,
            )
        self.classes = tuple(os.fsdecode(folder) for folder in folders)
        self._paths = places.listed(root, (entry for found in entries.values() for entry in found))
        self.remote = places.kind(self._paths)
        number = {folder: label for label, folder in enumerate(folders)}
        self._labels = tuple(number[directory.split(b"/", 1)[0]] for directory in self._paths.directories)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return f"ImageFolder({os.fsdecode(self._paths.root)!r}: {len(self)} images, {len(self.classes)} classes)"

    def read(self, index: int) -> tuple[bytes, int]:
        """Return the image's file as bytes, and its class's number."""
        return self._paths.read(index), self._labels[self._paths.directory_number(index)]

    def name(self, index: int) -> str:
        """Return the path of an image."""
        return self._paths.text(index)

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the paths of some images, or of all."""
        return self._paths.files(indices)

    def mean_bytes(self) -> float:
        """Return the mean size of an image's file."""
        return self._paths.mean_bytes()

    def digest(self) -> str:
        """Describe the files (number, names, sizes, times) without reading them."""
        return self._paths.digest()

    def plain_numpy(self, spec: SampleSpec) -> PlainSource:
        """Return how plain NumPy code gets at the images."""
        return self._plain(tensorflow=False)

    def plain_tensorflow(self, spec: SampleSpec) -> PlainSource:
        """Return how plain TensorFlow code gets at the images."""
        return self._plain(tensorflow=True)

    def _plain(self, *, tensorflow: bool) -> PlainSource:
        source.require_local(self)
        classes = textwrap.fill(
            ", ".join(map(quoted, self.classes)), 110, break_long_words=False, break_on_hyphens=False
        )
        return source.plain_from_files(
            ("x",),
            parts=("x", "y"),
            tensorflow=tensorflow,
            constants=[
                f"FOLDER = Path({quoted(os.fsdecode(self._paths.root))})  # one folder for each class",
                f"CLASSES = (\n{textwrap.indent(classes, '    ')},\n)",
                PLAIN_ENDINGS,
            ],
            functions=PLAIN_IMAGES_IN + _PLAIN_SAMPLES,
        )


def _refuse_flat(root: bytes, images: int) -> None:
    shown = os.fsdecode(root)
    layout = _LAYOUT.format(root=os.path.basename(shown.rstrip("/")))  # noqa: PTH119
    if images:
        raise DataError(
            f"`ImageFolder` needs a folder for each class, but the {images} images lie in `{shown}` itself.",
            hint=f"{layout} Use ap.Table for labels in a CSV file, ap.ImagePairs for masks.",
        )
    raise DataError(f"There are no images in `{shown}`: it holds no folder and no image.", hint=layout)


def _check_counts(root: bytes, counts: dict[bytes, int]) -> None:
    shown = os.fsdecode(root)
    if not any(counts.values()):
        raise DataError(
            f"There are no images below `{shown}`, in {len(counts)} folders.",
            hint=f"Images are files that end in {', '.join(EXTENSIONS)}.",
        )
    empty = [folder for folder, count in counts.items() if count == 0]
    if empty:
        raise DataError(
            f"Every folder in `{shown}` is a class and must hold an image, but {_listed(empty)} hold none.",
            hint=f"Remove them, or add images that end in {', '.join(EXTENSIONS)}.",
        )
    single = [folder for folder, count in counts.items() if count == 1]
    if single:
        warnings.warn(
            f"Only one image is in {_listed(single)} of `{shown}`: a class of one cannot be split for validation.",
            DataWarning,
            stacklevel=3,
        )


def _listed(folders: list[bytes], limit: int = 3) -> str:
    names = ", ".join(f"`{os.fsdecode(folder)}`" for folder in folders[:limit])
    return names if len(folders) <= limit else f"{names} and {len(folders) - limit} more"
