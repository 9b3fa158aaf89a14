"""Writes a pipeline as a file of plain tf.data or Keras code, or says why it cannot be written so.

The file does what the workload's ops say to the same samples. Its random numbers are its own, so that its batches are
not the ones that autopipe gives; that, and the resuming in mid-epoch, is what is given up.
"""

from __future__ import annotations

import datetime
import re
import textwrap
from string import Template
from types import ModuleType
from typing import Any, Final

from autopipe.core.config import PipelineConfig
from autopipe.core.plan import Plan, Step
from autopipe.core.workload import Workload
from autopipe.errors import ConfigError
from autopipe.loaders.keras import Keras
from autopipe.loaders.tfdata import TfData
from autopipe.ops.mask import MaskToClass
from autopipe.ops.planner import make_plan
from autopipe.tuned.eject import listing
from autopipe.tuned.eject import numpy as plain_numpy
from autopipe.tuned.eject import tensorflow as plain_tensorflow

_TENSORFLOW: Final = Template('''"""$title

$notes
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

${imports}import tensorflow as tf

$constants

$functions

def load(x: Any, y: Any) -> tuple[Any, Any]:
    """Read a sample: what is the same in every epoch."""
$load
    return x, y

$augment
$finish
def make_dataset() -> tf.data.Dataset:
    """Return the batches of an epoch: `model.fit(make_dataset(), epochs=3)`."""
    dataset = tf.data.Dataset.from_tensor_slices(samples())
$dataset
    return dataset
''')

_KERAS: Final = Template('''"""$title

$notes
"""

from __future__ import annotations

${imports}from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np

$constants

$functions

${kept}def load(x: Any, y: Any) -> tuple[Any, Any]:
    """Read a sample: what is the same in every epoch."""
$load
    return x, y

$augment
$finish
class Batches(keras.utils.PyDataset):
    """The batches of an epoch: `model.fit(Batches(), epochs=3)`."""

    def __init__(self) -> None:
        super().__init__(workers=$workers, use_multiprocessing=$processes, max_queue_size=$queue)
        self._x, self._y = samples()
        self._epoch = 0
        self._order = self._next_order()

    def __len__(self) -> int:
        return $length

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        made = [self._sample(int(index)) for index in self._order[number * BATCH_SIZE :][:BATCH_SIZE]]
        x, y = np.stack([x for x, _ in made]), np.stack([y for _, y in made])
        return $finished

    def _sample(self, index: int) -> tuple[Any, Any]:
        x, y = load(self._x[index], self._y[index])
        return $augmented

    def on_epoch_end(self) -> None:
        """Give the next epoch an order and random numbers of its own."""
        self._epoch += 1
        self._order = self._next_order()

    def _next_order(self) -> Any:
        return $order
''')

_FINISHED_HERE: Final = "Casts, scales and one-hot vectors are made here; in autopipe they may be made on the device."


def reasons_against(workload: Workload, config: PipelineConfig, plan: Plan) -> tuple[str, ...]:
    """Return why a pipeline cannot be written in plain code; nothing if it can."""
    loader = config.loader
    dialect = _dialect(config)
    if dialect is None:
        return (f"the `{loader.kind}` loader is autopipe's own; only `tfdata` and `keras` have plain code",)
    found = [dialect.reason_against(step) for step in (*plan.prefix, *plan.body, *plan.suffix)]
    found.append(listing.reason_against(workload.data))
    if config.storage != "files":
        found.append(f"the samples are read from a converted set (storage={config.storage!r}), which autopipe reads")
    if config.cache == "memory" and config.cache_fraction < 1:
        found.append(f"a part of the samples is cached (cache_fraction={config.cache_fraction})")
    if workload.on_bad_sample == "skip":
        found.append('bad samples are replaced (on_bad_sample="skip")')
    if isinstance(loader, Keras) and loader.use_multiprocessing and config.cache == "memory":
        found.append("a cache in memory is shared between processes")
    return tuple(dict.fromkeys(reason for reason in found if reason is not None))


def eject(workload: Workload, config: PipelineConfig, *, today: datetime.date | None = None) -> str:
    """Return a module that feeds the workload as the configuration says, and does not import autopipe.

    Args:
        workload: what is trained.
        config: how it is fed.
        today: the date to write into it.

    Raises:
        ConfigError: plain tf.data or Keras code cannot express it; the message gives every reason.
    """
    config = config.normalised()
    plan = make_plan(workload)
    reasons = reasons_against(workload, config, plan)
    if reasons:
        raise ConfigError(
            f"This pipeline cannot be written without autopipe: {'; '.join(reasons)}.",
            hint="Tune with `--only loader=tfdata,keras --no-convert`, or keep `tuned_pipeline.py`.",
        )
    date = today or datetime.datetime.now(datetime.UTC).date()
    texts = {
        "title": "A plain input pipeline, which imports no autopipe.",
        "notes": _notes(config, date),
        **_listed(workload, plan),
    }
    return (
        _tensorflow(workload, config, plan, texts)
        if isinstance(config.loader, TfData)
        else _keras(workload, config, plan, texts)
    )


def _dialect(config: PipelineConfig) -> Any:
    dialects: dict[type[Any], ModuleType] = {TfData: plain_tensorflow, Keras: plain_numpy}
    return dialects.get(type(config.loader))


def _notes(config: PipelineConfig, date: datetime.date) -> str:
    said = [
        f"Written on {date.isoformat()} for {config.one_line()}.",
        "The samples and what is done to them are the workload's; the random numbers are drawn anew, so that batches "
        "differ from those of autopipe.",
    ]
    if config.finish == "device":
        said.append(_FINISHED_HERE)
    if config.devices > 1:
        said.append(f"It was tuned for {config.devices} devices; how to share batches out between them is up to you.")
    return textwrap.fill(" ".join(said), 110, break_long_words=False, break_on_hyphens=False)


