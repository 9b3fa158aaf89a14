"""Sources of image files on a disk or behind URLs: `ImageFolder` (a folder for each class) and `ImagePairs` (masks).

Keras's validation split and the labels that a user gives are here, too. How files are found and read is in `paths` and
`remote`; what a mask's colours mean is an op's business.
"""

from __future__ import annotations

import os
import re
import textwrap
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import DataError, PlainCodeError, near, shortened, warn_of_data
from autopipe.values import count_text
from autopipe.workload.data import paths, remote, source
from autopipe.workload.data.paths import Found, PathList, Place, located
from autopipe.workload.plain_code import Library, PlainSource, quoted
from autopipe.workload.sample import NUMBERED, FieldKind, SampleSpec, is_int64


class Files:
    """The base of sources of image files: lists of them, one for each encoded part, and the values behind those."""

    _lists: tuple[PathList, ...]

    @property
    def remote(self) -> str | None:
        """The kind of URL, such as "s3", if one of the lists is behind one; None for files on a disk."""
        return next((each.remote for each in self._lists if each.remote is not None), None)

    def __len__(self) -> int:
        return len(self._lists[0])

    def _values(self, index: int) -> tuple[Any, ...]:
        return ()

    def read(self, index: int) -> Any:
        parts = (*[each.read(index) for each in self._lists], *self._values(index))
        return parts if len(parts) > 1 else parts[0]

    @property
    def spans(self) -> source.Spans | None:
        return self._spans

    def _spans(self, indices: NDArray[np.int64]) -> tuple[Any, ...]:
        chosen = indices.tolist()
        files = [native.files_at([*map(each.path, chosen)]) for each in self._lists]
        return (*files, *map(list, zip(*map(self._values, chosen), strict=True)), None)[:2]

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        chosen = None if indices is None else list(indices)
        return [path for each in self._lists for path in each.files(chosen)]

    def mean_bytes(self) -> float:
        return sum(each.mean_bytes() for each in self._lists)


# -------------------- image pairs

_PLAIN_SAMPLES = '''

def samples() -> tuple[list[str], list[str]]:
    """Return the paths of every image and of its mask; sorted by name, they go together."""
    return {images}, {masks}
'''

_PLAIN_NAMED = '''

def named(folder: Path, suffix: str) -> list[str]:
    """Return the images whose names end in a suffix{listed}."""
    stems = [(os.path.splitext(os.path.relpath(path, folder))[0], path) for path in images_in(folder)]
    return [path for stem, path in stems if stem.endswith(suffix){and_listed}]
'''

_BOTH = ("IMAGES", "MASKS")
_ByStem: TypeAlias = dict[tuple[bytes, bytes], Found]  # by the folder and the name without its ending


