"""`ImagePairs`: images and masks in two folders, matched by name. What a mask's colours mean is an op's business."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from autopipe.errors import DataError, PlainCodeError
from autopipe.workload.data import places, source
from autopipe.workload.data.paths import EXTENSIONS, PLAIN_ENDINGS, PLAIN_IMAGES_IN, Entry
from autopipe.workload.data.places import Found
from autopipe.workload.plain_code import PlainSource, quoted
from autopipe.workload.sample import FieldKind, SampleSpec

_PLAIN_SAMPLES = '''

def samples() -> tuple[list[str], list[str]]:
    """Return the paths of every image and of its mask; sorted by name, they go together."""
    return images_in(IMAGES), images_in(MASKS)
'''


class ImagePairs:
    """Images with a mask each: the files of two folders whose path is the same, apart from the extension.

    Args:
        images: the folder of images, or its URL; folders below it count too.
        masks: the folder of masks, laid out in the same way.
        mask_suffix: what a mask's name has more than its image's, such as "_L" where `0001.png` goes with `0001_L.png`.

    Attributes:
        remote: the kind of URL, such as "s3", if one of both is behind one; else None.

    Raises:
        DataError: a folder is missing, unreadable or empty, or an image or a mask has no partner.

    Example:
        >>> data = ap.ImagePairs("camvid/images", "camvid/masks")   # doctest: +SKIP
        >>> encoded_image, encoded_mask = data.read(0)              # doctest: +SKIP
    """

    x_kind = FieldKind.ENCODED
    y_kind = FieldKind.ENCODED

    def __init__(self, images: str | os.PathLike[str], masks: str | os.PathLike[str], *, mask_suffix: str = "") -> None:
        roots = places.root_of(images), places.root_of(masks)
        if os.path.abspath(roots[0]) == os.path.abspath(roots[1]):  # noqa: PTH100  links are not resolved
            raise DataError(f"`images` and `masks` must be two folders, but both are `{os.fspath(images)}`.")
        found = _by_stem(roots[0], b"")
        partners = _by_stem(roots[1], os.fsencode(mask_suffix))
        if found.keys() != partners.keys():
            raise _unmatched(found, partners, os.fspath(images), os.fspath(masks))
        stems = sorted(found)
        self._images = places.listed(roots[0], (found[stem] for stem in stems))
        self._masks = places.listed(roots[1], (partners[stem] for stem in stems))
        self.remote = places.kind(self._images) or places.kind(self._masks)

    def __len__(self) -> int:
        return len(self._images)

    def __repr__(self) -> str:
        return f"ImagePairs({os.fsdecode(self._images.root)!r}, {os.fsdecode(self._masks.root)!r}: {len(self)} pairs)"

    def read(self, index: int) -> tuple[bytes, bytes]:
        """Return the image's and the mask's file as bytes."""
        return self._images.read(index), self._masks.read(index)

    def name(self, index: int) -> str:
        """Return the paths of an image and its mask."""
        return f"{self._images.text(index)} with {self._masks.text(index)}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the paths of some images and their masks, or of all."""
        chosen = None if indices is None else list(indices)
        return self._images.files(chosen) + self._masks.files(chosen)

    def mean_bytes(self) -> float:
        """Return the mean size of an image's and its mask's file together."""
        return self._images.mean_bytes() + self._masks.mean_bytes()

    def digest(self) -> str:
        """Describe the files (number, names, sizes, times) without reading them."""
        masks = (f"mask_{part}" for part in self._masks.digest().split())
        return " ".join((self._images.digest(), *masks))

    def plain_numpy(self, spec: SampleSpec) -> PlainSource:
        """Return how plain NumPy code gets at the images and masks."""
        return self._plain(tensorflow=False)

    def plain_tensorflow(self, spec: SampleSpec) -> PlainSource:
        """Return how plain TensorFlow code gets at the images and masks."""
        return self._plain(tensorflow=True)

    def _plain(self, *, tensorflow: bool) -> PlainSource:
        source.require_local(self)
        pairs = sorted(zip(map(Path, self._images.files()), map(Path, self._masks.files()), strict=True))
        if [mask for _, mask in pairs] != sorted(mask for _, mask in pairs):
            raise PlainCodeError("masks are not in the order of their images' names")
        return source.plain_from_files(
            ("x", "y"),
            parts=("x", "y"),
            tensorflow=tensorflow,
            constants=[
                f"IMAGES = Path({quoted(os.fsdecode(self._images.root))})",
                f"MASKS = Path({quoted(os.fsdecode(self._masks.root))})",
                PLAIN_ENDINGS,
            ],
            functions=PLAIN_IMAGES_IN + _PLAIN_SAMPLES,
        )


def _by_stem(root: bytes, suffix: bytes) -> dict[Entry, Found]:
    """Return the files below `root` by (directory, name without extension and `suffix`)."""
    found: dict[Entry, Found] = {}
    for entry in places.walk(root, [b""])[0]:
        directory, name = entry[:2]
        stem = name[: name.rindex(b".")]
        key = (directory, stem.removesuffix(suffix) if suffix else stem)
        if key in found:
            raise DataError(
                f"Each name must occur once, but `{os.fsdecode(name)}` and `{os.fsdecode(found[key][1])}` "
                f"in `{os.fsdecode(os.path.join(root, directory))}` differ only in their ending."  # noqa: PTH118
            )
        found[key] = entry
    if not found:
        raise DataError(
            f"There are no images in `{os.fsdecode(root)}`.",
            hint=f"Images are files that end in {', '.join(EXTENSIONS)}.",
        )
    return found


def _unmatched(found: dict[Entry, Found], partners: dict[Entry, Found], images: str, masks: str) -> DataError:
    lonely_images = [found[stem] for stem in sorted(found.keys() - partners.keys())]
    lonely_masks = [partners[stem] for stem in sorted(partners.keys() - found.keys())]
    parts = [
        f"{len(lonely)} files of `{folder}` have no partner: {_listed(lonely)}"
        for lonely, folder in ((lonely_images, images), (lonely_masks, masks))
        if lonely
    ]
    suffix = _common_suffix(found, lonely_masks) if lonely_images else ""
    hint = f'Pass mask_suffix="{suffix}".' if suffix else "Remove those files, or add their partners."
    return DataError(f"Each image must have a mask of the same name. {'. '.join(parts)}.", hint=hint)


def _common_suffix(found: dict[Entry, Found], masks: list[Found]) -> str:
    """Return what the first masks' names have after an image's name, if it is the same for all of them."""
    suffixes = set()
    for directory, name in (mask[:2] for mask in masks[:5]):
        stem = name[: name.rindex(b".")]
        lengths = [n for n in range(len(stem) - 1, 0, -1) if (directory, stem[:n]) in found]
        suffixes.add(stem[lengths[0] :] if lengths else b"")
    return os.fsdecode(suffixes.pop()) if len(suffixes) == 1 else ""


def _listed(entries: list[Found], limit: int = 5) -> str:
    names = ", ".join(os.fsdecode(os.path.join(*entry[:2])) for entry in entries[:limit])  # noqa: PTH118
    return names if len(entries) <= limit else f"{names} and {len(entries) - limit} more"
