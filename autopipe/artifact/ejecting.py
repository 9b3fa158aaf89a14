"""Writes a tuned pipeline as a file of plain code, without autopipe. `autopipe eject` calls it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from autopipe.artifact import pick
from autopipe.artifact.converting import imported
from autopipe.artifact.pin import Stored
from autopipe.artifact.schema import Profile
from autopipe.errors import ConfigError, near
from autopipe.measure import fingerprint
from autopipe.measure.trial import protocol
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject import module
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ejected:
    """Code without autopipe."""

    code: str
    config: PipelineConfig  # that it implements
    share: float  # its images/s as a part of the tuned configuration's, both as they were measured


def eject(stored: Stored, *, plain: bool = False) -> Ejected:
    """Return this machine's configuration as code.

    The workload is imported and a few of its samples are read.

    Args:
        stored: the artefact.
        plain: if plain code cannot express it, take the fastest measured configuration that it can express.

    Raises:
        ConfigError: plain code cannot express it; the message says why.
        WorkloadError: the workload cannot be imported.
    """
    choice = pick.pick(stored.artifact, fingerprint.detect())
    workload = _imported(stored.workload)
    if isinstance(workload.data, WrappedData):  # which has one form, its call
        return Ejected(code=module.eject(workload, choice.config), config=choice.config, share=1.0)
    plan = make_plan(workload)
    tuned = choice.profile.winner.images_per_second.value
    why = module.reasons_against(workload, choice.config, plan)
    if not why:
        return Ejected(code=module.eject(workload, choice.config), config=choice.config, share=1.0)
    others = [
        (config, rate)
        for config, rate in _measured(choice.profile)
        if not module.reasons_against(workload, config, plan)
    ]
    if plain and others:
        config, rate = others[0]
        return Ejected(code=module.eject(workload, config), config=config, share=rate / tuned)
    raise ConfigError(
        f"The tuned configuration cannot be written as plain code: {why}.",
        hint=f"The fastest measured one that can reaches {others[0][1] / tuned:.0%} of its images/s: use --plain."
        if others
        else "Neither can any other that was measured; --to tf.data and --to keras write usual ones.",
    )


def eject_usual(named: Workload | protocol.Reference, to: str) -> str:
    """Return a workload's pipeline in a usual form: the code of a baseline of a tune.

    Args:
        named: the workload, or its name.
        to: "tf.data", with AUTOTUNE everywhere; "tf.data-cache", which keeps decoded samples in memory; "keras", a
            PyDataset with Keras's defaults; "keras-workers", with a thread a core, or "keras-workers=32"; "directory",
            `image_dataset_from_directory`; "fit", arrays for `fit(x, y)`; or a form of an extension, such as "grain".

    Raises:
        ConfigError: the form does not exist, or plain code cannot express the pipeline; the message says why.
        WorkloadError: the workload cannot be imported.
    """
    try:
        module.named(to)
    except KeyError:
        known = ", ".join(module.FORMS)
        raise ConfigError(f"`--to` must be one of {known}, but got {to!r}.{near(to, module.FORMS)}") from None
    return module.eject(_imported(named), to)


def _imported(named: Workload | protocol.Reference) -> Workload:
    return named if isinstance(named, Workload) else imported(named.text, may_call=named.may_call)


def _measured(profile: Profile) -> Iterable[tuple[PipelineConfig, float]]:
    return [
        (config, rate)
        for known, rate in profile.result.measured()
        for config in pick.readable([known])
        if not config.loader.is_foreign
    ]