class ImagePairs(Files):
    """Images with a mask each: the files of two folders whose path is the same, apart from the extension.

    Args:
        images: the folder of images, or its URL; folders below it count too.
        masks: the folder of masks, laid out in the same way.
        mask_suffix: what a mask's name has behind that of the pair, such as "_L" if `0001.png` goes with `0001_L.png`;
            files without it are no masks.
        image_suffix: the same for images, such as "_leftImg8bit" of Cityscapes.
        names: a text file with the name of a pair in each line, without suffixes and ending, as Pascal VOC has them.
            Other files of both folders are left out. None: all files.

    Attributes:
        remote: the kind of URL, such as "s3", if one of both is behind one; else None.

    Raises:
        DataError: a folder is missing, unreadable or empty, or an image or a mask has no partner.

    Examples:
        >>> data = ap.ImagePairs("camvid/images", "camvid/masks")   # doctest: +SKIP
        >>> encoded_image, encoded_mask = data.read(0)              # doctest: +SKIP
    """

    x_kind = FieldKind.ENCODED
    y_kind = FieldKind.ENCODED

    def __init__(
        self, images: Place, masks: Place, *, mask_suffix: str = "", image_suffix: str = "", names: Place | None = None
    ) -> None:
        roots = os.fsencode(located(images)), os.fsencode(located(masks))
        for option, suffix in (("mask_suffix", mask_suffix), ("image_suffix", image_suffix)):
            if not isinstance(suffix, str):
                raise DataError(f'`{option}` must be text, such as "_L", but got {shortened(suffix)}.')
        self._suffixes, self._names = (image_suffix, mask_suffix), None if names is None else located(names)
        if os.path.abspath(roots[0]) == os.path.abspath(roots[1]):  # noqa: PTH100  links are not resolved
            raise DataError(
                f"`images` and `masks` must be two folders, but both are `{os.fspath(images)}`.",
                hint="An autoencoder gets x as y, too, by ap.ImageFolder(..., label_mode=None), and "
                'ap.Map(lambda x, y: (x, x), on="both") as the last op.',
            )
        found, partners = map(_by_stem, roots, map(os.fsencode, self._suffixes))
        if self._names is not None:
            found, partners = _chosen(self._names, found, partners)
        if found.keys() != partners.keys():
            raise _unmatched(found, partners, os.fspath(images), os.fspath(masks))
        stems = sorted(found)
        both = zip(roots, (found, partners), strict=True)
        self._lists = tuple(remote.listed(root, [each[stem] for stem in stems]) for root, each in both)

    def __repr__(self) -> str:
        images, masks = (os.fsdecode(each.root) for each in self._lists)
        return f"ImagePairs({images!r}, {masks!r}: {len(self)} pairs)"

    def name(self, index: int) -> str:
        return " with ".join(each.text(index) for each in self._lists)

    def digest(self) -> str:
        images, masks = (each.digest() for each in self._lists)
        return " ".join((images, *(f"mask_{part}" for part in masks.split())))

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource:
        source.require_local(self)
        pairs = sorted(zip(*(map(Path, each.files()) for each in self._lists), strict=True))
        if [mask for _, mask in pairs] != sorted(mask for _, mask in pairs):
            raise PlainCodeError("masks are not in the order of their images' names")
        both = zip(_BOTH, self._lists, strict=True)
        constants = [f"{name} = Path({quoted(os.fsdecode(each.root))})" for name, each in both] + [paths.PLAIN_ENDINGS]
        functions = paths.PLAIN_IMAGES_IN
        images, masks = (f"images_in({of})" for of in _BOTH)
        if any((*self._suffixes, self._names)):
            listed = ("", "")
            if self._names is not None:
                constants.append(f'NAMES = {{line.strip() for line in open({quoted(self._names)}, encoding="utf-8")}}')
                listed = ", and are listed", " and stem.removesuffix(suffix) in NAMES"
            functions += _PLAIN_NAMED.format(listed=listed[0], and_listed=listed[1])
            images, masks = (f"named({of}, {quoted(suffix)})" for of, suffix in zip(_BOTH, self._suffixes, strict=True))
        functions += _PLAIN_SAMPLES.format(images=images, masks=masks)
        return source.plain_from_files(("x", "y"), ("x", "y"), library, constants, functions)


def _by_stem(root: bytes, suffix: bytes) -> _ByStem:
    found: _ByStem = {}
    for entry in remote.walk(root, [b""])[0]:
        stem = entry.name[: entry.name.rindex(b".")]
        if not stem.endswith(suffix):
            continue
        key = (entry.directory, stem[: len(stem) - len(suffix)])
        if key in found:
            raise DataError(
                f"Each name must occur once, but `{os.fsdecode(entry.name)}` and `{os.fsdecode(found[key].name)}` "
                f"in `{os.fsdecode(os.path.join(root, entry.directory))}` differ only in their ending."  # noqa: PTH118
            )
        found[key] = entry
    if not found:
        raise _no_images(root, f"that end in `{os.fsdecode(suffix)}` in" if suffix else "in")
    return found


def _chosen(names: str, *both: _ByStem) -> tuple[_ByStem, ...]:
    try:
        lines = Path(names).read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"`names` must be a text file, but `{names}` cannot be read: {error.strerror}.") from error
    if not (keys := {line.strip().rpartition(b"/")[::2] for line in lines if line.strip()}):
        raise DataError(f"`names` must list pairs, but `{names}` is empty.")
    if lost := sorted(key for key in keys if not all(key in files for files in both)):
        shown = _few([b"/".join(filter(None, key)) for key in lost], 3)
        raise DataError(
            f"Each line of `{names}` must name an image and a mask, but {len(lost)} of {len(keys)} do not: {shown}.",
            hint="A name has no ending and no suffix, such as `2007_000032` for `2007_000032.jpg`.",
        )
    return tuple({key: file for key, file in files.items() if key in keys} for files in both)


