"""The findings of a diagnosis as text: the rate, the use of time, a verdict, and code to paste."""

from __future__ import annotations

from rich.table import Table

from autopipe.extensions.diagnose.watched import Verdict, Watched
from autopipe.reports import wording
from autopipe.reports.terminal import labelled

_NOTEWORTHY = 0.1  # of the model's time, that its augmentation takes


def render(watched: Watched) -> Table:
    """Return the table that `autopipe diagnose` prints; the code to paste is in `to_paste`."""
    return labelled(rows(watched))


def rows(watched: Watched) -> list[tuple[str, str]]:
    """Return the lines of the table."""
    found = [
        ("images/s", wording.rate(watched.images_per_second)),
        ("model alone", _alone(watched)),
        ("a step", f"{_step(watched)} for {watched.images / watched.steps:.3g} images: {_shares(watched)}"),
    ]
    if watched.augmentation:
        found.append(("augmentation", _augmentation(watched)))
    found += [
        ("resources", wording.resources(watched.resources, watched.cores) or "not known"),
        (
            "watched",
            f"{watched.steps} steps, {wording.seconds(watched.seconds)}; the first of all took "
            f"{wording.seconds(watched.first_step_seconds)}",
        ),
        ("data", f"{watched.data or 'not seen'} ({watched.backend})"),
    ]
    if watched.left_out:
        found.append(("left out", f"{', '.join(watched.left_out)}: may write files; `--callbacks` runs them"))
    found += [("note", warning) for warning in watched.warnings]
    return [*found, ("verdict", sentence(watched))]


def sentence(watched: Watched) -> str:
    """Return the verdict in one sentence."""
    gain = watched.possible_gain or 1.0
    up_to = f"up to {gain:.1f}x" if gain < 100 else "more than 100x"
    return _SENTENCES[watched.verdict].format(
        seen=watched,
        up_to=up_to,
        cheaper=_cheaper_model(watched),
        tune="`autopipe tune`" if watched.data == "autopipe" else "`autopipe tune` or `ap.wrap`",
    )


_SENTENCES = {
    Verdict.UNKNOWN: "{seen.waiting_share:.0%} of the time waits for data; what the model could do alone is not known.",
    Verdict.MODEL: "the model is the limit: nothing to gain from how its data are made{cheaper}",
    Verdict.CALLBACKS: "{seen.between_share:.0%} of the time goes between steps: callbacks, the progress bar, Keras. "
    "steps_per_execution=8 in model.compile, or fewer callbacks, is the next step.",
    Verdict.CORES: "{seen.slowed_share:.0%} of the time goes because steps take longer than they do alone: what makes "
    "the data, or another program, takes the same cores: {up_to}. A cheaper pipeline is the next step: {tune}.",
    Verdict.DATA: "{seen.waiting_share:.0%} of the time waits for data: {up_to}. {tune} is the next step.",
}


def _cheaper_model(watched: Watched) -> str:
    share = watched.augmentation_share
    if share is None or share < _NOTEWORTHY:
        return "."
    return f"; its own augmentation takes {share:.0%} of its time, which workers could do instead."


def to_paste(watched: Watched) -> str | None:
    """Return code that tunes such a training, for its owner to complete; None if there is nothing to gain."""
    if watched.verdict not in (Verdict.DATA, Verdict.CORES) or watched.data == "autopipe":  # which has a workload
        return None
    if watched.data == "arrays":
        return _HEAD + _ARRAYS.format(batch_size=watched.batch_size)
    parameters = _PARAMETERS.get(watched.data or "")
    hint = ", whose arguments change its speed and nothing else" if parameters else ""
    wrapped = _WRAP.format(hint=hint, parameters=f", parameters={parameters}" if parameters else "")
    return _HEAD + _NOTES.get(watched.data or "", "") + wrapped


_HEAD = """\
# tune_me.py: build_model() returns your compiled model. Then: autopipe tune tune_me.py:workload
import autopipe as ap

"""
_WRAP = """\
# make_dataset() returns what you give to fit{hint}.
workload = ap.wrap(make_dataset, model=build_model{parameters})
"""
_PARAMETERS = {
    "tf.data.Dataset": '{"num_parallel_calls": [1, 2, 4, 8], "prefetch": [1, 2, 8]}',
    "keras.utils.PyDataset": '{"workers": [1, 2, 4, 8], "max_queue_size": [4, 16]}',
    "torch DataLoader": '{"num_workers": [1, 2, 4, 8], "prefetch_factor": [2, 4]}',
}
_NOTES = {
    "keras.utils.PyDataset": """\
# Make it with use_multiprocessing=False: the workers are threads then, and none is forked once a framework has run.
""",
    "torch DataLoader": """\
# The workers of a DataLoader must not be forked once a framework has run:
# DataLoader(..., multiprocessing_context="forkserver" if num_workers else None)
""",
}
_ARRAYS = """\
# x, y: what you give to fit.
workload = ap.Workload(data=ap.Arrays(x, y), ops=[], batch_size={batch_size}, model=build_model)
"""


def _alone(watched: Watched) -> str:
    alone = watched.alone_images_per_second
    return "not known" if alone is None else f"{wording.rate(alone)} images/s on a batch that is already there"


def _step(watched: Watched) -> str:
    seconds = watched.seconds / watched.steps
    return wording.seconds(seconds) if seconds >= 1 else wording.milliseconds(seconds)


def _shares(watched: Watched) -> str:
    parts = [(watched.waiting_share, "waits for data")]
    if watched.slowed_share >= 0.005:
        parts.append((watched.slowed_share, "slower than alone"))
    if watched.between_share >= 0.005:
        parts.append((watched.between_share, "callbacks and Keras"))
    parts.append((max(0.0, 1 - sum(share for share, _ in parts)), "the model"))
    return ", ".join(f"{share:.0%} {what}" for share, what in parts)


def _augmentation(watched: Watched) -> str:
    names = ", ".join(watched.augmentation)
    share, alone = watched.augmentation_share, watched.alone_images_per_second
    if share is None or alone is None:
        return f"{names} in the model"
    step = watched.batch_size / alone
    return (
        f"{names} in the model: {wording.milliseconds(share * step)} of its {wording.milliseconds(step)} a step "
        f"({share:.0%})"
    )
