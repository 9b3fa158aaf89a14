"""The lines on which making batches spends its time, and a wrapped dataset without its model, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autopipe.measure.lines import Line, Lines, Remedy
from autopipe.measure.outcome import Measurement
from autopipe.reports import wording
from autopipe.reports.terminal import figures, labelled

_NOTEWORTHY = 0.1  # of a line's time
_REMEDIES = {  # where nothing was timed
    Remedy.DECODE: "`ap.Decode` decodes images",
    Remedy.MASK_TO_CLASS: "`ap.MaskToClass` finds the classes of all colours in one pass",
    Remedy.ONE_HOT: "a sparse loss takes class numbers; `ap.OneHot` makes one-hots on the device",
    Remedy.PROCESSES: "one thread at a time runs Python code; worker processes run it side by side",
    Remedy.WORKERS: "it waits, and takes no core; more threads (`workers=`, `num_parallel_calls=`) wait side by side",
    Remedy.LOCK: "threads wait there for each other",
}


def rows(found: Lines, measured: Mapping[Remedy, str], *, limits: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the lines, and what may help the slow ones, with the rates that were `measured` with it.

    `limits`: whether the training waits for data.
    """
    yield "slow lines", "of making data" + ("" if limits else ", which does not limit this training")
    for line in found.lines:
        share = "beside" if line.beside else f"{line.seconds / found.seconds:.0%}"
        yield "", f"{share} {line.file}:{line.line} {line.call or line.code} ({_parts(line)})"
    told = set()
    for line in found.lines:
        remedy = line.remedy if line.seconds >= _NOTEWORTHY * found.seconds else None
        if remedy is None or remedy in told or (found.forked and remedy is Remedy.PROCESSES):
            continue
        told.add(remedy)
        took = found.tried.get(remedy, {}).items()
        timed = ", ".join(f"{name} {wording.milliseconds(seconds)}" for name, seconds in took)
        rate = measured.get(remedy, "not timed")
        text = f"{timed} (a core's time for an image)" if timed else f"{_REMEDIES[remedy]} ({rate})"
        yield "instead", f"of line {line.line}: {text}"


def _parts(line: Line) -> str:
    names = ("processor", "reads and sleeps", "locks", "no free core")
    shares = zip(names, (*line.shares, 1 - sum(line.shares)), strict=True)
    return ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= _NOTEWORTHY)


def alone(found: Sequence[Measurement]) -> RenderableType:
    """Render a wrapped dataset without its model; the last measurement has the lines."""
    table = figures("the dataset without the model", "images/s", words=("the dataset without the model",))
    usual, *others = found[:-1]
    for each in (usual, *others):
        table.add_row(wording.config(each.config), wording.rates(each.images_per_second))
    if (seen := found[-1].lines) is None:
        return table
    measured, processes = dict[Remedy, str](), [each for each in others if each.ran.processes]
    for remedy, tried in ((Remedy.WORKERS, others), (Remedy.PROCESSES, processes)):
        if tried:
            best = max(tried, key=lambda each: each.images_per_second.value)
            rates = [wording.rate(each.images_per_second.value) for each in (best, usual)]
            measured[remedy] = f"{wording.config(best.config)}: {rates[0]} images/s instead of {rates[1]}"
    return Group(table, Text(), labelled(rows(seen, measured)))