def _unmatched(found: _ByStem, partners: _ByStem, images: str, masks: str) -> DataError:
    lonely_images = [found[stem] for stem in sorted(found.keys() - partners.keys())]
    lonely_masks = [partners[stem] for stem in sorted(partners.keys() - found.keys())]
    parts = [
        f"{len(lonely)} {'file' if len(lonely) == 1 else 'files'} of `{folder}` "
        f"{'has' if len(lonely) == 1 else 'have'} no partner: "
        f"{_few([b'/'.join(filter(None, entry[:2])) for entry in lonely], 5)}"
        for lonely, folder in ((lonely_images, images), (lonely_masks, masks))
        if lonely
    ]
    hint = "Remove those files, or add their partners; names= takes the pairs that a text file lists."
    if lonely_images and lonely_masks:
        hint = _suffixes(lonely_images, lonely_masks) or (
            "Remove those files, or add their partners. Other names go together by `read(i)` of a class of your own."
        )
    return DataError(f"Each image must have a mask of the same name. {'. '.join(parts)}.", hint=hint)


def _suffixes(images: list[Found], masks: list[Found]) -> str | None:
    stems, others = ([entry.name[: entry.name.rindex(b".")] for entry in entries] for entries in (images, masks))
    beside = [stem for stem, entry in zip(others, masks, strict=True) if entry.directory == images[0].directory]
    prefixes = (os.path.commonprefix([stems[0], stem]) for stem in beside)  # noqa: RUF071  character by character
    shared: bytes = max(prefixes, key=len, default=b"").rstrip(b"_-.")  # type: ignore[assignment, arg-type]  # of bytes
    of_image, *of_masks = (stem[len(shared) :] for stem in (stems[0], *beside) if stem.startswith(shared))
    begins = rb"[^0-9A-Za-z]|[A-Za-z]" if shared[-1:].isdigit() else rb"[^0-9A-Za-z]"  # as "x2" does behind a number
    of_mask = {suffix for suffix in of_masks if not suffix or re.match(begins, suffix)}
    fits = all(stem.endswith(of_image) for stem in stems) and (not of_image or re.match(begins, of_image))
    if not shared or not fits or not 0 < len(of_mask) <= 5:
        return None
    options = [f'image_suffix="{os.fsdecode(of_image)}"'] * bool(of_image)
    options.append("mask_suffix=" + " or ".join(f'"{os.fsdecode(each)}"' for each in sorted(of_mask)))
    return f"Pass {', '.join(options)}."


def _few(names: Sequence[bytes], limit: int) -> str:
    shown = ", ".join(map(os.fsdecode, names[:limit]))
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


# -------------------- keras split: the same files as Keras's `image_dataset_from_directory` for the same seed


def check_split(validation_split: float | None, subset: str | None) -> None:
    """Raise DataError for arguments that choose no part of the data."""
    if (validation_split is None) != (subset is None):
        raise DataError(
            "`validation_split` and `subset` must be given together, "
            f"but got validation_split={validation_split!r}, subset={subset!r}.",
            hint='Such as ap.ImageFolder("photos", validation_split=0.2, subset="training", seed=1).',
        )
    if validation_split is not None and not 0 < validation_split < 1:
        raise DataError(f"`validation_split` must be between 0 and 1, but got {validation_split!r}.")
    if subset not in (None, "training", "validation"):
        raise DataError(f'`subset` must be "training" or "validation", but got {subset!r}.')


def part_of(count: int, what: str, validation_split: float, subset: str, seed: int | None) -> list[int]:
    """Return the numbers that belong to the part, of `count` in Keras's order; raise DataError if a part is empty."""
    places = np.arange(count)
    if seed is not None:
        np.random.RandomState(seed).shuffle(places)
    held = int(validation_split * count)
    if not 0 < held < count:
        raise DataError(
            f"validation_split={validation_split!r} of {count} {what} leaves none for training or for validation."
        )
    found: list[int] = (places[:-held] if subset == "training" else places[-held:]).tolist()
    return found


