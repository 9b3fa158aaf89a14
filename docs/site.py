"""MkDocs' hook for `make docs`: which files are pages of the site, and the pages that are made from the code.

Pages keep their places in the checkout, so that a link works there and here. A public name without a docstring of its
own is an error.
"""

from __future__ import annotations

import html
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import autopipe
from autopipe import registry
from autopipe.cli.main import application

ROOT = Path(__file__).resolve().parents[1]
_KINDS = {  # the heading of a public name, by where it lives
    "Functions": ("api.", "artifact.verifying", "extensions.diagnose", "pipeline.wrap"),
    "Data": ("workload.workload", "workload.data.", "extensions.hdf5", "extensions.huggingface", "extensions.tfds"),
    "Ops": ("workload.ops.",),
    "Configurations and loaders": ("pipeline.config", "pipeline.loaders.", "extensions.dali", "extensions.ray"),
    "Objects that come back": ("",),
    "Errors and warnings": (),
}
_SAID = ("Error", "Warning")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the pages of the checkout, what they link to, and the pages of the code."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    pages = (
        [ROOT / each for each in listed]
        or [  # without git: a source distribution
            path
            for path in ROOT.rglob("*.md")
            if not any(part[0] in "._" for part in path.relative_to(ROOT).parts[:-1])
        ]
    )
    linked = {
        target
        for page in pages
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8"))
        if (target := (page.parent / link).resolve()).is_file()
    }
    kept = [File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)) for path in {*pages, *linked}]
    kept.append(File.generated(config, "reference/commands.md", content="\n".join(_commands())))
    kept.append(File.generated(config, "reference/python.md", content="\n".join(_names())))
    return Files([*(each for each in files if not each.src_uri.endswith((".md", ".py", ".json", ".svg"))), *kept])


def _commands() -> Iterator[str]:
    """Yield the lines of the page of commands, from the help that they print."""
    group: Any = typer.main.get_command(application())
    yield "# Commands\n"
    for name in sorted(group.commands, key=lambda each: (group.commands[each].hidden, each)):
        command = group.commands[name]
        context = command.make_context(f"autopipe {name}", [], resilient_parsing=True)
        yield f"## autopipe {name}\n"
        yield f"{command.help}\n"
        yield f"```\n{command.get_usage(context)}\n```\n"
        yield "| option | meaning |\n|---|---|"
        for parameter in command.params:
            if (record := parameter.get_help_record(context)) is not None:
                option, meaning = (html.escape(each).replace("|", "&#124;") for each in record)
                yield f"| <code>{option}</code> | {meaning} |"
        yield ""


def _names() -> Iterator[str]:
    """Yield the lines of the page of `ap.*`: a heading for each name, and what mkdocstrings reads of it."""
    homes = dict(autopipe._HOMES)
    for group in autopipe._GROUPS:
        for entry in registry.declared(group):
            if entry.module.startswith("autopipe."):
                homes[entry.name] = entry.module.removeprefix("autopipe.")
    yield "# Python\n\n```python\nimport autopipe as ap\n```\n"
    for kind, places in _KINDS.items():
        yield f"## {kind}\n"
        of_kind = {name for name, home in homes.items() if home.startswith(places) and not name.endswith(_SAID)}
        for name in sorted(of_kind if places else homes):
            documented = getattr(autopipe, name).__doc__ or ""
            if not documented or documented.startswith(f"{name}("):  # as a dataclass writes it by itself
                raise PluginError(f"`ap.{name}` is public, but has no docstring.")
            yield f"### ap.{name}\n\n::: autopipe.{homes.pop(name)}.{name}\n"
    yield "## Tests of plugins\n"
    for name in ("check_source", "check_op", "check_loader", "check_form"):
        yield f"### autopipe.testing.{name}\n\n::: autopipe.testing.{name}\n"
