"""Where samples come from, as lines of code: constants that name the folders, and a function that lists the samples."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Final

from autopipe.core.sample import Source
from autopipe.data import source as data_source
from autopipe.data.image_folder import ImageFolder
from autopipe.data.image_pairs import ImagePairs
from autopipe.data.paths import EXTENSIONS

_ENDINGS: Final = "ENDINGS = (" + ", ".join(f'".{ending}"' for ending in EXTENSIONS) + ")"

_IMAGES_IN: Final = '''
def images_in(folder: Path) -> list[str]:
    """Return the images below a folder."""
    found = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in ENDINGS]
    return [str(path) for path in found if not any(part[0] == "." for part in path.relative_to(folder).parts)]
'''

_BY_CLASS: Final = '''
def samples() -> tuple[list[str], list[int]]:
    """Return the path and the class of every image."""
    found = [(path, label) for label, name in enumerate(CLASSES) for path in images_in(FOLDER / name)]
    return [path for path, _ in found], [label for _, label in found]
'''

_IN_PAIRS: Final = '''
def samples() -> tuple[list[str], list[str]]:
    """Return the paths of every image and of its mask; sorted by name, they go together."""
    return images_in(IMAGES), images_in(MASKS)
'''


def reason_against(source: Source) -> str | None:
    """Return why samples cannot be listed in plain code, or None if they can."""
    if (kind := data_source.remote(source)) is not None:
        return f"its samples are behind a URL ({kind}://); those on a disk can"
    if isinstance(source, ImagePairs):
        images, masks = _halves(source)
        in_order = [mask for _, mask in sorted(zip(map(Path, images), map(Path, masks), strict=True))]
        return None if in_order == sorted(map(Path, masks)) else "masks are not in the order of their images' names"
    if isinstance(source, ImageFolder):
        return None
    return f"`{type(source).__name__}` has no counterpart of a few lines; ImageFolder and ImagePairs have"


def lines(source: Source) -> tuple[str, str]:
    """Return the constants and the functions that list the samples, for a source that can be."""
    if isinstance(source, ImagePairs):
        images, masks = map(os.path.commonpath, _halves(source))
        constants = f"IMAGES = Path({_quoted(images)})\nMASKS = Path({_quoted(masks)})\n{_ENDINGS}"
        return constants, f"{_IMAGES_IN}\n{_IN_PAIRS}"
    assert isinstance(source, ImageFolder)  # `reason_against` has refused everything else
    classes = textwrap.fill(
        ", ".join(map(_quoted, source.classes)), 110, break_long_words=False, break_on_hyphens=False
    )
    constants = (
        f"FOLDER = Path({_quoted(_root(source))})  # one folder for each class\n"
        f"CLASSES = (\n{textwrap.indent(classes, '    ')},\n)\n{_ENDINGS}"
    )
    return constants, f"{_IMAGES_IN}\n{_BY_CLASS}"


def _halves(source: ImagePairs) -> tuple[list[str], list[str]]:
    files = source.files()
    return files[: len(source)], files[len(source) :]


def _root(source: ImageFolder) -> str:
    first = Path(source.files([0])[0])
    return str(next(parent for parent in first.parents if all((parent / name).is_dir() for name in source.classes)))


def _quoted(text: str) -> str:
    """Return a literal in double quotes, unless the text itself has some, as formatters write it."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text else literal
