"""Writes the files of a command: the artifact, the module and the report, into a folder that was checked before."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autopipe import again
from autopipe.api import loading
from autopipe.artifact import artifact as files
from autopipe.artifact import codegen, factory, pick, reference, schema
from autopipe.cli import screen
from autopipe.errors import ArtifactError
from autopipe.hardware.machine import size_text
from autopipe.pipeline import assembly
from autopipe.workload.mode import Mode

_ROOM_BYTES = 512 << 10
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def reserved(folder: Path) -> Iterator[None]:
    """Keep room for the files of the end; a new folder is removed if the block fails before it writes."""
    is_new = not os.path.exists(folder)  # noqa: PTH110  which raises where a folder above may not be looked into
    refused = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refused = f"must be a folder that can be made, but got {str(folder)!r}: {error.strerror}."
    if refused is None and not os.access(folder, os.W_OK | os.X_OK):
        refused = f"must be writable, but {str(folder)!r} is not."
    if refused is not None:
        raise ArtifactError(f"`--out` {refused}", hint="Choose another with --out DIR.")
    try:
        with contextlib.ExitStack() as kept:
            try:
                file = kept.enter_context(tempfile.TemporaryFile(dir=folder))  # without a name: nothing stays of it
                os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
            except OSError as error:
                if error.errno in _FULL:
                    raise ArtifactError(
                        f"`{folder}` must have room for {size_text(_ROOM_BYTES)}, but: {error.strerror}.",
                        hint="Make some, or choose another folder with --out DIR.",
                    ) from None
            yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # something is in it
                folder.rmdir()
        raise


def write_outputs(tuned: factory.Tuned, folders: Sequence[Path]) -> tuple[Path, Path]:
    """Write artifact and module into the first writable folder; else the hint holds the configuration."""
    failures = []
    for folder in folders:
        try:
            return codegen.write(tuned, folder)
        except ArtifactError as error:
            failures.append(error.message)
    config = tuned.config.model_dump_json()
    hint = f"The configuration that was found is ap.PipelineConfig.model_validate_json({config!r})."
    raise ArtifactError(" ".join(failures), hint=hint)


def use_beside(artifact: Path, profile: schema.Profile) -> str:
    """Return the command that trains, or reads an epoch, with the module beside an artifact; "" without."""
    module = artifact.with_name(reference.MODULE_NAME)
    if not module.is_file():
        return ""
    trains = profile.request.simulate is None and profile.workload.model is not None
    does = "t.make_trainer().fit(epochs=1)" if trains else "print(sum(1 for batch in t.make_loader().epoch(0)))"
    if profile.request.mode is not Mode.TRAIN and trains:
        does = f"t.make_trainer().{profile.request.mode}(t.TUNED.workload.data)"
    line = again.python("-c", f"import {module.stem} as t; {does}")
    others = ":$PYTHONPATH" if os.environ.get("PYTHONPATH") else ""
    # No `cd`: relative paths that the user's own code opens start at the folder of the tune.
    return f"PYTHONPATH={shlex.quote(str(module.parent))}{others} {line}"


def folder_of(storage_url: str | None) -> list[Path]:
    """Return the folder of a study in a file: the second choice if there is no room in `--out`."""
    _, sqlite, file = (storage_url or "").partition("sqlite:///")
    return [Path(file).parent] if sqlite and file else []


def say_next(artifact: Path, profile: schema.Profile, workload: str | None, arguments: Sequence[str]) -> None:
    """Write the report of a profile, and print its place and the next commands. `workload` is quoted for a shell; None
    if no samples have to be converted. `arguments` name the artifact on a command line.
    """
    config = pick.config_of(profile)
    form, depth = config.kept.form, config.kept.cut
    if workload is not None and config.kept.converts:
        out = artifact.parent / "converted" / assembly.set_name(form, depth)
        cut = f" --cut {depth}" if isinstance(depth, int) else ""
        convert = f"{again.autopipe('convert')} {workload} --to {form}{cut} --out {shlex.quote(str(out))}"
        screen.say(f"before    {convert}")
    with contextlib.suppress(ArtifactError):  # without room: `autopipe report` can write it later, from the artifact
        report = loading.of_profile(files.read(artifact), profile, use=use_beside(artifact, profile))
        screen.say(f"report    {report.save(artifact.with_name(loading.NAME))}")
    trains = [use_beside(artifact, profile)] if reference.is_generated(artifact) else []
    below = "\n" + " " * 10
    screen.say(f"next      {below.join([*trains, again.autopipe('check', *arguments)])}")