def _listed(workload: Workload, plan: Plan) -> dict[str, str]:
    constants, functions = listing.lines(workload.data)
    constants += f"\nBATCH_SIZE = {workload.batch_size}\nSEED = {workload.seed}"
    for step in (*plan.prefix, *plan.body):
        if isinstance(step.op, MaskToClass):
            unknown = 255 if step.op.unknown is None else step.op.unknown
            constants += (
                f"\nPALETTE = {_tuple(step.op.palette)}"
                f"\nCLASS_OF_COLOUR = np.full(1 << 24, {unknown}, np.uint8)"
                "\nfor number, (red, green, blue) in enumerate(PALETTE):"
                "\n    CLASS_OF_COLOUR[red + 256 * green + 65536 * blue] = number"
            )
    return {"constants": constants, "functions": functions}


def _tensorflow(workload: Workload, config: PipelineConfig, plan: Plan, texts: dict[str, str]) -> str:
    loader = config.loader
    assert isinstance(loader, TfData)
    calls = "tf.data.AUTOTUNE" if loader.num_parallel_calls == "auto" else str(loader.num_parallel_calls)
    prefetch = "tf.data.AUTOTUNE" if loader.prefetch == "auto" else str(loader.prefetch)
    finish = _function("finish", "Do to a whole batch what needs no single sample.", _finishing(config, plan, "tf"))
    augment = _function(
        "augment", "Do to a sample what differs from epoch to epoch.", _lines(plan.body, plain_tensorflow)
    )
    parts = ["x", "y"] if plan.source.y is not None and plan.source.y.kind == "encoded" else ["x"]
    reading = [f"{part} = tf.io.read_file({part})" for part in parts]
    steps = [
        f"map(load, num_parallel_calls={calls})",
        "cache()" if config.cache == "memory" else "",
        f"map(augment, num_parallel_calls={calls})" if augment else "",
        f"batch(BATCH_SIZE, drop_remainder={workload.drop_remainder})",
        f"map(finish, num_parallel_calls={calls})" if finish else "",
        f"prefetch({prefetch})" if prefetch != "0" else "",
    ]
    shuffle = "shuffle(len(dataset), seed=SEED)" if workload.shuffle else ""
    steps.insert(
        2 if config.cache == "memory" else 0, shuffle
    )  # behind a cache, or every epoch had the first one's order
    return _filled(
        _TENSORFLOW,
        texts,
        imports="import numpy as np\n" if "np." in texts["constants"] else "",
        load=_indented([*reading, *_lines(plan.prefix, plain_tensorflow)]),
        augment=augment,
        finish=finish,
        dataset=_indented([f"dataset = dataset.{step}" for step in steps if step]),
    )


def _keras(workload: Workload, config: PipelineConfig, plan: Plan, texts: dict[str, str]) -> str:
    loader = config.loader
    assert isinstance(loader, Keras)
    finish = _function("finish", "Do to a whole batch what needs no single sample.", _finishing(config, plan, "np"))
    augment = _function(
        "augment", "Do to a sample what differs from epoch to epoch.", _lines(plan.body, plain_numpy), "rng: Any"
    )
    kept = config.cache == "memory"
    length = "len(self._x) // BATCH_SIZE" if workload.drop_remainder else "-(-len(self._x) // BATCH_SIZE)"
    order = "np.arange(len(self._x))"
    if workload.shuffle:
        order = "np.random.default_rng((SEED, self._epoch)).permutation(len(self._x))"
    return _filled(
        _KERAS,
        texts,
        imports="import functools\n" if kept else "",
        kept="@functools.cache  # keeps every sample in memory once it has been read\n" if kept else "",
        load=_indented(_lines(plan.prefix, plain_numpy)),
        augment=augment,
        finish=finish,
        workers=loader.workers,
        processes=loader.use_multiprocessing,
        queue=loader.max_queue_size,
        length=length,
        order=order,
        finished="finish(x, y)" if finish else "x, y",
        augmented="augment(x, y, np.random.default_rng((SEED, self._epoch, index)))" if augment else "x, y",
    )


def _filled(template: Template, texts: dict[str, str], **more: object) -> str:
    """Fill a template in; a part that is left out leaves no gap."""
    return re.sub(r"\n{4,}", "\n\n\n", template.substitute(texts, **more)).rstrip() + "\n"


def _lines(steps: tuple[Step, ...], dialect: Any) -> list[str]:
    return [line for step in steps for line in dialect.lines(step)]


def _finishing(config: PipelineConfig, plan: Plan, library: str) -> list[str]:
    found = _lines(plan.suffix, plain_tensorflow if library == "tf" else plain_numpy)
    if config.channels == "first":
        fields = (("x", plan.finished.x), ("y", plan.finished.y))
        found += [
            f"{part} = {library}.transpose({part}, (0, 3, 1, 2))"
            for part, field in fields
            if field is not None and field.rank == 3
        ]
    return found


def _function(name: str, says: str, lines: list[str], more: str = "") -> str:
    if not lines:
        return ""
    arguments = ", ".join(filter(None, ("x: Any, y: Any", more)))
    body = _indented([f'"""{says}"""', *lines, "return x, y"])
    return f"\ndef {name}({arguments}) -> tuple[Any, Any]:\n{body}\n\n"


def _tuple(items: Any) -> str:
    """Return a tuple of many items as code, in lines that are not too long."""
    inner = textwrap.fill(", ".join(map(repr, items)), 110, break_long_words=False, break_on_hyphens=False)
    return f"(\n{textwrap.indent(inner, '    ')},\n)"


def _indented(lines: list[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ")
