"""The output of doctor, measure, check, show and verify. Each function takes values and returns text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.artifact import drift
from autopipe.artifact.schema import Artifact, Live, Profile
from autopipe.hardware.machine import Machine, opencv_installed, opencv_warning, size_text
from autopipe.measure import bottleneck as core_bottleneck
from autopipe.measure import costs as cost_model
from autopipe.measure.facts import Ceiling
from autopipe.measure.fingerprint import Hardware
from autopipe.measure.lines import Lines
from autopipe.measure.outcome import Agreement, Measurement, Verification
from autopipe.measure.rows import Formats, Row
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.reports import verdict, wording
from autopipe.reports.ladder import FIGURES
from autopipe.reports.terminal import figures, labelled
from autopipe.values import count_text
from autopipe.workload.ops.headers import Progressive

if TYPE_CHECKING:  # which imports Optuna
    from autopipe.artifact.verifying import FileVerification

_NOTE = Text("note", style="bold yellow")
_STYLES = {drift.Verdict.FITS: "bold green", drift.Verdict.STALE: "bold yellow", drift.Verdict.DRIFTED: "bold red"}


def machine(
    found: Machine,
    tested: Mapping[str, str],
    *,
    library: str,
    images: Progressive | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Render a machine for `autopipe doctor`, with `tested` versions, the native library, images and notes."""
    cpu, memory, opencv_found = found.cpu, found.memory, opencv_installed()
    gpus = [
        f"{gpu.name}{'' if gpu.memory_bytes is None else f', {size_text(gpu.memory_bytes)}'}, "
        f"driver {gpu.driver or 'unknown'}"
        for gpu in found.gpus
    ]
    notes = [*notes, *cpu.limits, *filter(None, [opencv_warning(opencv_found)])]
    return labelled(
        [
            ("cores", f"{cpu.cores} usable of {cpu.logical_cores} ({cpu.model})"),
            ("memory", f"{size_text(memory.available_bytes)} free of {size_text(memory.usable_bytes)}"),
            *(("GPU", said) for said in gpus or ["none found by NVML"]),
            ("system", f"{found.os}, {found.kernel}, Python {found.python}"),
            *(
                (name, f"{version or 'not installed'}{f' (tested: {tested[name]})' if name in tested else ''}")
                for name, version in found.versions.items()
            ),
            ("OpenCV package", ", ".join(f"{name} {version}" for name, version in opencv_found.items()) or "none"),
            ("native library", library),
            *(("progressive JPEG", wording.progressive(each)) for each in [images] if each is not None),
            *((_NOTE, note) for note in notes),
        ]
    )


def rows(found: Sequence[Row], *, own: int | None = None) -> RenderableType:
    """Render trainings side by side, with what limits each; `own` is the workload's batch size, if rows are such."""
    shown = [each.alone.resources for each in found if each.alone is not None and each.alone.resources]
    of_memory = "gpu_memory_bytes" if any(each.gpu_memory_bytes for each in shown) else "peak_rss_bytes"
    memory = ["GPU memory" if of_memory == "gpu_memory_bytes" else "memory"] * bool(shown)
    table = figures("images/s", *(column.title for column in FIGURES), *memory, words=("images/s",))
    usual = next((each.model.value for each in found if each.batch_size == own and each.model is not None), None)
    notes = list[Text]()
    for each in found:
        used, values = None if each.alone is None else each.alone.resources, each.figures
        taken = None if used is None else getattr(used, of_memory)
        cells = ["" if taken is None else size_text(taken)] * bool(shown)
        table.add_row(each.name, *(column.show(values) for column in FIGURES), *cells)
        why = wording.failed(each.failure) if each.failure is not None else each.limit
        if why is None and usual is not None and each.model is not None and each.batch_size != own:
            why = f"{wording.times(each.model.value / usual)} the workload's own rate"
        notes += [Text(f"{each.name}: {said}") for said in (why, each.doubt) if said is not None]
    return Group(table, Text(), *notes) if notes else table


