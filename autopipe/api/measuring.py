"""Measures trainings as they are configured: `ap.measure`."""

from __future__ import annotations

import contextlib
import logging
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from autopipe.api import request
from autopipe.api.request import Target
from autopipe.artifact import converting, pick
from autopipe.errors import ConfigError
from autopipe.hardware import machine
from autopipe.measure import fingerprint
from autopipe.measure import formats as encoding
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.rows import Row
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline import wrap
from autopipe.pipeline.batching import trace as traces
from autopipe.pipeline.config import ModelSetup, PipelineConfig, SettingValue
from autopipe.pipeline.devices.simulated import NO_MODEL, SimulatedAccelerator
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.reports import tables, wording
from autopipe.reports.answer import Answer
from autopipe.search import searching
from autopipe.search.measurer import succeeded
from autopipe.search.settings import Settings, simulation
from autopipe.values import Estimate, JsonObject, seconds

_ALONE_SECONDS: Final = 60.0  # after which no further value of a parameter is tried without the model
_LOG = logging.getLogger(__name__)


def measure(  # noqa: PLR0913  the entry point: what is asked for most, by keyword
    *workloads: request.Given,
    settings: Mapping[str, SettingValue] | Sequence[str] = (),
    batch_sizes: str | Sequence[int] = (),
    mode: Literal["train", "evaluate", "predict"] | None = None,
    simulate_step: str | SimulatedAccelerator | None = None,
    virtual_devices: int | None = None,
    page_cache: Literal["warm", "cold", "auto"] = "auto",
    time: str | float = 5.0,
    formats: bool = False,
    trace: Path | None = None,
) -> Answer[tuple[Row, ...]]:
    """Measure trainings: the model alone, the loader alone, both together, and what limits them.

    A workload is fed by threads, one for each core, and an artifact by its own configuration. Of one workload all is
    shown; several are rows of a table. A dataset of `ap.wrap` is read without its model, too.

    Args:
        workloads: workloads, names such as "train.py:workload", folders of images, artifacts; none: `tuned/`.
        settings: changes of the configuration: `{"loader.workers": 4}`, or texts such as "keep=memory".
        batch_sizes: measures the model alone at these sizes instead, a row each: `(16, 32)`, or "16,32".
        mode: what the model does with the batches; None: trains, or as the artifact was tuned for.
        simulate_step: an accelerator in the model's place, by its time a step: "15ms", or "224ms/400" for 400 images.
        virtual_devices: so many parts of the CPU stand for devices.
        page_cache: whether files are read from memory or from disk.
        time: the most seconds to measure, or a text such as "5s".
        formats: also encode some images anew in memory, and time decoding each format.
        trace: a file for a trace of the work over time.

    Raises:
        ConfigError: an argument is impossible.
        WorkloadError: the only workload cannot be imported or run.
        NothingMeasuredError: the only workload could not be measured for another reason.

    Examples:
        >>> ap.measure("train.py:workload", settings={"loader.workers": 4})     # doctest: +SKIP
    """
    args = {"mode": mode, "simulate_step": simulate_step, "virtual_devices": virtual_devices, "page_cache": page_cache}
    asked = request.settings_of(request.Search(**{k: v for k, v in args.items() if v is not None}))  # type: ignore[typeddict-item]
    as_tuned = mode is None and simulate_step is None and not virtual_devices
    pairs = [f"{name}={value}" for name, value in settings.items()] if isinstance(settings, Mapping) else list(settings)
    sizes = request.batch_sizes(batch_sizes) if batch_sizes != () else ()
    if (longest := seconds(time, "time")) < _LEAST_SECONDS:
        raise ConfigError(f"`time` must be at least {_LEAST_SECONDS:g} s, but got {time!r}.")
    targets = [request.target(each) for each in workloads or (None,)]
    of_one = {"batch_sizes": bool(sizes), "formats": formats, "trace": trace is not None}
    if len(targets) > 1 and any(of_one.values()):
        option = next(name for name in of_one if of_one[name])
        raise ConfigError(f"`{option}` takes one workload, but got {len(targets)}.", hint="Measure them one by one.")
    with traces.begun(trace) as trace_file:
        looks = [_Look(each, asked, pairs, longest, trace_file, as_tuned=as_tuned) for each in targets]
        if len(looks) > 1:
            found = tuple(look.row()[0] for look in looks)
            return Answer(found, tables.rows(found))
        if sizes:
            own, found = looks[0].sizes(sizes)
            return Answer(found, tables.rows(found, own=own))
        return looks[0].whole(formats=formats)


