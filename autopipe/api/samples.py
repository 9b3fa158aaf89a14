"""What is done with samples: `ap.convert` writes them in another form, and `ap.verify` compares what loaders give."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from rich.text import Text

from autopipe import registry
from autopipe.api import request
from autopipe.artifact import converting, verifying
from autopipe.artifact.converting import Writer
from autopipe.artifact.verifying import FileVerification
from autopipe.errors import ConfigError
from autopipe.hardware.machine import size_text
from autopipe.measure.outcome import Verification
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.storage.convert import Converted
from autopipe.reports import tables, terminal
from autopipe.reports.answer import Answer
from autopipe.values import count_text

_LOG = logging.getLogger(__name__)
_UNTRAINED = SimulatedAccelerator(0.001)  # batches are compared, so no model is built

OnProgress = Callable[[int, int], None]


def convert(  # noqa: PLR0913  the entry point: what is asked for most, by keyword
    workload: request.Given = None,
    *,
    to: str | None = None,
    cut: int | None = None,
    out: str | None = None,
    workers: int | None = None,
    shard: str | None = None,
    by: str | None = None,
    verify: bool = False,
    on_progress: OnProgress | None = None,
) -> Answer[Converted]:
    """Write the samples of a workload in a form that reads faster.

    The first, deterministic ops are done once, as far as the form can hold their results. If a conversion was stopped,
    or only some of its parts were written, the same call writes the rest and joins all.

    Args:
        workload: a workload, "train.py:workload", a folder of images, or an artifact.
        to: the form: "array", the default, or "tfrecord".
        cut: keep samples after so many of the first, deterministic ops; None: as many as possible.
        out: the folder or URL to write to; None: `converted/FORM`, where loaders look for it.
        workers: threads, or tasks of a cluster; None: one thread a core, or 32 if reads wait for a network.
        shard: "I/N" writes one part only, 0/N to N-1/N, for a job array.
        by: "NAME=ADDRESS" has the cluster at an address write, by the extension of that name.
        verify: then check the files, and compare samples with the source.
        on_progress: is called with the number of samples done and the total; None: a notebook shows both.

    Raises:
        WorkloadError: the workload cannot be imported, or its samples cannot be read.
        ConfigError: an argument is impossible.
        StorageError: the folder holds other files, or is full.

    Examples:
        >>> ap.convert("train.py:workload", to="array")         # doctest: +SKIP
    """
    part = _part(shard)
    if by is not None and shard is not None:
        raise ConfigError("`by` writes all parts, but `shard` asks for one.", hint="Leave one of them out.")
    writer: Writer | None = None
    if by is not None:
        name, equals, address = by.partition("=")
        if (extension := registry.named(name, "autopipe.conversions") if equals else None) is None:
            known = ", ".join(each.name for each in registry.declared("autopipe.conversions")) or "none is installed"
            raise ConfigError(f"`by` must be NAME=ADDRESS with the name of an extension ({known}), but got {by!r}.")
        writer = extension.writer(address)
    target = request.target(workload)
    job = converting.job(target.workload, to, out, cut="deepest" if cut is None else cut)
    told = on_progress or terminal.counted("converting", "samples")
    done = job.run(workers=workers, part=part, by=writer, on_progress=told)
    lines = []
    for depth, size in job.sizes.items():
        label, other = ("keeps", "") if depth == job.conversion.cut else ("or", f"  (--cut {depth})")
        lines.append((label, f"samples after {count_text(depth, 'op')}: {size_text(size)}{other}"))
    if done.record is None:
        lines.append(("wrote", f"part {part[0]} of {part[1]} to {done.folder}"))
    else:
        kept = f", {done.kept:,} were there already" if done.kept else ""
        lines.append(("wrote", f"{done.samples:,} samples to {done.folder} in {done.seconds:.1f} s{kept}"))
        if verify:
            lines.append(("verified", f"every file, and {job.verify()} samples against the source"))
    return Answer(done, Text("\n".join(f"{label:<10}{said}" for label, said in lines)))


def _part(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 1
    if (match := re.fullmatch(r"(\d+)/(\d+)", text.strip())) is None or not int(match[1]) < int(match[2]):
        raise ConfigError(f"`shard` must be I/N with 0 <= I < N, such as 0/4, but got {text!r}.")
    return int(match[1]), int(match[2])


def verify(
    workload: request.Given = None,
    *,
    samples: int | None = None,
    space: str = "default",
    files: bool = False,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> Answer[Verification] | Answer[FileVerification]:
    """Run every loader of a search space, and compare their batches; or read every sample of the set.

    With a dataset of `ap.wrap`, look for samples that come twice and for random numbers that repeat.

    Args:
        workload: a workload, "train.py:workload", a folder of images, or an artifact.
        samples: how many to compare; None: 256, or all of a wrapped dataset's that come in 10 s.
        space: the search space whose loaders are compared: a name, or a YAML file.
        files: read and decode every sample, and list those that are damaged; no loader is run.
        workers: threads that read the files; None: one on each core.
        on_progress: is called with the number of files done and the total; None: a notebook shows both.

    Raises:
        WorkloadError: the workload cannot be imported or run.
        SpaceError: there is no such space.

    Examples:
        >>> ap.verify("train.py:workload")      # doctest: +SKIP
    """
    if samples is not None and samples < 1:
        raise ConfigError(f"`samples` must be a whole number of 1 or more, but got {samples!r}.")
    target = request.target(workload)
    if files:
        told = on_progress or terminal.counted("checking", "samples")
        result = verifying.verify_files(target.workload, workers=workers, on_progress=told)
        return Answer(result, Text("\n".join(tables.file_lines(result))))
    from autopipe.search import searching, settings  # imports Optuna

    said = searching.once(lambda remark: _LOG.warning("%s", remark.text))
    with searching.runner_for(target.workload, settings.Settings(simulate=_UNTRAINED), said) as runner:
        compared = verifying.verify(runner, space=space, samples=samples)
    return Answer(compared, tables.verification(compared))
