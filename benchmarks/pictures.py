"""Draw the pictures of the README and of docs/report.md from a recorded run, as `autopipe report` draws them.

python benchmarks/pictures.py                       # draws those in docs/pictures anew
python benchmarks/pictures.py tuned/autopipe.json   # takes another run for it, without the paths of its machine
"""

from __future__ import annotations

import sys
from pathlib import Path

from autopipe.artifact import artifact as files
from autopipe.artifact.schema import Artifact, FileReference, Profile
from autopipe.reports import page, profile_report
from autopipe.reports.drawing import WIDE

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
RECORDED = FOLDER / "recorded.json"
COMMAND = "autopipe tune examples/photos/train.py:workload --budget"


def recorded(path: Path) -> Artifact:
    """Return the first profile of an artefact, without where it lay."""
    profile = files.read(path).profiles[0]
    found = profile.result
    ceiling = found.ceiling
    if ceiling is not None and ceiling.tail is not None:
        ceiling = ceiling.model_copy(update={"tail": ceiling.tail.model_copy(update={"slowest": ""})})
    command = f"{COMMAND} {found.budget_seconds or 0:.0f}s"
    bare = {"study": None, "study_url": None, "command": command, "ceiling": ceiling}
    kept = profile.model_copy(update={"result": found.model_copy(update=bare)})
    return Artifact(workload=FileReference(path="train.py"), profiles=(kept,))


def pictures(profile: Profile) -> dict[str, str]:
    """Return each picture of a report as an SVG file, by its name."""
    drawn = {each.key: each.draw for each in profile_report.sections(profile)}
    return {f"{key}.svg": page.alone(draw(WIDE)) + "\n" for key, draw in drawn.items() if draw is not None}


def main() -> None:
    if len(sys.argv) > 1:
        files.write(recorded(Path(sys.argv[1])), RECORDED)
    for name, text in pictures(files.read(RECORDED).profiles[0]).items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name, len(text))


if __name__ == "__main__":
    main()
