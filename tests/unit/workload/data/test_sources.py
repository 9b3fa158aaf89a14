"""What every source is asked, paths of files behind it, arrays and TFRecord files. Their contract: tests/contract."""

import os
import pickle
import struct
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import BadSampleError, DataError, DataWarning
from autopipe.workload.data import records, source
from autopipe.workload.data.paths import PathList, read_file, scan, walk
from autopipe.workload.data.records import TFRecords, frame, serialise
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import FieldKind
from tests.fakes import damage

pytestmark = pytest.mark.usefixtures("cache")


class Own:
    """A user's source with nothing but the two methods."""

    gone: int | None = None

    def __len__(self) -> int:
        return 8

    def read(self, index: int) -> tuple[bytes, int]:
        if index == self.gone:
            raise OSError("gone")
        return b"x" * index, index


class Described(Own):
    def digest(self) -> str:
        return "mine"

    def mean_bytes(self) -> float:
        return 3.5

    def files(self, indices: object) -> list[Path]:
        return [Path("/a/b.jpg")]


def test_a_source_is_described_as_far_as_it_can_be_and_spans_count_beside_their_own_read() -> None:
    assert (source.files(Own()), source.digest(Own())) == ([], "type=Own count=8")
    assert source.mean_bytes(Own()) == (0 + 2 + 4 + 7) / 4 + np.asarray(0).nbytes
    spoilt = Own()
    spoilt.gone = 7
    assert source.mean_bytes(spoilt) == (0 + 2 + 4) / 3 + np.asarray(0).nbytes  # of what can be read
    assert (source.files(Described(), [0]), source.digest(Described())) == (["/a/b.jpg"], "mine")
    parts = (np.zeros((4, 4, 3)), np.zeros(5))  # of other shapes
    assert source.sample_bytes((parts, b"ab")) == source.sample_bytes(({"a": parts[0], "b": parts[1]}, b"ab")) == 426
    assert source.mean_bytes(Described()) == 3.5
    assert source.spans_half(Around.inner) is not None
    others: list[Any] = [Shifted(np.zeros((4, 2, 2, 3), np.uint8), np.arange(4)), Around(), Own()]
    assert [source.spans_half(other) for other in others] == [None] * 3


def test_a_difference_names_the_parts_and_a_digest_without_times_lacks_those_of_files_alone(tmp_path: Path) -> None:
    assert source.difference("files=3 sizes=a times=b", "files=3 sizes=c times=d") == "sizes, times"
    assert [source.difference(*pair) for pair in (("a=1", "b=1"), ("a=1", "a=1"), ("m", "y"))] == ["a, b", "", "m, y"]
    digest = "files=3 sizes=a times=b mask_sizes=c mask_times=d exposure_time=3 start_times=a timed=b"
    assert source.undated(digest) == "files=3 sizes=a mask_sizes=c exposure_time=3 start_times=a timed=b"
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    data = ap.Arrays({"left eye": tmp_path / "x.npy", "exposure_time": np.ones(4)}, np.zeros(4, np.int64))
    kept = {each.partition("=")[0] for each in source.undated(data.digest()).split()}
    parts = ("x.left_eye", "x.exposure_time", "y")
    assert kept == {f"{part}_{what}" for part in parts for what in ("array", "content")}


class Shifted(ap.Arrays):
    def read(self, index: int) -> Any:
        return super().read(3 - index)


