"""A user's own dataset as the call that makes it, with the arguments that were measured best.

The dataset's own code is not repeated.
"""

from __future__ import annotations

from typing import Final

from autopipe.errors import PlainCodeError
from autopipe.pipeline.batching.wrapped_data import WrappedData
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject.written import Written, own_name
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.workload.plain_code import PlainSource

TEMPLATE: Final = '''\
def tuned_dataset() -> Any:
    """Return the dataset: `model.fit(tuned_dataset(), epochs=3$steps)`."""
    return $call
'''


def written(data: WrappedData) -> Written:
    """Return the import of the user's function."""
    source = PlainSource(opened="", count="", arguments=())
    nothing: list[str] = []
    return Written(
        source=source,
        constants=nothing,
        prefix=nothing,
        body=nothing,
        mixing=nothing,
        suffix=nothing,
        finished="",
        packed="",
        functions={_name(data): data.function},
    )


def texts(data: WrappedData, config: PipelineConfig | str) -> dict[str, object]:
    """Return the template's texts; raise PlainCodeError for another form: its code would know the first batch alone."""
    if isinstance(config, str) or not isinstance(config.loader, Wrapped):
        raise PlainCodeError(
            f"`{_name(data)}` makes the batches, and only its own code tells how",
            hint="`autopipe eject` without --to writes its call with the arguments that a tune found best.",
        )
    arguments = ", ".join(f"{name}={value!r}" for name, value in config.loader.parameters.items())
    steps = "" if data.wanted_steps is None else f", steps_per_epoch={data.wanted_steps}"
    return {"call": f"{_name(data)}({arguments})", "steps": steps}


def notes(data: WrappedData, config: PipelineConfig) -> list[str]:
    """Return notes on the file for the caller."""
    own = _name(data)
    said = [
        f"The dataset is that of {own}, called with the arguments that were measured best.",
        f"Of the file that holds {own}, only that is needed: a file that imports autopipe may do without.",
    ]
    if config.device_prefetch:
        said.append(
            f"autopipe's trainer also puts {config.device_prefetch} batches on the device ahead; plain `fit` does not."
        )
    return said


def _name(data: WrappedData) -> str:
    return own_name("make_dataset", data.function)
