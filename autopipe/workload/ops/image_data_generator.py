"""Ops for the arguments of Keras's `ImageDataGenerator`, and the reasons for those without a counterpart."""

from __future__ import annotations

from typing import Any, Final

from autopipe.errors import ConfigError, near
from autopipe.workload.op import Op
from autopipe.workload.ops.colors import RandomBrightness
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.geometry import RandomAffine, RandomFlip
from autopipe.workload.ops.values import Cast, Rescale

_STATISTICS = "it takes a pass over the data (`fit`) before the first batch", "Use ap.Normalize(mean, std)."
_OWN_STATISTICS = "no op takes an image's own statistics", "Use ap.Map(lambda x: (x - x.mean()) / x.std())."
_WITHOUT: Final[dict[str, tuple[str, str]]] = {
    "featurewise_center": _STATISTICS,
    "featurewise_std_normalization": _STATISTICS,
    "samplewise_center": _OWN_STATISTICS,
    "samplewise_std_normalization": _OWN_STATISTICS,
    "zca_whitening": (_STATISTICS[0], "Use ap.Map with a function that multiplies by your whitening matrix."),
    "channel_shift_range": ("no op shifts each image's channels", "Use ap.Map(function, random=True)."),
    "validation_split": (
        "it divides files, and changes no image",
        'Use ap.ImageFolder(path, validation_split=..., subset="training").',
    ),
}
_TAKEN = (
    "rotation_range", "width_shift_range", "height_shift_range", "brightness_range", "shear_range", "zoom_range",
    "cval", "horizontal_flip", "vertical_flip", "rescale", "preprocessing_function", "data_format", "zca_epsilon",
    "dtype",
)  # fmt: skip
_DEFAULTS: Final = dict.fromkeys([*_WITHOUT, *_TAKEN]) | {"fill_mode": "nearest", "interpolation_order": 1}


def from_image_data_generator(**arguments: Any) -> list[Op]:
    """Return ops that do to a sample the same as Keras's `ImageDataGenerator(**arguments)` to an image.

    They belong behind `ap.Decode()` and `ap.Resize(...)`, which replace `target_size` of its `flow_from_...` methods.
    The images are float32, as from the generator. Each random number has the same distribution, and is drawn for each
    sample by itself; the generator draws all from one state. Shifts follow their names; in Keras 3 `height_shift_range`
    moves images across, and `width_shift_range` down.

    Args:
        **arguments: those of `ImageDataGenerator`; missing ones have that class's defaults.

    Raises:
        ConfigError: an argument is unknown, or has no counterpart; the message gives the reason and an alternative.

    Examples:
        >>> [type(op).__name__ for op in ap.from_image_data_generator(rotation_range=20, rescale=1 / 255)]
        ['RandomAffine', 'Rescale']
    """
    for name in arguments:
        if name not in _DEFAULTS:
            raise ConfigError(f"`ImageDataGenerator` has no argument `{name}`.{near(name, _DEFAULTS)}")
    settings: dict[str, Any] = _DEFAULTS | arguments
    for name, (reason, instead) in _WITHOUT.items():
        if settings[name]:
            raise ConfigError(f"`{name}` has no counterpart: {reason}. Got {name}={settings[name]!r}.", hint=instead)
    if settings["data_format"] == "channels_first":
        raise ConfigError(
            "`data_format` is no setting of an op: channels are last here, and first where the configuration says so.",
            hint='Leave it out, and pass channels="first" to the configuration if the model needs it.',
        )
    found, dtype, function = _geometry(settings), settings["dtype"] or "float32", settings["preprocessing_function"]
    if settings["brightness_range"] is not None:
        found.append(RandomBrightness(factor=settings["brightness_range"]))
    if function is not None:
        found += [Cast(dtype), Map(function)]
    if settings["rescale"]:
        found.append(Rescale(settings["rescale"], dtype=dtype))
    elif function is None:
        found.append(Cast(dtype))
    return found


def _geometry(settings: dict[str, Any]) -> list[Op]:
    zoom = settings["zoom_range"] or 0
    zoom = tuple(zoom) if isinstance(zoom, list) else zoom
    shift = tuple(_share(name, settings[name] or 0) for name in ("height_shift_range", "width_shift_range"))
    if (order := settings["interpolation_order"]) not in (0, 1):
        said = f"`interpolation_order` must be 0 (nearest) or 1 (bilinear); OpenCV has no spline of order {order!r}."
        raise ConfigError(said, hint="Use 1.")
    found: list[Op] = []
    if settings["rotation_range"] or settings["shear_range"] or any(shift) or zoom not in (0, (1, 1)):
        moves = settings["rotation_range"] or 0, (shift[0], shift[1]), settings["shear_range"] or 0, zoom
        edges = {"fill": settings["fill_mode"], "value": settings["cval"] or 0}
        found.append(RandomAffine(*moves, keep_aspect=False, interpolation=("nearest", "bilinear")[order], **edges))
    across, down = bool(settings["horizontal_flip"]), bool(settings["vertical_flip"])
    if across or down:
        found.append(RandomFlip(horizontal=across, vertical=down))
    return found


def _share(name: str, value: Any) -> float:
    if not isinstance(value, float | int) or (isinstance(value, int) and value != 0) or value >= 1:
        raise ConfigError(
            f"`{name}` in pixels has no counterpart: ops take shares of an image, whose size they do not know. "
            f"Got {name}={value!r}.",
            hint=f"Divide by the image's size: {name}=10 / 224.",
        )
    return float(value)
