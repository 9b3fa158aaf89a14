"""The rules by which a machine gets a profile of an artifact, and profiles of several machines become one artifact.

Pure decisions over values: nothing is read, detected or warned about here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence

from autopipe import again
from autopipe.artifact.schema import Artifact, Live, Profile
from autopipe.errors import ArtifactError, ConfigError
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import Hardware, MatchLevel, compare_hardware
from autopipe.pipeline.config import PipelineConfig
from autopipe.search.settings import TRAINING, Asked
from autopipe.values import JsonObject
from autopipe.workload.mode import Mode

_USUAL_BACKEND = "tensorflow"  # Keras's default


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The profile for a machine."""

    config: PipelineConfig  # to run
    profile: Profile  # of the configuration
    match: fingerprint.Match  # the profile's machine compared with this one
    live: Live | None = None  # what gave the configuration, if that is a training on this machine after the profile
    warning: str | None = None  # for the user; None if the profile is this machine's own


def pick(artifact: Artifact, here: Hardware, *, strict: bool = False, name: str = "autopipe.json") -> Choice:
    """Choose for a machine what a training has learnt here, unless its own profile is later; else that profile, or else
    the nearest one. With `strict`, anything but the machine's own is an ArtifactError. Messages call the artifact
    `name`.
    """
    profile, match = nearest(artifact, here)
    model = None
    if _has_another_model(profile, max(artifact.profiles, key=lambda each: each.measured_at)):
        model = f"The profile was measured with another model than the artifact's latest one. {retune(name)}"
    is_same = match.level is MatchLevel.SAME
    live = None if strict and not is_same else live_of(artifact, here)
    if live is not None and not (is_same and profile.measured_at > live.trained_at):
        return Choice(config=parse_config(live.config), profile=profile, match=match, live=live)
    if is_same:
        return Choice(config=config_of(profile), profile=profile, match=match, warning=model)
    count = len(artifact.profiles)
    known, which = f"None of the artifact's {count} profiles is", "The nearest"
    if count == 1:
        known, which = "The artifact's only profile is not", "It"
    differences = "; ".join(map(str, match.differences))
    if strict:
        raise ArtifactError(f"{known} of this machine. {which} differs in {differences}.", hint=retune(name))
    if match.level is MatchLevel.NEAR:
        backend = next((each for each in match.differences if each.field == fingerprint.BACKEND), None)
        said = "The profile was measured on a machine like this one, which differs in "
        said += f"{differences}. {retune(name, backend)}"
    else:
        said = f"{known} of a machine like this one. {which} is taken all the same. "
        said += f"Its machine differs in {differences}. {retune(name)}"
    config, reduced = _with_devices_here(config_of(profile), here, profile.workload.batch_size)
    return Choice(config=config, profile=profile, match=match, warning=" ".join(filter(None, (said, reduced, model))))


def retune(name: str = "autopipe.json", backend: fingerprint.Difference | None = None) -> str:
    """Tell how to make a profile of this machine, and of another backend, in the artifact at this path."""
    command = again.autopipe("retune", name)
    if backend is None:
        return f"Run `{command}` on this machine."
    as_tuned = f"To train as it was tuned, set KERAS_BACKEND={backend.known} before Keras is imported."
    return f"{as_tuned} To tune for {backend.here}, run `KERAS_BACKEND={backend.here} {command}`."


def nearest(artifact: Artifact, here: Hardware, asked: Asked = TRAINING) -> tuple[Profile, fingerprint.Match]:
    """Return the profile of the machine most similar to `here`, tuned for the same if possible, and the comparison."""
    profile = ranked(artifact, here, asked)[0]
    return profile, compare_hardware(profile.hardware, here)


def ranked(artifact: Artifact, here: Hardware, asked: Asked = TRAINING) -> list[Profile]:
    """Return all profiles: those that were tuned for this first, then by the machine's similarity, then the latest."""
    latest_first = sorted(artifact.profiles, key=lambda profile: profile.measured_at, reverse=True)
    return sorted(latest_first, key=lambda known: (known.request.asked != asked, _distance(here, known)))


