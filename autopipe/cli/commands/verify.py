"""`autopipe verify`: do all loaders give the same batches?"""

from __future__ import annotations

from typing import Annotated

import typer

from autopipe.cli import source


def verify(
    workload: source.Reference = None,
    images: source.Images = None,
    model: source.Model = "mobilenet_v2",
    image_size: source.ImageSize = 224,
    batch_size: source.BatchSize = 32,
    samples: Annotated[int, typer.Option(min=1, help="How many samples to compare.")] = 256,
    space: Annotated[str, typer.Option(help="The search space whose loaders are compared.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Run every loader that the search space would use, and compare their batches, sample by sample."""
    from rich.console import Console

    from autopipe.api import searching, verifying
    from autopipe.report import agreement

    chosen = source.choose(workload, images, model, image_size, batch_size)
    with Console(stderr=True).status("comparing"), searching.runner_for(chosen.workload) as runner:
        verification = verifying.verify(runner, space=space, samples=samples)
    if as_json:
        print(verification.model_dump_json(indent=2))
    else:
        Console().print(agreement.render(verification), soft_wrap=True)
    if not agreement.agrees(verification):
        raise typer.Exit(1)
