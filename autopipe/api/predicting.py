"""From an artefact to what predictions for other machines rest on."""

from __future__ import annotations

from pathlib import Path

from autopipe import again
from autopipe.core.correction import Measured
from autopipe.errors import ArtifactError
from autopipe.tuned import artifact as files
from autopipe.tuned import fingerprint, pick


def measured(artifact: Path) -> Measured:
    """Return what the profile for this machine, or else the nearest one, says was measured.

    Raises:
        ArtifactError: the artefact cannot be read, or keeps no costs.
    """
    profile = pick.pick(files.read(artifact), fingerprint.detect(), name=str(artifact)).profile
    findings = profile.findings
    if findings.ceiling is None or not findings.ceiling.op_costs:
        raise ArtifactError(
            f"Predictions need what each op costs, which the profile in `{artifact}` does not keep.",
            hint="The ops of a wrapped dataset cannot be told apart; those of other workloads are measured by: "
            + again.autopipe("retune", artifact),
        )
    winner = pick.config_of(profile)
    pairs = [(winner, profile.measurement.images_per_second.value)]
    pairs += [
        (config, each.images_per_second)
        for each in profile.tried
        for config in pick.readable([each.config])
        if config != winner and not config.loader.is_foreign
    ]
    return Measured(
        ceiling=findings.ceiling,
        batch_size=profile.workload.batch_size,
        winner=winner,
        pairs=pairs,
        cache_bytes=findings.cache_bytes,
        memory_bytes=profile.hardware.memory_bytes,
    )
