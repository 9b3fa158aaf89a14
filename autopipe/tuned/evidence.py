"""From what a study found to the profile that the artefact keeps of it."""

from __future__ import annotations

import dataclasses
import datetime
import urllib.parse
from collections.abc import Sequence

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Measurement
from autopipe.core.value import Estimate
from autopipe.core.workload import Workload
from autopipe.tuned import fingerprint
from autopipe.tuned.findings import Findings
from autopipe.tuned.schema import Baseline, Figures, Hardware, Limit, Profile, Tried, WorkloadDigest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a study found on this machine.

    Attributes:
        config: the best configuration.
        measurement: its measurement.
        proved: its rate in the confirmation run, which is then the one to keep.
        baselines: what people had before: name, configuration and rate.
        ceiling: what no configuration can exceed.
        tried: other configurations that did well, and their images per second; evidence for unknown machines.
        study: the study's name.
        study_url: the storage it is in.
        model: the digest of the model's structure (`fingerprint.model_digest`), where it was built.
        findings: all else that the search found.
    """

    config: PipelineConfig
    measurement: Measurement
    proved: Estimate | None = None
    baselines: Sequence[tuple[str, PipelineConfig, Estimate]] = ()
    ceiling: Ceiling | None = None
    tried: Sequence[tuple[PipelineConfig, float]] = ()
    study: str | None = None
    study_url: str | None = None
    model: str | None = None
    findings: Findings | None = None


def profile_of(
    found: Evidence,
    workload: Workload | WorkloadDigest,
    *,
    here: Hardware | None = None,
    now: datetime.datetime | None = None,
) -> Profile:
    """Return the profile of this machine.

    Args:
        found: what the study found.
        workload: what was tuned, or its digest where it is not imported here.
        here: the machine, looked at if None.
        now: the time of measurement, with time zone.
    """
    config = found.config.normalised()
    data = workload.data if isinstance(workload, Workload) else None
    return Profile(
        hardware=fingerprint.detect(data) if here is None else here,
        workload=fingerprint.workload_digest(workload, found.model) if isinstance(workload, Workload) else workload,
        config=config.model_dump(mode="json"),
        key=config.key(),
        measurement=Figures.of(found.measurement, found.proved),
        baselines=tuple(
            Baseline(name=name, config=baseline.normalised().model_dump(mode="json"), images_per_second=rate)
            for name, baseline, rate in found.baselines
        ),
        ceiling=None if found.ceiling is None else Limit.of(found.ceiling),
        tried=tuple(
            Tried(config=tried.normalised().model_dump(mode="json"), images_per_second=rate)
            for tried, rate in found.tried
        ),
        study=found.study,
        study_url=None if found.study_url is None else _without_password(found.study_url),
        findings=found.findings,
        measured_at=(now or datetime.datetime.now(datetime.UTC)).replace(microsecond=0),
    )


def _without_password(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.password is None:
        return url
    _, _, host = parts.netloc.rpartition("@")
    return urllib.parse.urlunsplit(parts._replace(netloc=f"{parts.username}@{host}"))