_LEAST_SECONDS: Final = 0.5
_READINGS: Final = 3  # of a part that reads less by itself than both together


class _Look:
    def __init__(
        self, target: Target, asked: Settings, pairs: list[str], longest: float, trace: str | None, *, as_tuned: bool
    ) -> None:
        self._target, self._pairs = target, pairs
        self._asked, self._usual = asked, PipelineConfig(loader=Threads(workers=machine.usable_cores()))
        if target.stored is not None:
            choice = pick.pick(target.stored.artifact, fingerprint.detect(), name=target.name)
            self._usual = choice.config
            if as_tuned:
                self._asked = simulation(choice.profile.request)
        request.changed(self._usual, request.of_loaders(pairs))  # before a child is started
        self._shortest = min(longest, 2.0)
        self._options: JsonObject = {
            "min_seconds": self._shortest,
            "max_seconds": longest,
            "page_cache": asked.page_cache,
            "trace": trace,
        }

    @contextlib.contextmanager
    def _described(self, settings: Settings) -> Iterator[tuple[TrialRunner, Description]]:
        said = searching.once(lambda remark: _LOG.warning("%s", remark.text))
        with searching.runner_for(self._target.workload, settings, said) as runner:
            yield runner, searching.description(runner)

    def _config(self, described: Description) -> PipelineConfig:
        if self._target.stored is not None:
            return request.changed(self._usual, self._pairs)
        return request.configured(self._usual, described.wrapped, self._pairs)

    def row(self) -> tuple[Row, Description]:
        """Measure parts and whole by turns, until no part reads less, or three times; a failure is in the row."""
        with self._described(self._asked) as (runner, described):
            config = self._config(described)
            pages: JsonObject = {"page_cache": self._options["page_cache"]}

            def loaded() -> Estimate | None:
                answer = runner.loader(config, pages)
                return None if isinstance(answer, TrialFailure) else answer.images_per_second

            alone = runner.ceiling(config.model_setup, pages)
            if isinstance(alone, TrialFailure):
                return Row.of(self._target.name, alone, config=config), described
            alone = alone.model_copy(update={"depths": described.depths})
            loader = None if described.wrapped is not None else loaded()
            both = runner.measure(config, self._options)
            row = Row.of(self._target.name, alone, both, config, loader)
            for _ in range(_READINGS - 1):
                low = row.too_low
                if "loader" in low and (again := loaded()) is not None and loader is not None:
                    loader = max(loader, again, key=lambda each: each.value)  # other programs can only slow a part down
                if "model" in low:
                    reading = runner.ceiling(config.model_setup, {**pages, "model_only": True, "again": True})
                    if isinstance(reading, Ceiling):
                        faster = max(alone, reading, key=lambda each: each.model_images_per_second.value)
                        alone = alone.model_copy(update={"model_images_per_second": faster.model_images_per_second})
                row = Row.of(self._target.name, alone, both, config, loader) if low else row
            return row, described

    def whole(self, *, formats: bool) -> Answer[tuple[Row, ...]]:
        kept = encoding.formats(converting.imported(self._target.workload)) if formats else None
        row, described = self.row()
        if row.failure is not None:
            succeeded(row.failure)
        assert row.config is not None  # it was measured
        without = tuple(self._without_model(row.config, described))
        loader = without[0].images_per_second if without else row.loader
        row = row.model_copy(update={"loader": loader, "without_model": without, "formats": kept})
        beside = described.model is not None
        shown: list[RenderableType] = [tables.measurement(row, self._asked.simulate, described.counted)] * beside
        shown += [*[Text()] * beside, tables.without_model(without)] if without else []
        shown += [] if kept is None else [Text(), tables.formats(kept)]
        return Answer((row,), Group(*shown))

    def sizes(self, sizes: Sequence[int]) -> tuple[int, tuple[Row, ...]]:
        with self._described(self._asked) as (runner, described):
            config = self._config(described)
            if uneven := [size for size in sizes if size % config.devices]:
                raise ConfigError(
                    f"Each of `batch_sizes` must divide equally between {config.devices} devices, but got {uneven[0]}.",
                    hint=f"Use multiples of {config.devices}.",
                )
            return described.batch_size, by_batch_size(runner, config.model_setup, described.batch_size, sizes)

    def _without_model(self, config: PipelineConfig, described: Description) -> list[Measurement]:
        """Measure a wrapped dataset alone: as it is, by worker processes, and by other parameters."""
        if described.wrapped is None:
            return []
        usual, around = config.loader.model_dump(), type(config.loader).model_fields
        choices = described.wrapped.choices if config.loader.takes_any else {}
        knobs = {name: values for name, values in choices.items() if name not in around}
        loaders = [usual, *({**usual, name: each} for name in knobs for each in knobs[name] if each != usual.get(name))]
        configs = [config.model_copy(update={"loader": type(config.loader).model_validate(each)}) for each in loaders]
        processes = Processes(workers=machine.usable_cores())
        if choices and described.wrapped.with_workers and described.against("loader", processes.kind) is None:
            arguments = {name: usual[name] for name in knobs if name in usual and name not in wrap.KNOBS}
            configs.insert(1, config.model_copy(update={"loader": processes, "arguments": arguments}))
        asked = {"min_seconds": self._shortest, "max_seconds": self._shortest}
        measurements = list[Measurement]()
        with self._described(Settings(simulate=NO_MODEL)) as (runner, _):
            ends_at = clock.monotonic() + _ALONE_SECONDS
            for number, each in enumerate((*configs, config)):
                last = each is config
                if not last and number > 1 and clock.monotonic() > ends_at:  # as usual, and one other, in any case
                    continue
                answer = runner.measure(each, {**asked, "lines": last})
                if each == config or not isinstance(answer, TrialFailure):
                    measurements.append(succeeded(answer))
                else:  # another value than the user's, such as processes for a dataset that does not pickle
                    _LOG.warning("%s: %s", each.short(), wording.failed(answer))
        return measurements