class Around(Own):
    """A user's source that hands on whatever it does not do itself."""

    inner = ap.Arrays(np.zeros((4, 2, 2, 3), np.uint8), np.arange(4))

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def put(path: Path, content: bytes = b"image") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_paths_come_back_as_they_were_given_and_are_shown_in_letters(tmp_path: Path) -> None:
    names = [(b"", b"a.jpg"), (b"d/e", b"\xff.png"), (b"", b"caf\xe9.jpg"), (b"/elsewhere", b"c.jpg")]
    paths, root = PathList(tmp_path, names), os.fsencode(tmp_path)
    expected = [root + b"/a.jpg", root + b"/d/e/\xff.png", root + b"/caf\xe9.jpg", b"/elsewhere/c.jpg"]
    assert expected == [paths.path(i) for i in range(4)] == list(map(os.fsencode, paths.files()))
    shown = f"{tmp_path}/caf\\udce9.jpg"
    assert (paths.text(0), paths.text(2)) == (f"{tmp_path}/a.jpg", shown)
    with pytest.raises(BadSampleError) as caught:
        paths.read(2)
    assert shown.encode() in str(caught.value).encode()


@pytest.mark.timeout(20)
def test_walk_goes_in_sorted_order_follows_links_and_ends_in_a_loop_and_only_regular_files_are_read(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "linked.jpg").symlink_to(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    for name, kind in (("pipe", "named pipe"), ("linked", "named pipe"), ("folder", "folder")):
        with pytest.raises(BadSampleError, match=rf"{name}\.jpg` must be a regular file, but is a {kind}"):
            read_file(os.fsencode(tmp_path / f"{name}.jpg"))
    with pytest.raises(BadSampleError, match=r"must be a regular file, but is a device"):
        read_file(b"/dev/null")
    for name in ("root/b/2.jpg", "root/b/1.jpg", "root/a/3.jpg", "root/a/deep/4.jpg", "root/0.jpg", "real/5.jpg"):
        put(tmp_path / name)
    (tmp_path / "root" / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "root" / "loop").symlink_to(tmp_path / "root")
    found = [b"/".join(filter(None, entry[:2])) for entry in walk(os.fsencode(tmp_path / "root"))]
    assert found == [b"0.jpg", b"a/3.jpg", b"a/deep/4.jpg", b"b/1.jpg", b"b/2.jpg", b"linked/5.jpg"]


def test_the_digest_tells_what_changed_and_stays_where_a_folder_moves(tmp_path: Path) -> None:
    def digest(folder: str = "old") -> str:
        return PathList(tmp_path / folder, walk(os.fsencode(tmp_path / folder))).digest()

    put(tmp_path / "old/a.jpg")
    put(tmp_path / "old/b.jpg")
    for change, told in (
        (lambda: put(tmp_path / "old/a.jpg", b"longer than before"), "sizes"),
        (lambda: (tmp_path / "old/a.jpg").rename(tmp_path / "old/aa.jpg"), "names"),
        (lambda: os.utime(tmp_path / "old/b.jpg", ns=(0, 1)), "times"),
        (lambda: put(tmp_path / "old/c.jpg"), "files"),
    ):
        before = digest()
        change()
        assert told in source.difference(before, digest())
    before = digest()
    (tmp_path / "old").rename(tmp_path / "new")
    assert before == digest("new")


def test_scan_sorts_leaves_out_what_is_hidden_or_no_image_and_names_what_is_beside_what_is_no_folder(
    tmp_path: Path,
) -> None:
    for name in ("b.JPG", "a.png", ".hidden.jpg", "notes.txt", "z/x.jpg", "y/x.jpg", ".git/x.jpg", "c.jpg/inner.jpg"):
        put(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "gone")  # is listed wherever it leads
    assert scan(os.fsencode(tmp_path)) == ([b"a.png", b"b.JPG", b"broken.jpg"], [b"c.jpg", b"y", b"z"])
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=r"photo` does not exist. Did you mean `photos`\?"):
        scan(os.fsencode(tmp_path / "photo"))
    with pytest.raises(DataError, match=r"a\.png` must be a folder, but is a file"):
        scan(os.fsencode(tmp_path / "a.png"))


