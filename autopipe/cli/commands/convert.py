"""`autopipe convert`: writes the samples once, in a form that is faster to read."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from autopipe import again, registry
from autopipe.cli import options, screen
from autopipe.errors import ConfigError

if TYPE_CHECKING:
    from autopipe.artifact.converting import Job, Writer
    from autopipe.pipeline.storage.convert import Converted

_WRITERS = dict(registry.loaded("autopipe.conversions", "conversion"))
"""Modules that write sets elsewhere, by the name of their option. Each has a `writer`, a `METAVAR` and a `HELP`."""

if TYPE_CHECKING:
    Elsewhere: TypeAlias = Any
else:
    Elsewhere = dataclasses.make_dataclass(
        "Elsewhere",
        [
            (name, Annotated[str | None, typer.Option(metavar=each.METAVAR, help=each.HELP)], None)
            for name, each in _WRITERS.items()
        ],
        frozen=True,
    )

_HERE: Elsewhere = Elsewhere()


def convert(
    context: typer.Context,
    workload: options.WorkloadOptions = options.WORKLOAD,
    to: Annotated[str | None, typer.Option(metavar="FORM", help="The form: array, the default, or tfrecord.")] = None,
    cut: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Keep samples after N of the deterministic first ops; as many as it can, by default.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The folder or URL to write to; converted/FORM by default, where loaders look for it."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads, or tasks of a cluster; by default one thread a core, and 32 where they wait for a network.",
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Write one part only, 0/N to N-1/N, for a job array.")
    ] = None,
    elsewhere: Elsewhere = _HERE,
    check: Annotated[
        bool, typer.Option("--verify", help="Then check the files, and samples against the source.")
    ] = False,
    finish: Annotated[
        str | None, typer.Option(metavar="DIR", help="Join the parts that --shard has written to DIR.")
    ] = None,
) -> None:
    """Write the samples of a workload in a form that reads faster.

    The deterministic first ops are done once, as far as the form can hold their results. A conversion that was stopped
    continues when the same command is run again.
    """
    from autopipe.artifact import converting

    if finish is not None:
        idle = "with `--finish`, which joins parts that are written"
        options.refuse_idle(context, "to", "cut", "out", "workers", "shard", *_WRITERS, "check", why=idle)
        manifest = converting.finish(finish)
        screen.say(f"joined    {manifest.header.samples:,} samples in {finish}")
        return
    part = _part(shard)
    asked = options.given(context, _WRITERS)
    if asked and shard is not None:
        said = f"`--{asked[0]}` writes all parts, but `--shard` asks for one."
        raise ConfigError(said, hint="Leave one of them out.")
    chosen = workload.chosen()
    job = converting.job(chosen.workload, to or converting.usual_form(), out, cut="deepest" if cut is None else cut)
    done = _run(job, workers, part, _WRITERS[asked[0]].writer(getattr(elsewhere, asked[0])) if asked else None)
    _say_sizes(job)
    if done.manifest is None:
        screen.say(f"wrote     part {part[0]} of {part[1]} to {done.folder}")
        screen.say(f"next      when every part is written: {again.autopipe('convert', '--finish', str(done.folder))}")
        return
    kept = f", {done.kept:,} were there already" if done.kept else ""
    screen.say(f"wrote     {done.samples:,} samples to {done.folder} in {done.seconds:.1f} s{kept}")
    if check:
        screen.say(f"verified  every file, and {job.verify()} samples against the source")


def _say_sizes(job: Job) -> None:
    """Print a line for each cut: the ops before it, and its size on disk."""
    from autopipe.hardware.machine import size_text
    from autopipe.reports import wording

    for depth, size in job.sizes.items():
        chosen = depth == job.conversion.cut
        other = "" if chosen else f"  (--cut {depth})"
        screen.say(
            f"{'keeps' if chosen else 'or':9} samples after {wording.count(depth, 'op')}: {size_text(size)}{other}"
        )


def _run(job: Job, workers: int | None, part: tuple[int, int], by: Writer | None) -> Converted:
    try:
        with screen.bar("converting", unit="images") as on_progress:
            return job.run(workers=workers, part=part, by=by, on_progress=on_progress)
    except KeyboardInterrupt:
        screen.say("stopped   what is finished stays; the same command goes on from there")
        raise


def _part(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 1
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise ConfigError(f"`--shard` must be I/N with 0 <= I < N, such as 0/4, but got {text!r}.")
    return int(match[1]), int(match[2])