def measurement(row: Row, simulated: SimulatedAccelerator | None = None, counted: str | None = None) -> RenderableType:
    """Render a workload whose parts and whole were measured; `counted` are the parts of x that make a sample."""
    found, config, ceiling = row.both, row.config, row.alone
    assert found is not None and config is not None and ceiling is not None  # noqa: PT018  all were measured
    rate, limits = found.images_per_second, cost_model.bounds(ceiling, config)
    unsteady = "" if found.stable else ", unsteady"
    share = min(1.0, rate.value / limits.images_per_second)
    fill, ran, threads = found.cache_fill_seconds, found.ran, cost_model.turns(config.loader, ceiling.cores or 1.0)
    used = None if simulated is None else simulated.utilisation(rate.value, found.batch_size)
    lines: list[tuple[str | Text, str | None]] = [
        ("config", config.short()),
        ("together", f"{wording.rates(rate)}, {wording.count(len(found.windows), 'window')}{unsteady}"),
        ("share of bound", f"{share:.0%} of {wording.rate(limits.images_per_second)} images/s"),
        ("AU", None if used is None else f"{used:.1%} of the time the simulated accelerator computes"),
        ("waiting for data", f"{found.data_wait_share:.1%} of the time"),
        ("first batch", f"{found.first_batch_seconds:.3f} s after opening"),
        ("cache fill", None if fill is None else f"{fill:.1f} s for all samples, once"),
        ("Python", core_bottleneck.python_text(limits.work.paid, threads, ceiling.not_native)),
        ("elsewhere", wording.elsewhere(rate.value, found.hand_over_seconds, found.batch_size, config, limits) or None),
        ("resources", wording.resources(found.resources)),
        ("page cache", found.page_cache),
        ("ran", f"{ran.threads} threads, {ran.processes} processes on {', '.join(ran.devices)} ({ran.backend})"),
        *((_NOTE, note) for note in (*found.warnings, config.loader.pixels_differ())),
        (_NOTE, None if counted is None else wording.counted(counted)),
    ]
    costs: list[RenderableType] = [Text(), _costs(limits.costs)] if ceiling.op_costs else []
    return Group(rows([row]), Text(), labelled((label, said) for label, said in lines if said is not None), *costs)


def _costs(costs: Ceiling) -> Table:
    whole = sum(op.wall_seconds_per_image for op in costs.op_costs) or 1.0
    table = figures("an image costs", "wall", "core", "of it locked", "share", words=("an image costs",))
    for op in costs.op_costs:
        wall, core = map(wording.milliseconds, (op.wall_seconds_per_image, op.seconds_per_image))
        share = op.wall_seconds_per_image / whole
        table.add_row(op.name, wall, core, wording.locked(op.lock_seconds_per_image, native=op.native), f"{share:.0%}")
    table.add_row("the model", "", wording.milliseconds(costs.model_core_seconds_per_image), "", "")
    return table


def formats(found: Formats) -> Table:
    """Render `autopipe measure --formats`."""
    table = figures("part", "kept as", "images/s", "an image", "size", "error", words=("part", "kept as"))
    for form in found.forms:
        error = f"{form.mean_error:.2g}" if form.mean_error else "none"
        seconds, size = form.seconds_per_image, size_text(int(form.bytes_per_image))
        table.add_row(form.part, form.name, wording.rate(1 / seconds), wording.milliseconds(seconds), size, error)
    return table


def fitness(found: drift.Result) -> RenderableType:
    """Render `autopipe check`."""
    lines: list[tuple[str, str | Text]] = [("verdict", Text(found.verdict, style=_STYLES[found.verdict]))]
    lines += [*(("because", reason) for reason in found.reasons), ("age", wording.count(found.age_days, "day"))]
    if found.share is not None:
        then = "" if found.recorded_share is None else f", {found.recorded_share:.0%} when it was tuned"
        lines.append(("share of ceiling", f"{found.share:.0%} now{then}"))
    return Group(labelled(lines), Text(), rows(found.rows)) if found.rows else labelled(lines)


def profiles(
    artifact: Artifact,
    used: Profile | None,
    note: str | None,
    *,
    here: Hardware,
    now: datetime.datetime,
    live: Live | None = None,
) -> RenderableType:
    """Render `autopipe show`; `used` is this machine's profile, or `live` what a training learnt, with a `note`."""
    parts: list[RenderableType] = []
    for number, profile in enumerate(artifact.profiles, 1):
        mark = " (used on this machine)" if profile == used and live is None else ""
        parts.append(Text(f"profile {number} of {len(artifact.profiles)}{mark}", style="bold"))
        parts += [_profile(profile, here, now), Text()]
    for each in artifact.live:
        mark = " (used on this machine)" if each == live else ""
        parts += [Text(f"live, of a training{mark}", style="bold"), _live(each), Text()]
    if note is not None:
        parts.append(Text(f"note: {note}", style="yellow"))
    return Group(*parts)


def artifacts(found: Mapping[Path, Artifact], *, here: Hardware, now: datetime.datetime) -> Table:
    """Render `autopipe show` of a folder: a line for each profile of its artifacts."""
    titles = ("artifact", "machine", "tuned for", "images/s", "age", "fits this machine", "winner")
    table = figures(*titles, words={*titles} - {"images/s", "age"})
    for path, artifact in found.items():
        for profile in artifact.profiles:
            judged = drift.judge(profile, here, now)
            table.add_row(
                str(path),
                wording.machine(profile.hardware),
                wording.asked(profile.request),
                wording.rate(profile.winner.images_per_second.value),
                f"{judged.age_days} d",
                "yes" if judged.verdict is drift.Verdict.FITS else "no",
                wording.config(profile.winner.config),
            )
    return table


