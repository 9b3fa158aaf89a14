"""`autopipe convert` writes samples in a form that is faster to read; `autopipe verify` checks loaders and samples."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe import again, registry
from autopipe.cli import options, screen
from autopipe.errors import ConfigError

if TYPE_CHECKING:
    from autopipe.artifact.converting import Job, Writer

_COULD_NOT_RUN = 3  # the exit status, as if nothing can be measured


def convert(
    workload: options.WorkloadOptions = options.WORKLOAD,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FORM",
            help="The form: array, the default, or tfrecord.",
        ),
    ] = None,
    cut: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Keep samples after N of the first, deterministic ops; by default after as many as possible.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The folder or URL to write to; by default converted/FORM, where loaders look for it."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads, or tasks of a cluster; by default one thread a core, or 32 if reads wait for a network.",
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Write one part only, 0/N to N-1/N, for a job array.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=ADDRESS", help="Have the cluster at an address write, by the extension of that name."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--verify", help="Then check the files, and compare samples with the source.")
    ] = False,
    finish: Annotated[
        str | None, typer.Option(metavar="DIR", help="Join the parts that --shard has written to DIR.")
    ] = None,
) -> None:
    """Write the samples of a workload in a form that reads faster.

    The first, deterministic ops are done once, as far as the form can hold their results. If a conversion was stopped,
    the same command continues it.
    """
    from autopipe.artifact import converting

    if finish is not None:
        screen.say(f"joined    {converting.finish(finish).samples:,} samples in {finish}")
        return
    part = _part(shard)
    if by is not None and shard is not None:
        raise ConfigError("`--by` writes all parts, but `--shard` asks for one.", hint="Leave one of them out.")
    chosen = workload.chosen_samples()
    job = converting.job(chosen.workload, to, out, cut="deepest" if cut is None else cut)
    writer = None if by is None else _writer(by)
    try:
        with screen.bar("converting", unit="images") as on_progress:
            done = job.run(workers=workers, part=part, by=writer, on_progress=on_progress)
    except KeyboardInterrupt:
        screen.say("stopped   finished files stay; the same command continues from there")
        raise
    _say_sizes(job)
    if done.record is None:
        screen.say(f"wrote     part {part[0]} of {part[1]} to {done.folder}")
        screen.say(f"next      when every part is written: {again.autopipe('convert', '--finish', str(done.folder))}")
        return
    kept = f", {done.kept:,} were there already" if done.kept else ""
    screen.say(f"wrote     {done.samples:,} samples to {done.folder} in {done.seconds:.1f} s{kept}")
    if check:
        screen.say(f"verified  every file, and {job.verify()} samples against the source")


def _writer(by: str) -> Writer:
    """Return what writes a set elsewhere, by NAME=ADDRESS."""
    name, equals, address = by.partition("=")
    found = registry.named(name, "autopipe.conversions") if equals else None
    if found is None:
        known = ", ".join(entry.name for entry in registry.declared("autopipe.conversions")) or "none is installed"
        raise ConfigError(f"`--by` must be NAME=ADDRESS with the name of an extension ({known}), but got {by!r}.")
    writer: Writer = found.writer(address)
    return writer


def _say_sizes(job: Job) -> None:
    """Print a line for each cut: the ops before it, and its size on disk."""
    from autopipe.hardware.machine import size_text
    from autopipe.values import count_text

    for depth, size in job.sizes.items():
        label, other = ("keeps", "") if depth == job.conversion.cut else ("or", f"  (--cut {depth})")
        screen.say(f"{label:9} samples after {count_text(depth, 'op')}: {size_text(size)}{other}")


def _part(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 1
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise ConfigError(f"`--shard` must be I/N with 0 <= I < N, such as 0/4, but got {text!r}.")
    return int(match[1]), int(match[2])


def verify(
    workload: options.WorkloadOptions = options.WORKLOAD,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="How many samples to compare: 256, or all of ap.wrap's that come in 10 s."),
    ] = None,
    space: Annotated[str, typer.Option(help="The search space whose loaders are compared.")] = "default",
    files: Annotated[
        bool, typer.Option("--files", help="Instead, read and decode every sample, and list those that are damaged.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="With --files: threads; one a core by default.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run every loader of a search space, and compare their batches.

    Of a dataset of ap.wrap, look for samples that come twice and for random numbers that repeat.

    With --files, check every sample of the set instead. If such a check was stopped, the same command continues it.
    """
    from autopipe.artifact import verifying
    from autopipe.pipeline.devices.simulated import SimulatedAccelerator
    from autopipe.reports import tables
    from autopipe.search import searching, settings

    if files:
        chosen = workload.chosen_samples()
        with screen.aside(), screen.bar("checking", unit="samples") as on_progress:
            found = verifying.verify_files(chosen.workload, workers=workers, on_progress=on_progress)
        print(found.model_dump_json(indent=2) if as_json else "\n".join(tables.file_lines(found)))
        raise typer.Exit(1 if found.bad else 0)
    untrained = settings.Settings(simulate=SimulatedAccelerator(0.001))  # batches are compared, so no model is built
    with (
        screen.working("comparing"),
        searching.runner_for(workload.chosen().workload, untrained, screen.warning()) as runner,
    ):
        verification = verifying.verify(runner, space=space, samples=samples)
    if as_json:
        print(verification.model_dump_json(indent=2))
    else:
        screen.show(tables.verification(verification))
    if not tables.agrees(verification):
        raise typer.Exit(1)
    if not all(each.has_run for each in verification.agreements):
        raise typer.Exit(_COULD_NOT_RUN)
