"""Lines of the user's files: what may help them, and what a watch sees. Whole trainings: tests/extensions/diagnose."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.measure import formats
from autopipe.measure.lines import Line, Lines, LineWatch, Remedy
from autopipe.reports.tables import slow_lines


def line(**other: Any) -> Line:
    return Line(**{"file": "train.py", "line": 3, "code": "x = f(y)", "call": "f", "seconds": 1.0, **other})


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (line(processor_seconds=1.0), None),
        (line(processor_seconds=1.0, made_for=Remedy.DECODE), Remedy.DECODE),
        (line(waiting_seconds=0.6, made_for=Remedy.DECODE), Remedy.WORKERS),
        (line(locked_seconds=0.6, made_for=Remedy.DECODE), Remedy.PROCESSES),
        (line(locked_seconds=0.6, call=None, code="with lock:"), Remedy.LOCK),
        (line(locked_seconds=0.6, call="self.queue.get"), Remedy.LOCK),
        (line(made_for=Remedy.ONE_HOT), Remedy.ONE_HOT),  # it waits for a free core
    ],
)
def test_what_may_help_a_line_follows_from_what_it_waits_for(found: Line, remedy: Remedy | None) -> None:
    assert found.remedy == remedy


def test_times_of_a_line_add_up_and_the_users_own_threads_come_last() -> None:
    beside = line(line=9, seconds=5.0, beside=True)
    parts = [Lines(lines=(line(seconds=1.0),)), Lines(lines=(line(seconds=2.0), beside), forked=True)]
    other = line(line=7, seconds=2.0)
    found = Lines.together([Lines(lines=(other, line(line=3, call="g", seconds=0.5))), *parts])
    assert found.lines == (line(seconds=3.0), line(call="g", seconds=0.5), other, beside)  # by line, then by call
    assert found.seconds == 5.5
    assert found.forked


def test_lines_are_shown_with_their_share_and_what_they_wait_for() -> None:
    waits = {"processor_seconds": 1.5, "waiting_seconds": 0.6, "locked_seconds": 0.1}
    first = line(seconds=3.0, **waits, made_for=Remedy.PROCESSES)
    other = line(line=4, call=None, code="for x in y:", processor_seconds=1.0)
    seen = Lines(lines=(first, other), seconds=4.0)
    assert list(slow_lines(seen, {})) == [
        ("slow lines", "of making data"),
        ("", "75% train.py:3 f (processor 50%, reads and sleeps 20%, no free core 27%)"),
        ("", "25% train.py:4 for x in y: (processor 100%)"),
        (
            "instead",
            "of line 3: one thread at a time runs Python code; worker processes run it side by side (not timed)",
        ),
    ]
    assert list(slow_lines(seen, {Remedy.PROCESSES: "8 images/s instead of 5"}))[-1][1].endswith(
        "(8 images/s instead of 5)"
    )
    limited = list(slow_lines(seen.model_copy(update={"forked": True}), {}, limits=False))
    assert limited[0] == ("slow lines", "of making data, which does not limit this training")
    assert [label for label, _ in limited] == ["slow lines", "", ""]  # it has processes already
    decodes = (first.model_copy(update={"made_for": Remedy.DECODE}), other)
    took = {Remedy.DECODE: {"cv2.imread": 0.008, "ap.Decode()": 0.004}}
    timed = seen.model_copy(update={"lines": decodes, "tried": took})
    assert list(slow_lines(timed, {}))[-1] == (
        "instead",
        "of line 3: cv2.imread 8 ms, ap.Decode() 4 ms (a core's time for an image)",
    )


def module(file: Path, code: str) -> Any:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def watched(function: Callable[[], object]) -> Lines | None:
    watch = LineWatch()
    with watch:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    return watch.stop()


def test_the_expression_that_takes_the_time_is_named_in_the_file_of_the_users(tmp_path: Path) -> None:
    reader = module(tmp_path / "site-packages/torch/utils/data/reader.py", "def read(f):\n    return f()\n")
    users = module(
        tmp_path / "users.py",
        "import hashlib\n\ndef make():\n    for _ in range(40):\n        hashlib.sha256(bytes(9_000_000))\n",
    )
    found = watched(lambda: reader.read(users.make))
    assert found is not None
    first = found.lines[0]
    assert (first.file, first.line, first.call) == (str(tmp_path / "users.py"), 5, "hashlib.sha256")
    assert not first.beside
    assert watched(users.make) is None  # it makes no batch


def noise(path: Path) -> str:
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8))
    return str(path)


@pytest.mark.parametrize(("ending", "is_mask"), [(".png", False), (".png", True), (".jpg", False)])
def test_what_could_decode_the_images_of_a_line_is_timed_on_them(tmp_path: Path, ending: str, is_mask: bool) -> None:
    path = noise(tmp_path / f"image{ending}")
    if is_mask:
        cv2.imwrite(path, np.full((64, 48, 3), 7, np.uint8))
    first = line(made_for=Remedy.DECODE, reader="cv2.imread", images=(path,))
    found = formats.with_trials(Lines(lines=(first,), seconds=1.0), (8, 8, 3), 0)
    others = {
        (".png", False): ["ap.Decode() of PNG, fast", "ap.Decode() of JPEG 95"],
        (".png", True): ["ap.Decode() of PNG, fast"],  # JPEG would change its colours
        (".jpg", False): ["ap.Decode(reduce=True) before a resize"],
    }[ending, is_mask]
    assert list(found.tried[Remedy.DECODE]) == ["cv2.imread", "ap.Decode()", *others]


@pytest.mark.parametrize(("images", "own"), [(4, {"the line about": 0.5}), (0, {})])
def test_what_could_find_the_classes_of_a_mask_is_timed_beside_what_was_seen_of_the_line(
    images: int, own: dict[str, float]
) -> None:
    calls = (line(call=name, made_for=Remedy.MASK_TO_CLASS, processor_seconds=1.0, mask=(6, 8)) for name in "fg")
    found = formats.with_trials(Lines(lines=(*calls, line(line=9, processor_seconds=1.0)), seconds=3.0), None, images)
    took = found.tried[Remedy.MASK_TO_CLASS]
    assert took.pop("ap.MaskToClass()") > 0
    assert took == own


def test_nothing_is_timed_without_files_or_for_a_line_that_does_something_else(tmp_path: Path) -> None:
    path = noise(tmp_path / "image.png")
    for other in (line(made_for=Remedy.DECODE, reader="cv2.imread"), line(images=(path,), reader="cv2.imread")):
        tried = formats.with_trials(Lines(lines=(other,), seconds=1.0), None, 4).tried
        assert not any(tried.values())