def _live(live: Live) -> Table:
    changes = [
        f"epoch {each.epoch + 1}: {each.after} in place of {each.before}, "
        + (each.failure or f"{wording.times(each.ratio or 1.0)}{'' if each.kept else ', taken back'}")
        for each in live.changes
    ]
    return labelled(
        [
            ("machine", wording.machine(live.hardware)),
            ("config", wording.config(live.config)),
            ("images/s", f"{wording.rates(live.images_per_second)}, waits for data {live.data_wait_share:.0%}"),
            ("trained", f"{live.trained_at:%Y-%m-%d %H:%M} UTC; not proved by a confirmation run"),
            ("changes", "\n".join(changes) or "none"),
        ]
    )


def _profile(profile: Profile, here: Hardware, now: datetime.datetime) -> Table:
    best, result = profile.winner, profile.result
    share = "" if best.share_of_model is None else f", {best.share_of_model:.0%} of the model alone"
    judged = drift.judge(profile, here, now)
    age, fits = wording.count(judged.age_days, "day"), judged.verdict is drift.Verdict.FITS
    said = "yes" if fits else f"no: {'; '.join(judged.reasons)}"
    gains = [
        f"{each.name}: {wording.unmeasured(each.failure)}"
        if (times := result.times_faster(each)) is None
        else f"{wording.times(times)} {each.name}{f' ({doubt})' if (doubt := verdict.doubt(result, each)) else ''}"
        for each in result.baselines
    ]
    return labelled(
        [
            ("machine", wording.machine(profile.hardware)),
            ("tuned for", wording.asked(profile.request)),
            ("winner", wording.config(best.config)),
            ("images/s", wording.rates(best.images_per_second) + share),
            ("gain", ", ".join(gains) or "compared with nothing"),
            ("age", f"{age}, measured {profile.measured_at:%Y-%m-%d %H:%M} UTC, study {result.study or 'unnamed'}"),
            ("fits this machine", Text(said, style="green" if fits else "yellow")),
        ]
    )


_TOLERANCE = 1.01 / 255  # of values in 0..1: a decoder of another library differs by one level of 8 bits at most


def agrees(verification: Verification) -> bool:
    """Return True if all that ran gave the same samples, with pixels that differ by at most one level."""
    return not verification.faults and all(_agrees(each) for each in verification.agreements if each.has_run)


def verification(found: Verification) -> RenderableType:
    """Render the output of `autopipe verify`: a line for each configuration, and the verdict over all."""
    # The widest column shrinks first, which is the configuration unless an error says why nothing can be compared.
    columns = ("against the first" if found.compared else "samples", "configuration")
    table = figures(*columns, words=columns)
    for number, each in enumerate(found.agreements):
        if found.compared:
            verdict = "is the first" if number == 0 and _agrees(each) else _comparison(each)
        else:
            before = _seen(each) if each.has_run else None
            verdict = "; ".join(filter(None, (before, each.message, each.random, each.unseen)))
        table.add_row(Text(verdict, style="" if _agrees(each) else "bold red"), each.config.short())
    differ = any(each.message is None and not _agrees(each) for each in found.agreements)
    advice = Text(
        "next      functions of your own must take random numbers only from the generator that ap.Map(function, "
        "random=True) gives them, and neither they nor the source may remember earlier samples"
    )
    lines = [*(("fault", said) for said in found.faults), *(("note", said) for said in found.notes)]
    notes = [labelled(lines)] * bool(lines)
    return Group(table, Text(), *notes, _over_all(found), *[advice] * (found.compared and differ))


def _seen(each: Agreement) -> str:
    read = f"{each.epochs} epochs" if each.epochs > 1 else "the beginning of an epoch"
    if each.is_pass:
        return f"{each.repeated:,} of {each.samples:,} came before ({read})"
    return f"{each.samples - each.repeated:,} of {each.samples:,} differ ({read})"


