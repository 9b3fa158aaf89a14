"""A folder of classes by Keras's own `image_dataset_from_directory`: batches of images, resized and not rounded."""

from __future__ import annotations

import dataclasses
from typing import Final

from autopipe.errors import PlainCodeError
from autopipe.pipeline.eject.written import Written
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.op import Plan
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.workload import Workload

_ONLY: Final = "`image_dataset_from_directory` decodes and resizes; only flips and scales may follow"

TEMPLATE: Final = '''\
$finish
def make_dataset() -> tf.data.Dataset:
    """Return the batches of an epoch: `model.fit(make_dataset(), epochs=3)`."""
    dataset = keras.utils.image_dataset_from_directory(
        str(FOLDER),
        class_names=list(CLASSES),
        color_mode="$colours",
        batch_size=BATCH_SIZE,
        image_size=($height, $width),
        shuffle=$shuffle,
        seed=SEED,
        verbose=False,
    )
$map    return dataset.prefetch(tf.data.AUTOTUNE)
'''


def listed_by_keras(parts: Written) -> Written:
    """Return the parts without the listing of files, which Keras does."""
    kept = [line for line in parts.constants if not line.startswith("ENDINGS")]
    return dataclasses.replace(parts, source=dataclasses.replace(parts.source, functions=""), constants=kept)


def _ops(plan: Plan) -> tuple[Decode, Resize]:
    match [step.op for step in plan.prefix]:
        case [Decode() as decode, Resize() as resize]:
            return decode, resize
    raise PlainCodeError(_ONLY)


def texts(workload: Workload, plan: Plan, parts: Written) -> dict[str, object]:
    """Return the template's texts; raise PlainCodeError for data without class folders, or ops other than Keras's."""
    if type(workload.data) is not ImageFolder or parts.source.given:
        raise PlainCodeError("`image_dataset_from_directory` reads a folder of classes, as ap.ImageFolder does")
    decode, resize = _ops(plan)
    if parts.body or decode.reduce or resize.interpolation != "bilinear":
        raise PlainCodeError(_ONLY)
    mapped = "    dataset = dataset.map(finish, num_parallel_calls=tf.data.AUTOTUNE)\n"
    return {
        "finish": parts.finish,
        "map": mapped if parts.finish else "",
        "colours": "rgb" if decode.channels == 3 else "grayscale",
        "height": resize.height,
        "width": resize.width,
        "shuffle": workload.shuffle,
    }