def beside(artifact: Artifact, profile: Profile, mode: Mode) -> Profile | None:
    """Return the profile of the same machine and workload that was tuned for a mode, if there is one."""
    same = (each for each in artifact.profiles if _are_same(each.hardware, profile.hardware))
    return next((each for each in same if each.request.asked == (mode, None)), None)


def warm_start(artifact: Artifact, here: Hardware, elsewhere: Sequence[PipelineConfig] = ()) -> list[PipelineConfig]:
    """Return a retune's first configurations: each profile's best, those of `elsewhere`, then other good ones."""
    profiles = ranked(artifact, here)
    best = readable(profile.winner.config for profile in profiles)
    measured = readable(config for profile in profiles for config, _ in profile.result.measured())
    others = [each for each in measured if not each.loader.is_foreign]
    return list({config.key(): config for config in (*best, *elsewhere, *others)}.values())


def contenders(profile: Profile) -> list[tuple[PipelineConfig, float]]:
    """Return the strongest rival of a profile's winner (of another kind, if there is one) and the fastest baseline,
    with their rates over its own, 1 if slower; no conversion, which takes too long, and none of the user's own code.
    """
    result, winner, rate = profile.result, config_of(profile), profile.winner.images_per_second.value
    paired = {each.key: 1 / each.ratio for each in result.contests}
    measured = [(each, made / rate) for config, made in result.measured() for each in readable([config])]
    trained = [(each, paired.get(each.key(), ratio)) for each, ratio in measured]
    raced = readable(each.config for each in sorted(result.raced, key=lambda each: -each.images_per_second))
    alone = [(each.model_copy(update=winner.model_setup._asdict()), 1.0) for each in raced]
    others = [pair for pair in (*trained, *alone) if pair[0].key() != winner.key() and not pair[0].kept.converts]
    ours = [pair for pair in others if not pair[0].loader.is_foreign]
    unlike = [pair for pair in ours if (pair[0].loader.kind, pair[0].keep) != (winner.loader.kind, winner.keep)]
    theirs = [pair for pair in others if pair[0].loader.is_foreign and not getattr(pair[0].loader, "is_own", False)]
    return [(config, max(1.0, ratio)) for config, ratio in (*(unlike or ours)[:1], *theirs[:1])]


def live_of(artifact: Artifact, here: Hardware) -> Live | None:
    """Return the last live profile of this kind of machine: trainings with `tune="live"` write them."""
    same = (each for each in artifact.live if _are_same(each.hardware, here))
    return max(same, key=lambda live: live.trained_at, default=None)


def with_live(artifact: Artifact, live: Live) -> Artifact:
    """Return the artifact with this in the place of what was learnt on such a machine before."""
    others = (each for each in artifact.live if not _are_same(each.hardware, live.hardware))
    return artifact.model_copy(update={"live": (*others, live)})


def with_profile(artifact: Artifact, profile: Profile) -> Artifact:
    """Return the artifact with a profile in the place of its machine's for the same task, or beside the others."""
    task, here = profile.request.asked, profile.hardware
    others = (each for each in artifact.profiles if each.request.asked != task or not _are_same(each.hardware, here))
    return artifact.model_copy(update={"profiles": (*others, profile)})


def joined(fresh: Artifact, known: Artifact) -> Artifact:
    """Add the profiles of other machines from an older artifact; raises ArtifactError if the workloads differ."""
    _require_one_workload(known, fresh)
    known = known.model_copy(update={"workload": fresh.workload or known.workload})
    return functools.reduce(with_profile, fresh.profiles, known)