def _checked_labels(labels: Any, count: int) -> list[int]:
    is_one = isinstance(labels, np.ndarray) and labels.ndim == 0
    given: list[Any] = list(labels) if isinstance(labels, Iterable) and not is_one else [labels]
    if len(given) != count:
        raise DataError(f"`labels` must be one for each of the {count} images, but got {len(given)}.")
    if not all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in given):
        hint = "ap.Table reads other labels from a CSV file."
        raise DataError(f"`labels` must be whole numbers, but got {shortened(labels)}.", hint=hint)
    found = [int(label) for label in given]
    for number, label in enumerate(found):
        if not is_int64(label):
            said = f"`labels` must be from -2**63 to 2**63 - 1, but that of image {number} is {label}."
            raise DataError(said, hint=NUMBERED)
    return found


# -------------------- image folder

_PLAIN_CLASS_SAMPLES = '''

def samples() -> tuple[list[str], list[int]]:
    """Return the path and the class of every image."""
    found = [(path, label) for label, name in enumerate(CLASSES) for path in images_in(FOLDER / name)]
    return [path for path, _ in found], [label for _, label in found]
'''
_PARTS = frozenset((b"train", b"training", b"val", b"valid", b"validation", b"test", b"testing", b"dev", b"eval"))
_LAYOUT = "One folder for each class is expected, such as `{root}/cat/1.jpg` and `{root}/dog/2.jpg`."


