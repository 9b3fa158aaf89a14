"""Draw the pictures of the README and of docs/report.md from a recorded run, as `autopipe report` draws them.

python benchmarks/pictures.py                       # draws those in docs/pictures anew
python benchmarks/pictures.py tuned/autopipe.json   # takes another run for it, without the paths of its machine
"""

from __future__ import annotations

import sys
from pathlib import Path

from autopipe.reports import page, story
from autopipe.reports.figure import WIDE
from autopipe.tuned import artifact as files
from autopipe.tuned.schema import Artifact, FileReference, Profile

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
RECORDED = FOLDER / "recorded.json"
COMMAND = "autopipe tune examples/photos/train.py:workload --budget"


def recorded(path: Path) -> Artifact:
    """Return the first profile of an artefact, without where it lay."""
    profile = files.read(path).profiles[0]
    findings = profile.findings
    assert findings.asked is not None
    command = f"{COMMAND} {findings.asked.budget_seconds or 0:.0f}s"
    asked = findings.asked.model_copy(update={"command": command})
    ceiling = findings.ceiling
    if ceiling is not None and ceiling.tail is not None:
        ceiling = ceiling.model_copy(update={"tail": ceiling.tail.model_copy(update={"slowest": ""})})
    kept = findings.model_copy(update={"asked": asked, "ceiling": ceiling})
    bare = {"study": None, "study_url": None, "findings": kept}
    return Artifact(workload=FileReference(path="train.py"), profiles=(profile.model_copy(update=bare),))


def pictures(profile: Profile) -> dict[str, str]:
    """Return each picture of a report as an SVG file, by its name."""
    drawn = {each.key: each.draw for each in story.sections(profile)}
    return {f"{key}.svg": page.alone(draw(WIDE)) + "\n" for key, draw in drawn.items() if draw is not None}


def main() -> None:
    if len(sys.argv) > 1:
        files.write(recorded(Path(sys.argv[1])), RECORDED)
    for name, text in pictures(files.read(RECORDED).profiles[0]).items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name, len(text))


if __name__ == "__main__":
    main()
