"""Draw the pictures of README and docs from recorded runs; those of a tune as `autopipe report` draws them.

python docs/pictures/draw.py                       # draws those in docs/pictures anew
python docs/pictures/draw.py tuned/autopipe.json   # takes another run for it, without the paths of its machine

`benchmarks/live.py --record` writes the run of docs/live.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from autopipe.artifact import artifact as files
from autopipe.artifact.schema import Artifact, FileReference, Profile
from autopipe.reports import page, profile_report
from autopipe.reports.drawing import WIDTH, Drawing, Scale, text_width

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded.json"
COMMAND = "autopipe tune examples/photos/train.py:workload --budget"


def recorded(path: Path) -> Artifact:
    """Return the first profile of an artifact, without where it lay."""
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
    drawn = {each.key: each.picture for each in profile_report.sections(profile)}
    found = {key: picture for key, picture in drawn.items() if picture is not None}
    found["live"] = live(json.loads((FOLDER / "live.json").read_text()))
    return {f"{key}.svg": page.alone(drawing) + "\n" for key, drawing in found.items()}


def live(course: dict[str, Any]) -> Drawing:
    """Draw the images/s of a training that tunes itself, and where its configurations begin."""
    rates, step = course["images_per_second"], course["step_seconds"]
    drawn = Drawing(f"A training that tunes itself: from {rates[1]} to {max(rates)} images a second.")
    begins = course["configurations"]
    top, left = 30.0 + 18.0 * len(begins), 64.0
    across, up = Scale(0.0, step * len(rates), left, WIDTH - 8.0), Scale(0.0, 1.1 * max(rates), top + 200.0, top)
    drawn.axes(across, up, ("seconds", "images/s"))
    for number, (at, config) in enumerate(begins):
        y = 16.0 + 18.0 * number
        drawn.behind(across(at), y + 4.0, across(at), up.begin, "ceiling")
        drawn.text(min(across(at) + 4.0, WIDTH - text_width(config, 12.0)), y, config, "small")
    drawn.path([(across(step * (number + 0.5)), up(rate)) for number, rate in enumerate(rates)], "best")
    return drawn


def main() -> None:
    if len(sys.argv) > 1:
        files.write(recorded(Path(sys.argv[1])), RECORDED)
    for name, text in pictures(files.read(RECORDED).profiles[0]).items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name, len(text))


if __name__ == "__main__":
    main()
