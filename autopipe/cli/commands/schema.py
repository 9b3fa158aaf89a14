"""`autopipe schema`: prints the format of an artefact."""

from __future__ import annotations

import json


def schema() -> None:
    """Print the JSON Schema of autopipe.json."""
    from autopipe.artifact import artifact

    print(json.dumps(artifact.json_schema(), indent=2))
