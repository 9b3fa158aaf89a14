from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autopipe.hardware import mounts

Play = Callable[[dict[str, str]], Path]


def test_a_line_is_read_with_any_number_of_optional_fields(play: Play) -> None:
    root = play(
        {
            "proc/self/mountinfo": "36 35 98:0 /inner /mnt rw shared:1 master:2 - ext3 /dev/root rw,errors=continue\n"
            "37 35 0:5 / /proc rw - proc proc rw\n"
        }
    )
    first, second = mounts.read(root)
    assert first == mounts.Mount(kind="ext3", inner="/inner", point="/mnt", options=("rw", "errors=continue"))
    assert second.point == "/proc"


def test_escaped_spaces_and_backslashes_are_restored(play: Play) -> None:
    root = play({"proc/self/mountinfo": r"36 35 98:0 /a\040b /my\040photos\134x rw - nfs4 server:/ rw"})
    (mount,) = mounts.read(root)
    assert (mount.point, mount.inner) == ("/my photos\\x", "/a b")


def test_without_a_list_there_are_no_mounts(tmp_path: Path) -> None:
    assert mounts.read(tmp_path) == []