class ImageFolder(Files):
    """Images in one folder for each class; y is the number of the class, in sorted order of the folders' names.

    Images at any depth below their class's folder count. Hidden files and folders, and files that are no images by
    their extension (jpg, jpeg, png, bmp, webp, tif, tiff), are left out, with a warning of those that are images by
    another (gif, heic, ...); links are followed.

    Args:
        path: the folder that holds the classes' folders; or its URL, such as "s3://bucket/photos". A relative path
            starts at the folder of the script that writes it.
        class_names: which folders are classes, in this order; by default all of them, sorted.
        labels: "inferred" from the folders; None for images alone; or a whole number for each image, in the order of
            their folders and names, for images in one folder or in any folders.
        label_mode: the form of y: "int" for the number, "categorical" for a float32 vector with a one in its place,
            "binary" for a float32 vector of one number for two classes, or None for images alone.
        validation_split: share of the images that are for validation.
        subset: "training" or "validation": which part this source has. With the same seed, the parts are those of
            `keras.utils.image_dataset_from_directory`, if both read all images (no webp, tif, gif).
        seed: of the split; None takes the last images for validation, as Keras does with `shuffle=False`.

    Attributes:
        classes: the names of the classes; y indexes it. Of labels that are given, the labels.
        remote: the kind of URL, such as "s3"; None for files on a disk.

    Raises:
        DataError: the folder is missing or unreadable, or not laid out like this.

    Examples:
        >>> data = ap.ImageFolder("photos/")        # doctest: +SKIP
        >>> encoded, label = data.read(0)           # doctest: +SKIP
    """

    x_kind = FieldKind.ENCODED

    def __init__(  # noqa: PLR0913  # the arguments of Keras's image_dataset_from_directory
        self,
        path: Place,
        *,
        class_names: Sequence[str] | None = None,
        labels: Literal["inferred"] | Sequence[int] | NDArray[np.integer] | None = "inferred",
        label_mode: Literal["int", "categorical", "binary"] | None = "int",
        validation_split: float | None = None,
        subset: Literal["training", "validation"] | None = None,
        seed: int | None = None,
    ) -> None:
        check_split(validation_split, subset)
        if label_mode not in ("int", "categorical", "binary", None):
            raise DataError(f'`label_mode` must be "int", "categorical", "binary" or None, but got {label_mode!r}.')
        self._is_inferred = is_inferred = isinstance(labels, str)
        if is_inferred and labels != "inferred":
            raise DataError(f'`labels` must be "inferred", None or a number for each image, but got {labels!r}.')
        root = os.fsencode(located(path))
        self._mode = None if labels is None else label_mode
        if is_inferred and self._mode is not None:
            by_class = _by_class(root, class_names)
            self.classes = tuple(map(os.fsdecode, by_class))
            found: list[Sequence[Found]] = list(by_class.values())
        else:
            if class_names is not None:
                hint = "Leave them out."
                raise DataError('`class_names` are folders, so they go with labels="inferred" alone.', hint=hint)
            found, self.classes = [_all(root)], ()
        entries = [entry for each in found for entry in each]
        numbers = array("q", (label for label, each in enumerate(found) for _ in each))
        kept: Sequence[int] = range(len(entries))
        if validation_split is not None and subset is not None:
            # Keras lists the files by folder and name, shuffles all by `RandomState(seed)`, and validates on the last;
            # without a seed (`shuffle=False`) these are the last ones class by class.
            order = sorted(kept, key=lambda at: (numbers[at], entries[at][:2]))
            kept = sorted(order[place] for place in part_of(len(order), "images", validation_split, subset, seed))
        self._lists = (remote.listed(root, [entries[at] for at in kept]),)
        self._is_plain = is_inferred and label_mode == "int" and validation_split is None
        if self._mode is not None and not is_inferred:
            numbers = array("q", _checked_labels(labels, len(entries)))
            named = sorted(set(numbers))
            self.classes = tuple(map(str, named))
            if self._mode != "int" and named != list(range(len(named))):
                said = f'`labels` must be 0 to {len(named) - 1} with `label_mode="{self._mode}"`'
                raise DataError(f"{said}, but they are {shortened(named)}.", hint="Number the classes from 0.")
        self._labels = array("q", (numbers[at] for at in kept))
        if self._mode == "binary" and len(self.classes) != 2:
            raise DataError(f'`label_mode="binary"` needs two classes, but there are {len(self.classes)}.')
        kinds = {None: None, "int": FieldKind.LABEL}
        self.y_kind: FieldKind | None = kinds.get(self._mode, FieldKind.ARRAY)
        self._settings = "" if class_names is None and self._is_plain else repr((self.classes, self._mode))

    @property
    def class_numbers(self) -> dict[str, int]:
        """The number of each class, which is y; of labels that are given, none."""
        return {name: number for number, name in enumerate(self.classes)} if self._is_inferred else {}

    def __repr__(self) -> str:
        return f"ImageFolder({os.fsdecode(self._lists[0].root)!r}: {len(self)} images, {len(self.classes)} classes)"

    def _values(self, index: int) -> tuple[Any, ...]:
        if self._mode is None:
            return ()
        label = self._labels[index]
        if self._mode == "int":
            return (label,)
        if self._mode == "binary":
            return (np.array([label], np.float32),)
        return (np.eye(1, len(self.classes), label, dtype=np.float32)[0],)

    def name(self, index: int) -> str:
        return self._lists[0].text(index)

    def mean_bytes(self) -> float:
        return super().mean_bytes() + 4 * {"binary": 1, "categorical": len(self.classes)}.get(self._mode or "", 0)

    def digest(self) -> str:
        labels = self._settings.encode() + self._labels.tobytes()
        chosen = f" labels={paths.short_digest(labels)}" if self._settings else ""
        return self._lists[0].digest() + chosen

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource | None:
        if not self._is_plain:
            return None
        source.require_local(self)
        whole = [quoted(name).replace(" ", "\0") for name in self.classes]  # lines are not broken within a name
        classes = textwrap.fill(", ".join(whole), 110, break_long_words=False, break_on_hyphens=False)
        constants = [
            f"FOLDER = Path({quoted(os.fsdecode(self._lists[0].root))})  # one folder for each class",
            f"CLASSES = (\n{textwrap.indent(classes, '    ')},\n)".replace("\0", " "),
            paths.PLAIN_ENDINGS,
        ]
        functions = paths.PLAIN_IMAGES_IN + _PLAIN_CLASS_SAMPLES
        return source.plain_from_files(("x",), ("x", "y"), library, constants, functions)


