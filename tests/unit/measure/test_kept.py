from __future__ import annotations

from pathlib import Path

import autopipe as ap
from autopipe.measure.session import cut_sizes
from autopipe.workload.ops.planner import make_plan


def test_each_form_and_cut_has_its_size(photos: Path) -> None:
    ops = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()]
    made = ap.Workload(data=ap.Table(photos / "labels.csv"), ops=ops, batch_size=4)
    sizes = cut_sizes(made, make_plan(made))
    assert {name: list(cuts) for name, cuts in sizes.items()} == {"array": [1, 2], "tfrecord": [0]}
    assert sizes["array"][2] == 23 * (8 * 8 * 3 + 8)
    assert sizes["array"][1] > 23 * 40 * 60 * 3
    assert sizes["tfrecord"][0] > sum(path.stat().st_size for path in photos.glob("*.[jp][pn]g"))
