"""The files of scenes: which belong together, by folders, patterns and lists of paths; and how they can be written."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataError, extra_module, shortened
from autopipe.extensions.raster import rasters
from autopipe.workload.data import remote
from autopipe.workload.data.paths import RULE, Place, is_url, located, located_pattern, scheme, shown

_WILD: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]")
_MATCHES: Final = {"**/": "(.*/|)", "**": "(.*)", "*": "([^/]*)", "?": "([^/])"}


def scenes_of(parts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the paths of the parts of each scene."""
    found = {name: _listed(name, part) for name, part in parts.items()}
    (first, keys), *others = found.items()
    for name, files in others:
        if isinstance(parts[first], list | tuple) or isinstance(parts[name], list | tuple):
            if len(files) != len(keys):
                raise DataError(
                    f"Lists of paths are matched by their order, and `{first}` and `{name}` must be equally long, but "
                    f"have {len(keys)} and {len(files)} scenes."
                )
            found[name] = dict(zip(keys, files.values(), strict=True))
        elif missing := [key for key in keys if key not in files]:
            raise DataError(
                f"Each scene of `{first}` needs its `{name}`, but {len(missing)} have none, such as "
                f"`{shown(keys[missing[0]])}`, whose name is {missing[0]!r}; there are {shortened(sorted(files))}.",
                hint="What wildcards stand for must be the same in both patterns: images/*.tif, masks/*_mask.tif.",
            )
    return [tuple(files[key] for files in found.values()) for key in keys]


def _listed(name: str, part: Any) -> dict[str, str]:
    if isinstance(part, list | tuple):
        found = {str(number): located(path) for number, path in enumerate(part)}
    elif isinstance(part, str | os.PathLike):
        found = _matches(part)
    else:
        raise DataError(f"`{name}` must be a folder, a pattern or a list of paths, but got {shortened(part)}.")
    if not found:
        raise DataError(
            f"No scenes were found for `{name}`: nothing with the ending {', '.join(rasters.ENDINGS)} is in "
            f"{shortened(os.fspath(part) if not isinstance(part, list | tuple) else part)}.",
            hint=RULE,
        )
    return found


def _matches(place: Place) -> dict[str, str]:
    given = located(place, warns=False)
    is_web = is_url(given) and scheme(given) in ("http", "https")
    # Behind the "?" of a web server is no wildcard, but a signature.
    is_pattern = glob.has_magic(given.partition("?")[0] if is_web else os.fspath(place)) and not os.path.lexists(given)
    text = given if is_url(given) else located_pattern(place) if is_pattern else located(place)
    is_folder = not is_url(text) and os.path.isdir(text) and not rasters.is_zarr(text)  # noqa: PTH112
    is_one = text.lower().endswith(rasters.ENDINGS) if is_url(text) else not is_folder
    if not is_pattern and (is_one or is_web):
        return {"": text}
    if is_url(text):
        matching = list(remote.matching(text if is_pattern else f"{text}/*"))
    elif is_pattern:
        matching = sorted(glob.glob(text, recursive=True))  # noqa: PTH207
    else:
        matching = [os.path.join(text, name) for name in sorted(os.listdir(text))]  # noqa: PTH118, PTH208
    if is_pattern:
        rule = _rule(text)
        named = [("/".join(found.groups()), file) for file in matching if (found := rule.fullmatch(file))]
    else:
        ending = re.compile(f"({'|'.join(map(re.escape, rasters.ENDINGS))})$", re.IGNORECASE)
        names = [(file.rpartition("/")[2], file) for file in matching if ending.search(file)]
        named = [(ending.sub("", name), file) for name, file in names]
    by_name = dict(reversed(named))
    for key, file in named:
        if by_name[key] != file:
            raise DataError(
                f"A part must have one raster of each scene, but `{shown(by_name[key])}` and `{shown(file)}` are both "
                f"{key!r}.",
                hint="Give a pattern that takes one of them.",
            )
    return dict(named)


def _rule(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob, whose groups are what its wildcards stand for."""
    rule, at = "", 0
    for wild in _WILD.finditer(pattern):
        token = wild[0]
        known = _MATCHES.get(token, re.escape(token[1:-1]) if len(token) == 3 else f"({token.replace('[!', '[^')})")
        rule, at = rule + re.escape(pattern[at : wild.start()]) + known, wild.end()
    return re.compile(rule + re.escape(pattern[at:]), re.DOTALL)


def writers(flat: int | None, axes: int) -> Iterator[tuple[str, str, Callable[[str, NDArray[Any]], object]]]:
    """Yield forms of rasters, or of volumes of whose axis `flat` slices are taken: what each is called, the ending of
    its files, and what writes an array (height, width, bands) or (depth, height, width, bands) to a path.
    """
    yield "raw pixels", ".npy", np.save
    if axes == 2:
        tifffile = extra_module("raster", "tifffile")
        for side, codec in itertools.product((256, 512), (None, "zstd", "deflate")):

            def tiff(path: str, array: NDArray[Any], side: int = side, codec: str | None = codec) -> None:
                planes = {"photometric": "minisblack", "planarconfig": "contig" if array.shape[-1] > 1 else None}
                pixels = array if array.shape[-1] > 1 else array[..., 0]
                tifffile.imwrite(path, pixels, tile=(side, side), compression=codec, metadata=None, **planes)

            yield f"TIFF, tiles of {side}, {codec or 'no codec'}", ".tif", tiff
    side = 64 if axes == 3 and flat is None else 256
    chunks = tuple(1 if axis == flat else side for axis in range(axes))
    for codec in ("lz4", "zstd"):

        def zarr(path: str, array: NDArray[Any], codec: str = codec) -> None:
            zarr = extra_module("raster", "zarr")
            few = *map(min, chunks, array.shape[:-1]), array.shape[-1]
            zarr.create_array(path, data=array, chunks=few, compressors=zarr.codecs.BloscCodec(cname=codec))

        yield f"Zarr, chunks of {'x'.join(map(str, chunks))}, {codec}", ".zarr", zarr


def bytes_of(path: str) -> int:
    """Return the bytes of a raster's file or object, or of the folder of a Zarr array."""
    if is_url(path):
        return remote.Object(path).size
    folder = Path(path)
    return sum(each.stat().st_size for each in ([folder] if folder.is_file() else folder.rglob("*")))