def _over_all(found: Verification) -> Text:
    ran = [each for each in found.agreements if each.has_run]
    count, failed = len(found.agreements), len(found.agreements) - len(ran)
    unseen = sum(each.unseen is not None for each in ran)
    said = [f"the dataset has {count_text(len(found.faults), 'fault')} (see above)"] * bool(found.faults)
    said += [f"{failed} of {count} configurations could not run (the table says why)"] * (failed > 0)
    if found.compared and (wrong := sum(not _agrees(each) for each in ran)):
        said.append(f"{wrong} of {len(ran)} configurations do not give the same batches")
    elif found.compared and ran:
        samples = max(each.samples for each in ran)
        said.append(f"all {len(ran)} configurations give the same batches, over {samples:,} samples")
    elif ran:
        said += _of_samples(ran, found)
    if unseen:
        said.append(f"whether random numbers repeat was not seen with {unseen} of {len(ran)} (the table says why)")
    style = "bold green" if agrees(found) and not failed else "bold red"
    return Text(f"verdict   {'; '.join(said)}.", style="yellow" if unseen and style == "bold green" else style)


def _of_samples(ran: Sequence[Agreement], found: Verification) -> Iterator[str]:
    if twice := sum(map(_came_twice, ran)):
        why = "workers draw the same random numbers, or the data hold samples twice or are several epochs (`steps=`)"
        why = "the fault above may be why" if found.faults else why
        yield f"{twice} of {len(ran)} configurations gave samples twice in an epoch: {why}"
    if changed := sum(each.message is not None for each in ran):
        remedy = "take the parameter out of the search, or mend the function: shuffle behind the cache, for example"
        yield f"{changed} of {len(ran)} configurations changed what is trained: {remedy}"
    if any(each.random for each in ran):
        yield "random numbers repeat (the table says how often, and what to do)"
    elif not (twice or changed):
        few, samples = max(each.repeated for each in ran), max(each.samples for each in ran)
        came = f"at most {few:,} samples" if few else "no sample"
        if found.hidden:
            yield "whether samples come twice was not seen, as random changes make another one of each"
        elif not all(each.is_pass for each in ran):
            yield "samples may come twice, as an epoch is the batches that `steps` counts"
        else:
            yield f"{came} came twice in the first {samples:,} of an epoch"
        if not any(each.unseen for each in ran):
            yield "no random numbers repeat"


def _agrees(agreement: Agreement) -> bool:
    differs = agreement.message or agreement.random or agreement.missing or _came_twice(agreement)
    return not differs and _difference(agreement) <= _TOLERANCE


def _came_twice(agreement: Agreement) -> bool:
    return agreement.is_pass and agreement.repeated > agreement.samples // 100  # many a set holds a few files twice


def _difference(agreement: Agreement) -> float:
    return agreement.largest_difference / (1.0 if agreement.largest_value <= 1.5 else agreement.largest_value)


def _comparison(agreement: Agreement) -> str:
    if agreement.message is not None:
        return agreement.message
    if agreement.missing or agreement.repeated:
        return f"other samples: {agreement.missing} missing, {agreement.repeated} repeated"
    if not _agrees(agreement):
        return f"other pixels, by up to {_difference(agreement):.1%}"
    return "within one level of 256" if agreement.largest_difference else "same"


def file_lines(found: FileVerification) -> Iterator[str]:
    """Yield the output of `autopipe verify --files`: a line for each bad sample, and the sum."""
    for each in found.bad:
        yield f"bad       {each.name}: {each.reason}"
    for said, count in found.lost.items():
        yield f"note      {count:,} of {found.samples - found.resumed:,} images {said}"
    before = f", {found.resumed:,} of them in an earlier run that was stopped" if found.resumed else ""
    if not found.bad:
        yield f"verified  all {found.samples:,} samples can be read and decoded{before}"
        return
    yield f"verified  {found.samples:,} samples{before}: {len(found.bad):,} cannot be used"
    if len(found.bad) <= max(1, found.samples // 100):
        yield 'next      replace or remove them, or train with on_bad_sample="skip", which takes others in their place'
    else:
        yield 'next      replace or remove them: they are more than the 1 % that on_bad_sample="skip" accepts'


# -------------------- slow lines, and a wrapped dataset without its model


def slow_lines(found: Lines, of: str = "of making data", *, limits: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the lines `of` something, each with its share of the time; `limits`: the training waits for data."""
    yield "slow lines", of + ("" if limits else ", which does not limit this training")
    for line in found.lines:
        share = "beside" if line.beside else f"{line.seconds / found.seconds:.0%}"
        computes = min(1.0, line.processor_seconds / line.seconds)
        yield "", f"{share} {line.file}:{line.line} {line.code} (computes {computes:.0%}, waits {1 - computes:.0%})"


def without_model(found: Sequence[Measurement]) -> RenderableType:
    """Render a wrapped dataset without its model; the last measurement has the lines."""
    table = figures("the dataset without the model", "images/s", words=("the dataset without the model",))
    for each in found[:-1]:
        table.add_row(wording.config(each.config), wording.rates(each.images_per_second))
    seen = found[-1].lines
    return table if seen is None else Group(table, Text(), labelled(slow_lines(seen)))
