"""What an artefact holds, as text."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.reports import wording
from autopipe.tuned.pick import Choice, parse_config
from autopipe.tuned.schema import Artifact, Profile


def render(artifact: Artifact, choice: Choice) -> RenderableType:
    """Return what `autopipe show` prints; `choice` is what this machine gets."""
    parts: list[RenderableType] = []
    for number, profile in enumerate(artifact.profiles, 1):
        mark = " (used on this machine)" if profile == choice.profile else ""
        parts += [Text(f"profile {number} of {len(artifact.profiles)}{mark}", style="bold"), _profile(profile), Text()]
    if choice.warning is not None:
        parts.append(Text(f"note: {choice.warning}", style="yellow"))
    return Group(*parts)


def _profile(profile: Profile) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column()
    hardware, rate = profile.hardware, profile.measurement.images_per_second
    gpus = ", ".join(gpu.name for gpu in hardware.gpus) or "no GPU"
    gpus += "" if hardware.visible_gpus is None else f" (CUDA_VISIBLE_DEVICES={hardware.visible_gpus})"
    gpus += f", {hardware.virtual_devices} virtual devices" if hardware.virtual_devices else ""
    cores = f"{hardware.cores} core{'' if hardware.cores == 1 else 's'}"
    backend = "" if hardware.keras_backend is None else f", Keras on {hardware.keras_backend}"
    table.add_row("machine", f"{cores} ({hardware.cpu_model}), {gpus}{backend}")
    table.add_row("config", wording.short(parse_config(profile.config)))
    table.add_row("images/s", f"{rate.value:,.0f} ({rate.low:,.0f} to {rate.high:,.0f})")
    if profile.share_of_ceiling is not None:
        table.add_row("share of ceiling", f"{profile.share_of_ceiling:.0%}")
    for baseline in profile.baselines:
        before = baseline.images_per_second.value
        table.add_row(
            baseline.name, f"{before:,.0f} images/s: {rate.value / before:.2f} times faster now" if before else "failed"
        )
    table.add_row("measured", f"{profile.measured_at:%Y-%m-%d %H:%M} UTC, study {profile.study or 'unnamed'}")
    return table
