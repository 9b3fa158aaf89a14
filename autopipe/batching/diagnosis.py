"""Finds out what went wrong with a batch that a foreign pipeline failed to make.

tf.data and Keras's enqueuer lose the error on its way: what arrives is their own, with a text. The batch is made once
more by the kernel, which names op and sample.
"""

from __future__ import annotations

from autopipe.batching.kernel import Kernel
from autopipe.batching.shared_memory import RowLayout, SharedBlock
from autopipe.core.job import LoadJob
from autopipe.errors import AutopipeError, ConfigError


def failure_of(job: LoadJob, epoch: int, batch: int) -> AutopipeError | None:
    """Return the error that the kernel raises on a batch, with its cause, or None if it makes it."""
    indices = job.order.epoch(epoch)[batch * job.order.batch_size :][: job.order.batch_size]
    layout = RowLayout(job.recipe.spec, len(indices))
    try:
        Kernel(job.recipe).fill(epoch, indices, layout.arrays(SharedBlock(layout.size)))
    except AutopipeError as error:
        return error
    return None


def refuse_skipping(job: LoadJob, kind: str) -> None:
    """Refuse a workload that skips bad samples, for a loader that cannot count them.

    Raises:
        ConfigError: the workload has `on_bad_sample="skip"`.
    """
    if job.recipe.on_bad_sample == "skip":
        raise ConfigError(
            f'The `{kind}` loader cannot replace and count bad samples, but the workload has on_bad_sample="skip".',
            hint="Use the `threads` or `processes` loader, or remove the bad samples.",
        )
