"""The results of verifications as text: equal batches of configurations, and samples at which a training would stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autopipe.artifact.verifying import FileVerification
from autopipe.measure.outcome import Agreement, Verification

TOLERANCE = 1.01 / 255
"""The largest difference between TensorFlow's decode and resize and OpenCV's, of values in 0..1: one level of 8 bits.
"""

_WHAT_TO_DO = (
    "let functions of your own draw no random numbers but those they are given, by ap.Map(function, random=True), and "
    "let them and the source remember nothing of the samples before"
)

_TWICE = "Workers that draw the same random numbers do so; or the data hold samples twice."
_CHANGED = "Take the parameter out of the search, or mend the function: shuffle behind the cache, say."


def agrees(verification: Verification) -> bool:
    """Return True if all that ran gave the same samples, with pixels that differ by at most one level."""
    return all(_agrees(each) for each in verification.agreements if each.has_run)


def render(verification: Verification) -> RenderableType:
    """Render the output of `autopipe verify`: a line for each configuration, and the verdict over all."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    # The widest column shrinks first, which is the configuration unless an error says why nothing can be compared.
    table.add_column("against the first" if verification.compared else "samples", overflow="fold")
    table.add_column("configuration", overflow="fold")
    for number, each in enumerate(verification.agreements):
        if verification.compared:
            verdict = "is the first" if number == 0 and _agrees(each) else _verdict(each)
        else:
            before = f"{each.repeated:,} of {each.samples:,} came before"
            verdict = before if each.message is None else f"{before}; {each.message}" if each.has_run else each.message
        table.add_row(Text(verdict, style="" if _agrees(each) else "bold red"), each.config.short())
    lines = [_over_all(verification)]
    if verification.compared and any(_verdict(each).startswith("other") for each in verification.agreements):
        lines.append(Text(f"next      {_WHAT_TO_DO}"))
    return Group(table, Text(), *lines)


def _over_all(verification: Verification) -> Text:
    ran = [each for each in verification.agreements if each.has_run]
    count, failed = len(verification.agreements), len(verification.agreements) - len(ran)
    wrong = sum(not _agrees(each) for each in ran)
    said = [f"{failed} of {count} configurations could not run (the table says why)"] * (failed > 0)
    if ran or not failed:
        said.append(_of_those_that_ran(verification.compared, ran, wrong, "that ran " * (failed > 0)))
    return Text(f"verdict   {'; '.join(said)}", style="bold red" if wrong or failed else "bold green")


def _of_those_that_ran(compared: bool, ran: Sequence[Agreement], wrong: int, which: str) -> str:
    samples = max((each.samples for each in ran), default=0)
    match bool(wrong), compared:
        case True, True:
            return f"{wrong} of {len(ran)} configurations {which}do not give the same batches."
        case True, False:
            kinds = (
                (sum(each.repeated > 0 for each in ran), f"gave samples twice in an epoch. {_TWICE}"),
                (sum(each.message is not None for each in ran), f"changed what is trained. {_CHANGED}"),
            )
            return " ".join(f"{count} of {len(ran)} configurations {which}{what}" for count, what in kinds if count)
        case False, True:
            return f"all {len(ran)} configurations {which}give the same batches, over {samples:,} samples."
        case _:
            whichever = "in any of those that ran" if which else "whatever the parameters"
            return f"no sample came twice in the first {samples:,} of an epoch, {whichever}."


def _agrees(agreement: Agreement) -> bool:
    return _verdict(agreement).startswith(("same", "within"))


def _verdict(agreement: Agreement) -> str:
    if agreement.message is not None:
        return agreement.message
    if agreement.missing or agreement.repeated:
        return f"other samples: {agreement.missing} missing, {agreement.repeated} repeated"
    if agreement.largest_difference == 0:
        return "same"
    scale = 1.0 if agreement.largest_value <= 1.5 else agreement.largest_value
    if agreement.largest_difference <= TOLERANCE * scale:
        return "within one level of 256"
    return f"other pixels, by up to {agreement.largest_difference / scale:.1%}"


def file_lines(found: FileVerification) -> Iterator[str]:
    """Yield the output of `autopipe verify --files`: a line for each bad sample, and the sum."""
    for each in found.bad:
        yield f"bad       {each.name}: {each.reason}"
    before = f", {found.resumed:,} of them by an earlier look that was stopped" if found.resumed else ""
    if not found.bad:
        yield f"verified  all {found.samples:,} samples can be read and decoded{before}"
        return
    yield f"verified  {found.samples:,} samples{before}: {len(found.bad):,} cannot be used"
    if len(found.bad) <= max(1, found.samples // 100):
        yield 'next      replace or remove them, or train with on_bad_sample="skip", which puts others in their place'
    else:
        yield 'next      replace or remove them; they are more than the 1 % that on_bad_sample="skip" puts up with'