@pytest.mark.parametrize("made", [ap.ImageFolder, ap.NPZ, ap.Table, ap.TFRecords])
def test_what_is_no_path_and_a_key_or_a_suffix_that_is_no_text_are_refused_in_words(made: Any) -> None:
    for place in (None, 3, b"photos"):
        with pytest.raises(DataError, match=r"must be text or a pathlib\.Path, but got"):
            made(place)
    with pytest.raises(DataError, match=r"must be text .*frame\.to_csv\("):
        made(SimpleNamespace(to_csv=print))
    for option in ("image_key", "label_key", "mask_key"):
        with pytest.raises(DataError, match=f"`{option}` must be the key of a feature, as text, but got 3"):
            ap.TFRecords("train-*", **{option: 3})  # type: ignore[arg-type]
    for option in ("image_suffix", "mask_suffix"):
        with pytest.raises(DataError, match=rf"`{option}` must be text, .* but got 3"):
            ap.ImagePairs("images", "masks", **{option: 3})  # type: ignore[arg-type]


# -------------------- rows of arrays in memory, in .npy files and in .npz archives

IMAGES = np.arange(4 * 3 * 2 * 3, dtype=np.uint8).reshape(4, 3, 2, 3)
LABELS = np.array([3, 1, 4, 1])


def parts(data: ap.Arrays, index: int) -> tuple[Any, Any]:
    value = data.read(index)
    assert isinstance(value, tuple)
    return value


@pytest.mark.parametrize("in_file", [False, True])
def test_numbers_in_another_order_of_bytes_become_this_machines(tmp_path: Path, *, in_file: bool) -> None:
    x = np.arange(4 * 6 * 6, dtype=">u2").reshape(4, 6, 6, 1)
    np.save(tmp_path / "x.npy", x)
    data = ap.Arrays(tmp_path / "x.npy" if in_file else x, LABELS.astype(">i4"))
    plan = make_plan(ap.Workload(data=data, ops=[ap.Resize(3, 3)], batch_size=2))
    assert [plan.source.x.dtype, plan.source.y and plan.source.y.dtype] == [np.dtype("uint16"), np.dtype("int32")]
    value, _ = parts(data, 3)
    small, _ = ap.Resize(3, 3).apply((value, 1), plan.source, np.empty(0))
    np.testing.assert_array_equal(small, cv2.resize(x[3].astype(np.uint16), (3, 3))[..., None])
    assert data.spans is None  # the library does not turn them round


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_a_file_in_either_order_are_those_of_the_array_and_cannot_be_written_to(
    tmp_path: Path, order: Literal["C", "F"]
) -> None:
    x = np.arange(7 * 30, dtype=np.int16).reshape(7, 5, 6)
    np.save(tmp_path / "x.npy", np.asarray(x, order=order))
    rows: list[Any] = [ap.Arrays(tmp_path / "x.npy").read(index) for index in range(7)]
    np.testing.assert_array_equal(rows, x)
    with pytest.raises(ValueError, match="read-only"):
        rows[3][0] = 1
    mine = IMAGES.copy()
    x, _ = parts(ap.Arrays(mine, LABELS), 0)
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 0
    mine[0] = 0