def merge(artifacts: Sequence[Artifact]) -> Artifact:
    """Unite profiles of artifacts, the latest of each machine and task; raises ArtifactError if workloads differ."""
    first = artifacts[0]
    for other in artifacts[1:]:
        _require_one_workload(first, other)
    every = (profile for artifact in artifacts for profile in artifact.profiles)
    # Of two of the same moment the text decides, so that the order of the artifacts does not.
    oldest, *later = sorted(every, key=lambda profile: (profile.measured_at, profile.model_dump_json()))
    merged = functools.reduce(with_profile, later, first.model_copy(update={"profiles": (oldest,), "live": ()}))
    learnt = sorted((live for artifact in artifacts for live in artifact.live), key=lambda live: live.trained_at)
    return functools.reduce(with_live, learnt, merged)


def config_of(profile: Profile) -> PipelineConfig:
    """Return a profile's configuration; raises ArtifactError if this release cannot read it."""
    return parse_config(profile.winner.config)


def parse_config(config: JsonObject) -> PipelineConfig:
    """Parse a configuration that is kept as JSON; raises ArtifactError if this release cannot read it."""
    try:
        return PipelineConfig.model_validate(config)
    except ConfigError as error:
        raise ArtifactError(
            f"The `config` of a profile cannot be used: {error.message}",
            hint=error.hint or "It may come from another release of autopipe. " + retune(),
        ) from error


def readable(configs: Iterable[JsonObject]) -> Iterator[PipelineConfig]:
    """Yield those that this release can read, with the installed plugins."""
    for config in configs:
        with contextlib.suppress(ArtifactError):
            yield parse_config(config)


def _require_one_workload(first: Artifact, other: Artifact) -> None:
    known, new = first.profiles[0].workload, other.profiles[0].workload
    differences = [each for each in fingerprint.compare_workload(known, new) if each.field in ("ops", "batch size")]
    apart = [each.words or f"{each.field} {each.known} and {each.here}" for each in differences]
    if all(_has_another_model(one, two) for one in first.profiles for two in other.profiles):
        apart.append("the models' structure")
    if apart:
        raise ArtifactError(
            f"Only artifacts of one workload can be merged, but these differ: {'; '.join(apart)}.",
            hint="Keep them in files of their own.",
        )


def _has_another_model(one: Profile, two: Profile) -> bool:
    """True if two profiles are of different models, as far as one release of Keras described both as they are."""
    models = (one.workload.model, two.workload.model)
    releases = {each.hardware.packages.get("keras", "").rpartition(".")[0] for each in (one, two)}
    simulated = any(each.request.simulate is not None for each in (one, two))
    return None not in models and models[0] != models[1] and len(releases) == 1 and not simulated


def _are_same(one: Hardware, two: Hardware) -> bool:
    return compare_hardware(one, two).level is MatchLevel.SAME


def _with_devices_here(config: PipelineConfig, here: Hardware, batch_size: int) -> tuple[PipelineConfig, str | None]:
    """Reduce the devices of a configuration to those here, and to a divisor of the batch; else it could not run."""
    most = min(config.devices, max(1, len(here.gpus), here.virtual_devices))
    devices = next(count for count in range(most, 0, -1) if batch_size % count == 0)
    if devices == config.devices:
        return config, None
    why = "" if devices == most else f", because a batch of {batch_size} cannot be shared between {most}"
    return config.model_copy(update={"devices": devices}), f"It trains on {devices} of {config.devices} devices{why}."


def _distance(here: Hardware, profile: Profile) -> tuple[int, float]:
    known = profile.hardware
    order = (MatchLevel.SAME, MatchLevel.NEAR, MatchLevel.OTHER)
    one, two = ((each.cores, 1 + len(each.gpus), 1 + each.memory_bytes) for each in (known, here))
    times = sum(abs(math.log(first / second)) for first, second in zip(one, two, strict=True))
    others = (known.storage != here.storage) + (known.keras_backend != (here.keras_backend or _USUAL_BACKEND))
    return order.index(compare_hardware(known, here).level), times + others
