"""What is handed on as a source distribution has the pages that its README leads to."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_what_the_pages_at_the_top_lead_to_is_in_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    links = {link for page in ROOT.glob("*.md") for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())}
    folders = {link.partition("/")[0] for link in links if "/" in link}
    assert "docs" in folders
    assert {f"/{folder}" for folder in folders} <= set(settings["include"])


def test_the_extra_for_jax_brings_what_keras_writes_tensorboards_by() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"jax", "tensorboard"} <= {re.split(r"\W", requirement)[0] for requirement in extras["jax"]}