def test_what_maps_a_file_pickles_without_its_content_but_a_part_of_it_or_what_was_changed_with_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.arange(1000))
    whole, changed = np.load(file, mmap_mode="r"), np.load(file, mmap_mode="c")
    changed += 1
    for rows, first, files in ((whole, 0, [str(file)]), (whole[500:], 500, []), (changed, 1, []), (changed[:], 1, [])):
        pickled = pickle.dumps(ap.Arrays(rows))
        data = pickle.loads(pickled)
        assert (len(data), data.read(0), data.files(), len(pickled) < 1000) == (len(rows), first, files, bool(files))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (IMAGES, LABELS, (FieldKind.IMAGE, FieldKind.LABEL)),
        (IMAGES, IMAGES[..., 0], (FieldKind.IMAGE, FieldKind.MASK)),
        (IMAGES, IMAGES, (FieldKind.IMAGE, FieldKind.MASK)),
        (IMAGES, LABELS.astype("float32"), (FieldKind.IMAGE, FieldKind.ARRAY)),
        (IMAGES, np.eye(4, dtype=int), (FieldKind.IMAGE, FieldKind.ARRAY)),
        (IMAGES[..., 0], LABELS, (FieldKind.IMAGE, FieldKind.LABEL)),
        ((IMAGES, LABELS), None, ((FieldKind.IMAGE, FieldKind.ARRAY), None)),
        (np.zeros((4, 3, 2)), None, (FieldKind.ARRAY, None)),
        (np.zeros((4, 5, 5, 7)), None, (FieldKind.ARRAY, None)),
    ],
)
def test_kinds_follow_from_shapes_and_dtypes(x: Any, y: NDArray[Any] | None, expected: object) -> None:
    data = ap.Arrays(x, y)
    assert expected == (data.x_kind, data.y_kind)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ([np.zeros((0, 3))], "at least one row of plain numbers"),
        ([np.array(3)], "at least one row of plain numbers"),
        ([np.array([object()])], "at least one row of plain numbers"),
        ([[1, 2, 3]], r"must be a NumPy array .*numpy\.asarray"),
        ([(IMAGES, LABELS[:3])], r"`x\.0` and `x\.1` must be equally long, but got 4 and 3 rows"),
        ([IMAGES[:2], {"kind": np.array(["a", "b"])}], r"`y\.kind` must hold numbers, but holds text\. .*numpy\.uni"),
        ([IMAGES[:2], np.array([b"a", b"b"])], "`y` must hold numbers, but holds text"),
        ([IMAGES, None, LABELS], r"`sample_weight` weights the loss of targets and needs `y`"),
    ],
)
def test_what_are_no_rows_of_numbers_is_refused(arrays: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        ap.Arrays(*arrays)


def test_the_digest_covers_shape_and_content() -> None:
    others: list[Any] = [(x,) for x in (IMAGES, IMAGES[:3], IMAGES + 1, IMAGES.astype("int16"))]
    others += [(IMAGES, LABELS), (IMAGES, LABELS + 1)]
    assert len({ap.Arrays(*arrays).digest() for arrays in others}) == 6
    assert ap.Arrays(IMAGES, LABELS).digest() == ap.Arrays(IMAGES.copy(), LABELS.copy()).digest()


def test_a_file_that_holds_no_single_array_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    with pytest.raises(DataError, match=r"x\.npy` does not exist"):
        ap.Arrays(file)
    for content in (b"", b"\x93NUMPY", b"no array at all", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4"):
        file.write_bytes(content)
        no_header = "it does not begin like one" if content[:6] != b"\x93NUMPY" else ""
        with pytest.raises(DataError, match=rf"must be a \.npy file.*cannot be read as one: {no_header}"):
            ap.Arrays(file)
    np.savez(tmp_path / "x.npz", a=LABELS)
    with pytest.raises(DataError, match="archive of several arrays"):
        ap.Arrays(tmp_path / "x.npz")


def test_what_is_no_archive_of_such_arrays_is_named(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"nothing of the kind")
    np.savez(tmp_path / "set.npz", x_train=np.zeros((2, 2)), kinds=np.array([None, "cat"]))
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("x", "no array")
    objects = r"^The array `kinds` of `.*/set\.npz` must be one of plain numbers, but .*objects.* without objects"
    for name, x, said in (
        ("nowhere.npz", "x", "does not exist"),
        ("other", "x", r"cannot be read as a \.npz archive"),
        ("set.npz", "x", "no array `x`; its arrays are .*`x_train`"),
        ("set.npz", "kinds", objects),
        ("photos.zip", "x", "has no array `x`; it has no arrays"),
    ):
        with pytest.raises(DataError, match=said):
            ap.NPZ(tmp_path / name, x=x, y=None)


def test_a_changed_archive_and_an_array_that_a_power_cut_has_left_are_unpacked_again(
    tmp_path: Path, cache: Path
) -> None:
    for value, left in ((1, 0), (2, 130)):
        np.savez(tmp_path / "set.npz", x=np.full((3, 4 + value), value))
        for _ in range(2):
            np.testing.assert_array_equal(ap.NPZ(tmp_path / "set.npz", y=None).read(2), np.full(4 + value, value))
            newest = max(cache.rglob("*.npy"), key=lambda file: file.stat().st_mtime_ns)
            os.truncate(newest, left)


def test_whatever_is_wrong_with_a_damaged_file_and_a_later_version_are_told_with_its_name(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(240, dtype=np.uint8).reshape(20, 2, 2, 3), y=np.arange(20))
    assert damage.unnamed(ap.NPZ, tmp_path / "a.npz", tries=60) == []
    whole = (tmp_path / "a.npz").read_bytes()
    entry = whole.index(b"PK\1\2")  # of the directory; the version that it takes to read it stands 6 bytes behind
    (tmp_path / "a.npz").write_bytes(whole[: entry + 6] + b"\xff" + whole[entry + 7 :])
    with pytest.raises(DataError, match=r"a\.npz.*version 25\.5"):
        ap.NPZ(tmp_path / "a.npz")


# -------------------- records of TFRecord files


def write(file: Path, *labels: int) -> Path:
    values: Any = [{"image/encoded": b"image %d" % n, "image/class/label": n, "mask": b"mask %d" % n} for n in labels]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(frame(serialise(value)) for value in values))
    return file


def test_records_of_several_files_are_one_sequence_and_keys_can_be_named_and_labels_left_out(tmp_path: Path) -> None:
    for number, labels in enumerate(((1, 2), (), (3,), (4, 5, 6))):
        write(tmp_path / f"{number}.tfrecord", *labels)
    data = TFRecords(tmp_path / "*.tfrecord")
    assert [data.read(i) for i in range(len(data))] == [(b"image %d" % n, n) for n in range(1, 7)]
    assert data.name(4).startswith(f"{tmp_path}/3.tfrecord, record 1 at byte ")
    assert data.files([0, 1, 3]) == [f"{tmp_path}/0.tfrecord", f"{tmp_path}/3.tfrecord"]
    alone = TFRecords([str(tmp_path / "0.tfrecord")], image_key="mask", label_key=None)
    assert (alone.read(1), alone.y_kind) == (b"mask 2", None)
    for outside in (-1, 2):
        with pytest.raises(IndexError):
            alone.read(outside)


def test_a_set_with_files_missing_warns_and_a_later_record_without_the_key_is_a_bad_sample(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 1)
    file.write_bytes(file.read_bytes() + frame(serialise({"other": 1})))
    with pytest.raises(BadSampleError, match=r"record at byte \d+ of .* has no feature `image/encoded`; it has `oth"):
        TFRecords(file).read(1)
    write(tmp_path / "train-00000-of-00003.tfrecord", 1)
    write(tmp_path / "train-00002-of-00003.tfrecord", 3)
    with pytest.warns(DataWarning, match=r"should be 3 files .* 1 are missing, the first is number 1"):
        data = TFRecords(tmp_path / "train-*")
    assert len(data) == 2


DATA = [b"", b"a", b"12345" * 100, b"x" * 400_000, b"y" * 300_000, *(b"short %d" % i for i in range(1000))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(frame, DATA)))
    return tmp_path / "a.tfrecord"


