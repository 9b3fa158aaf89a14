"""`autopipe convert` writes samples in a form that is faster to read; `autopipe verify` checks loaders and samples."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

import typer
from typer import Option

from autopipe import again
from autopipe.cli import options, screen
from autopipe.cli.options import Exit


def convert(
    workload: options.WorkloadOptions = options.WORKLOAD,
    to: Annotated[str | None, Option(metavar="FORM", help="The form: array, the default, or tfrecord.")] = None,
    cut: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N",
            help="Keep samples after N of the first, deterministic ops; by default after as many as possible.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        Option(
            metavar="DIR", help="The folder or URL to write to; by default converted/FORM, where loaders look for it."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        options.count(
            help="Threads, or tasks of a cluster; by default one thread a core, or 32 if reads wait for a network."
        ),
    ] = None,
    shard: Annotated[
        str | None, Option(metavar="I/N", help="Write one part only, 0/N to N-1/N, for a job array.")
    ] = None,
    by: Annotated[
        str | None,
        Option(metavar="NAME=ADDRESS", help="Have the cluster at an address write, by the extension of that name."),
    ] = None,
    verify: Annotated[
        bool, Option("--verify", help="Then check the files, and compare samples with the source.")
    ] = False,
) -> None:
    """Write the samples of a workload in a form that reads faster.

    The first, deterministic ops are done once, as far as the form can hold their results. If a conversion was stopped,
    the same command continues it. Without --shard it joins the parts that were written with it.
    """
    from autopipe.api import samples

    try:
        with screen.bar("converting", unit="images") as on_progress:
            answer = samples.convert(
                workload.samples(),
                to=to,
                cut=cut,
                out=out,
                workers=workers,
                shard=shard,
                by=by,
                verify=verify,
                on_progress=on_progress,
            )
    except KeyboardInterrupt:
        screen.say("stopped   finished files stay; the same command continues from there")
        raise
    screen.say(str(answer))
    if answer.figures.record is None:
        whole = re.sub(r" --shard[ =]\S+", "", again.this())
        screen.say(f"next      when every part is written: {again.autopipe(*shlex.split(whole)[1:])}")


def verify(
    workload: options.WorkloadOptions = options.WORKLOAD,
    samples: Annotated[
        int | None, options.count(help="How many samples to compare: 256, or all of ap.wrap's that come in 10 s.")
    ] = None,
    space: Annotated[str, Option(metavar="NAME", help="The search space whose loaders are compared.")] = "default",
    files: Annotated[
        bool, Option("--files", help="Read and decode every sample, and list those that are damaged; run no loader.")
    ] = False,
    workers: Annotated[int | None, options.count(help="With --files: threads; one a core by default.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run every loader of a search space, and compare their batches.

    With a dataset of ap.wrap, look for samples that come twice and for random numbers that repeat.

    With --files, check every sample of the set instead. If such a check was stopped, the same command continues it.
    """
    from autopipe.api import samples as api
    from autopipe.artifact.verifying import FileVerification
    from autopipe.reports import tables

    asked = workload.samples() if files else workload.target()
    bar = screen.bar("checking" if files else "comparing", unit="samples")
    with screen.aside(), bar as on_progress:
        answer = api.verify(asked, samples=samples, space=space, files=files, workers=workers, on_progress=on_progress)
    screen.answer(answer, as_json=as_json)
    if isinstance(answer.figures, FileVerification):
        raise typer.Exit(Exit.DIFFERENT if answer.figures.bad else 0)
    if not tables.agrees(answer.figures):
        raise typer.Exit(Exit.DIFFERENT)
    every = answer.figures.agreements
    failed = [each.config.loader.model_extra or {} for each in every if not each.has_run]
    # Keras's worker processes are left out, as a tune leaves them out: not every dataset can be given to them.
    if failed and (len(failed) == len(every) or not all(each.get("use_multiprocessing") for each in failed)):
        raise typer.Exit(Exit.NOTHING_MEASURED)