def _by_class(root: bytes, class_names: Sequence[str] | None) -> dict[bytes, Sequence[Found]]:
    loose, folders = remote.scan(root)
    shown = os.fsdecode(root)
    if not folders:
        layout = _LAYOUT.format(root=os.path.basename(shown.rstrip("/")))  # noqa: PTH119
        if not loose:
            raise DataError(f"There are no images in `{shown}`: it holds no folder and no image.", hint=layout)
        lie = "an image lies" if len(loose) == 1 else f"the {len(loose)} images lie"
        hint = f"{layout} Pass labels=[...], or use ap.Table for labels in a CSV file, ap.ImagePairs for masks."
        raise DataError(f"`ImageFolder` needs a folder for each class, but {lie} in `{shown}` itself.", hint=hint)
    if class_names is not None:
        names = _folder_names(class_names)
        wanted = [os.fsencode(name) for name in names]
        missing = [name for name, folder in zip(names, wanted, strict=True) if folder not in folders]
        if missing or len(set(wanted)) != len(wanted):
            known = [os.fsdecode(folder) for folder in folders]
            raise DataError(
                f"`class_names` must be different folders of `{shown}`, but got {shortened(class_names)}."
                + (near(missing[0], known) if missing else "")
            )
        folders = wanted
    else:
        if not paths.is_url(root) and (lost := paths.lost_links(root)):
            warn_of_data(f"Links in `{shown}` that lead nowhere count as no class: {_names(lost)}.")
        if len(folders) > 1 and all(folder.lower() in _PARTS for folder in folders):
            part = next((each for each in folders if each.lower().startswith(b"train")), folders[0])
            first = os.path.join(shown, os.fsdecode(part))  # noqa: PTH118
            warn_of_data(
                f"{_names(folders)} are taken for classes, but are called like parts of a data set. "
                f'Name one of them, such as ap.ImageFolder("{first}").'
            )
    entries = dict(zip(folders, remote.walk(root, folders), strict=True))
    _check_counts(root, {folder: len(found) for folder, found in entries.items()}, is_named=class_names is not None)
    below = {entry.directory.split(b"/")[1] if b"/" in entry.directory else b"" for entry in entries[folders[0]]}
    if len(folders) == 1 and class_names is None and len(below) > 1 and b"" not in below:
        inner = os.path.join(shown, os.fsdecode(folders[0]))  # noqa: PTH118
        warn_of_data(
            f"All images are of one class, `{os.fsdecode(folders[0])}`, in {len(below)} folders below it. If these are "
            f'the classes, write ap.ImageFolder("{inner}").'
        )
    if loose:
        warn_of_data(f"Images in `{shown}` itself belong to no class and are left out, {len(loose)} of them.")
    return entries


def _folder_names(class_names: Any) -> list[str]:
    """Return names of folders as text; a number n is the folder named "n"."""
    try:
        names = [] if isinstance(class_names, str | bytes) else list(class_names)
    except TypeError:  # a number, or an array without an axis
        names = []
    if not names or any(isinstance(name, bytes) for name in names):
        said = f"`class_names` must be a list of the names of folders, as text, but got {shortened(class_names)}."
        raise DataError(said, hint='Such as class_names=["cat", "dog"].')
    return list(map(str, names))


def _all(root: bytes) -> list[Found]:
    if not (found := sorted(remote.walk(root, [b""])[0], key=lambda entry: entry[:2])):
        raise _no_images(root)
    return found


def _no_images(root: bytes, where: str = "below", folders: str = "") -> DataError:
    return DataError(f"There are no images {where} `{os.fsdecode(root)}`{folders}.", hint=f"{remote.IMAGES_ARE}.")


def _check_counts(root: bytes, counts: dict[bytes, int], *, is_named: bool) -> None:
    shown = os.fsdecode(root)
    if not any(counts.values()):
        raise _no_images(root, folders=f", in {count_text(len(counts), 'folder')}")
    if (empty := [folder for folder, count in counts.items() if count == 0]) and not is_named:
        warn_of_data(
            f"No image is in {_names(empty)} of `{shown}`, which counts as a class nevertheless, as in Keras. "
            "`class_names=[...]` leaves folders out.",
            level=4,
        )
    if single := [folder for folder, count in counts.items() if count == 1]:
        warn_of_data(
            f"Only one image is in {_names(single)} of `{shown}`: a class of one cannot be split for validation.",
            level=4,
        )


def _names(folders: list[bytes]) -> str:
    return _few([b"`%s`" % folder for folder in folders], 3)
