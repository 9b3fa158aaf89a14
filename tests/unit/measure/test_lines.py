"""Lines of the user's files: how they are shown, and what a watch sees. Whole trainings: tests/extensions/diagnose."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autopipe import errors
from autopipe.measure.lines import Line, Lines, LineWatch
from autopipe.reports.tables import slow_lines
from tests.fakes.facts import known


def line(**other: Any) -> Line:
    return Line(**{"file": "train.py", "line": 3, "code": "x = f(y)", "seconds": 1.0, **other})


def test_times_of_a_line_add_up_and_the_users_own_threads_come_last() -> None:
    beside = line(line=9, seconds=5.0, beside=True)
    parts = [Lines(lines=(line(seconds=1.0),)), Lines(lines=(line(seconds=2.0), beside), forked=True)]
    other = line(line=7, seconds=2.0)
    found = Lines.together([Lines(lines=(other,)), *parts])
    assert found.lines == (line(seconds=3.0), other, beside)
    assert (found.seconds, found.forked) == (5.0, True)


def test_files_of_the_users_are_neither_pythons_nor_a_packages() -> None:
    others = ["/usr/lib/python3/dist-packages/cv2/data.py", "/home/me/.local/lib/python3.11/site-packages/cv2/data.py"]
    for file in (*others, functools.__file__, errors.__file__, "<frozen runpy>", "rasterio/_io.pyx"):
        assert not errors.is_users(file)
    assert errors.is_users("/home/me/of-packages/train.py")
    assert errors.is_users("<ipython-input-1-0a>")


def test_lines_are_shown_with_their_share_and_what_they_wait_for() -> None:
    other = line(line=4, code="for x in y:", processor_seconds=1.0)
    seen = Lines(lines=(line(seconds=3.0, processor_seconds=1.5), other), seconds=4.0)
    assert list(slow_lines(seen)) == [
        ("slow lines", "of making data"),
        ("", "75% train.py:3 x = f(y) (computes 50%, waits 50%)"),
        ("", "25% train.py:4 for x in y: (computes 100%, waits 0%)"),
    ]
    limited = ("slow lines", "of making data, which does not limit this training")
    assert next(iter(slow_lines(seen, limits=False))) == limited


def module(file: Path, code: str) -> Any:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    made: Any = types.ModuleType(file.stem)
    exec(compile(code, str(file), "exec"), vars(made))
    return made


WORK = "import hashlib\n\ndef work():\n    for _ in range(60):\n        hashlib.sha256(bytes(9_000_000))\n"
READER = "site-packages/torch/utils/data/reader.py"
COSTS = "hashlib.sha256(bytes(9_000_000))"


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Call a function as torch's reader does."""
    return module(tmp_path / READER, "def read(f):\n    return f()\n").read


def watched(function: Callable[[], object]) -> Lines | None:
    with (watch := LineWatch()):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    return watch.stop()


def test_the_line_that_takes_the_time_is_named_in_the_file_of_the_users(tmp_path: Path, read: Any) -> None:
    users, own = module(tmp_path / "users.py", WORK), str(tmp_path / "users.py")
    first = known(watched(lambda: read(users.work))).lines[0]
    assert (first.file, first.line, first.code, first.beside) == (own, 5, COSTS, False)
    assert watched(users.work) is None  # it makes no batch
    reader = module(tmp_path / READER, WORK)
    with (watch := LineWatch(whole=True)):  # also of what the main thread does beside batches
        users.work()
        reader.work()  # as a loop waits for a worker's batch
    found = known(watch.stop())
    assert (found.lines, found.own[0].file, found.own[0].code) == ((), own, COSTS)
    assert not any("reader.work()" in each.code for each in found.own)


def test_of_a_librarys_dataset_the_line_is_in_its_file_unless_it_calls_the_users(tmp_path: Path) -> None:
    reader = module(tmp_path / READER, "def read(data):\n    return data[0]\n")
    other, users = (module(tmp_path / name, WORK) for name in ("site-packages/other/work.py", "users.py"))
    code = "class Data:\n    def __getitem__(self, index):\n        return self.made()\n\n"
    code += "    def made(self):\n        self.work()\n"
    for file, named in (
        ("photos/data.py", ("photos/data.py", 6, "self.work()")),
        ("tensorflow/python/distribute/input_lib.py", None),  # an iterator that waits for tf.data
    ):
        librarys = module(tmp_path / "site-packages" / file, code).Data()
        for work_of, place in ((other, named), (users, (str(tmp_path / "users.py"), 5, COSTS))):
            librarys.work = work_of.work
            found = watched(functools.partial(reader.read, librarys))
            first = None if found is None else found.lines[0]
            assert (first and (first.file, first.line, first.code)) == place
    generator = module(
        tmp_path / "site-packages/fast/load.py", "class Data:\n    def made(self):\n        yield self.work()\n"
    )
    data, reader = generator.Data(), module(tmp_path / READER, "def read(data):\n    return next(data.made())\n")
    data.work = other.work
    assert known(watched(functools.partial(reader.read, data))).lines[0].code == "yield self.work()"


def test_no_garbage_is_collected_while_python_lists_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds a lock meanwhile, for which the end of a `threading.local` would wait for ever."""
    listed, looked, collects = sys._current_frames, threading.Event(), set[bool]()

    def listing() -> Any:
        collects.add(gc.isenabled())
        looked.set()
        return listed()

    monkeypatch.setattr(sys, "_current_frames", listing)
    watch = LineWatch()
    watch.start()
    assert looked.wait(60)
    watch.stop()
    assert collects == {False}
    assert gc.isenabled()