def test_the_index_is_kept_until_the_file_changes(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cache / "autopipe/tfrecord"
    kept.parent.mkdir(parents=True)
    kept.write_text("in the way")
    first = records.record_offsets(os.fsencode(file))
    kept.unlink()
    assert len(records.record_offsets(os.fsencode(file))) == len(DATA) + 1
    assert len(list(kept.iterdir())) == 1
    with monkeypatch.context() as patched:
        patched.delattr(records, "scan_records")  # another scan fails
        np.testing.assert_array_equal(first, records.record_offsets(os.fsencode(file)))
    file.write_bytes(frame(b"new"))
    assert records.record_offsets(os.fsencode(file)).tolist() == [0, 19]


WHOLE = frame(b"whole")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((WHOLE + frame(b"x" * 20)[:-cut], "record at byte 21 .* is cut short") for cut in (1, 4, 5, 15)),
        (WHOLE + frame(b"cut")[:7], "record at byte 21 .* ends within its header, at 28 bytes"),
        (WHOLE + b"\xff" + frame(b"wrong")[1:], "record at byte 21 .* header does not match its checksum"),
        (b"\xff\xd8\xff\xe0 this is a JPEG", "is no TFRecord file"),
        *((magic + bytes(30), "compressed as a whole.*without comp") for magic in (b"\x1f\x8b\x08\0", b"\x78\x9c")),
    ],
)
def test_a_file_that_is_damaged_or_none_is_refused_with_the_offset(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    with pytest.raises(DataError, match=said):
        records.record_offsets(os.fsencode(file))


def test_a_record_that_changed_or_shrank_since_is_a_bad_sample_and_a_missing_file_refused_at_once(
    file: Path, tmp_path: Path
) -> None:
    whole = bytearray(frame(b"content"))
    file.write_bytes(bytes(whole[:-3]))
    with pytest.raises(BadSampleError, match="has shrunk"):
        records.read_record(os.fsencode(file), 0, len(whole))
    whole[14] ^= 1
    file.write_bytes(bytes(whole))
    with pytest.raises(BadSampleError, match=r"record at byte 0 of .*a\.tfrecord` is corrupt"):
        records.read_record(os.fsencode(file), 0, len(whole))
    pipe = os.fsencode(tmp_path / "pipe")
    os.mkfifo(pipe)
    for place, said in ((b"/nowhere", "No such file"), (pipe, "regular file, but is a named")):
        with pytest.raises(DataError, match=said):
            records.record_offsets(place)
    with pytest.raises(BadSampleError, match="No such file"):
        records.read_record(b"/nowhere", 0, 20)


def test_an_index_that_is_broken_or_of_other_offsets_is_made_anew(file: Path, cache: Path) -> None:
    first = records.record_offsets(os.fsencode(file))
    (kept,) = cache.rglob("*.npy")
    for content in (b"", b"broken", struct.pack("<4Q", 0, 1, 2, 3)):
        kept.write_bytes(content)
        np.testing.assert_array_equal(first, records.record_offsets(os.fsencode(file)))
        np.testing.assert_array_equal(first, np.load(kept))
    for wrong in (first[1:], first[:-1], first[::-1], first.astype("int64"), first[None], np.array([], "uint64")):
        np.save(kept, wrong)
        np.testing.assert_array_equal(first, records.record_offsets(os.fsencode(file)))


def test_files_without_such_records_are_refused_and_equal_values_give_equal_bytes(tmp_path: Path) -> None:
    file, other = write(tmp_path / "a", 1), tmp_path / "other"
    other.write_bytes(frame(b"\xff\xd8\xff\xe0 a JPEG"))
    for place, keys, said in (
        (file, {"mask_key": "masks"}, r"no feature `masks`; its features .*Did you mean `mask`\? Name"),
        (file, {"label_key": "mask"}, r"int64_list of `mask`.*holds bytes_list"),
        (other, {}, r"first record of .* is no tf\.train\.Example"),
        (tmp_path / "*.tfrecord", {}, "No file matches"),
        ([], {}, "empty sequence"),
        (write(tmp_path / "empty"), {}, "no records in the 1 file of"),
    ):
        with pytest.raises(DataError, match=said):
            TFRecords(place, **keys)
    assert records.masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert records.serialise({"a": b"1", "b": 2}) == records.serialise({"b": 2, "a": b"1"})