def by_batch_size(runner: TrialRunner, setup: ModelSetup, batch_size: int, sizes: Sequence[int]) -> tuple[Row, ...]:
    """Measure the model alone at these sizes, in two rounds, of which the faster counts; memory is that of the first,
    which goes upward: a process keeps what it has taken. After a size for which memory is too small, larger ones are
    not tried.
    """

    def alone(size: int, **more: bool) -> Ceiling | TrialFailure:
        return runner.ceiling(setup, {"model_only": True, "samples": size, **more})

    found: dict[int, Ceiling | TrialFailure] = {}
    full: int | None = None
    for size in sorted(set(sizes)):
        if full is not None:
            message = f"not tried, because a batch of {full} takes too much memory"
            found[size] = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message=message)
            continue
        found[size] = answer = alone(size, resources=True)
        if isinstance(answer, TrialFailure) and answer.kind is FailureKind.OUT_OF_MEMORY:
            full = size
    for size, first in found.items():
        again = alone(size, again=True) if isinstance(first, Ceiling) else first
        if isinstance(again, Ceiling) and isinstance(first, Ceiling):  # other load can only slow a model down
            faster = max(first, again, key=lambda each: each.model_images_per_second.value)
            found[size] = faster.model_copy(update={"resources": first.resources})
    named = {size: f"batch {size}{' (own)' if size == batch_size else ''}" for size in found}
    return tuple(Row.of(named[size], answer, batch_size=size) for size, answer in found.items())
