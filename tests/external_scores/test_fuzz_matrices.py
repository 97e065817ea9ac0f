"""Untrusted pickles, NPZ and JSON: correctly fused or an error, and never run."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparc_dist.cli import main
from sparc_dist.external_scores.plain_pickle import load_plain
from tests.support.matrices import authors_small, small
from tests.support.strategies import bounded, changed, damaged, junk, texts

STEM = "VOC2007_test_baseline_zsclip_cossims_X_ensemble_80.pkl"
OTHER = "VOC2007_test_simple_single_and_compound_cossims_X.pkl"
MARKER = "was-here"


class Fuse:
    """The command ``fuse`` in a folder with valid files."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.singles, self.both = folder / STEM, folder / OTHER
        self.scores, self.prompts = folder / "scores.npz", folder / "prompts.json"
        self.reset()

    def reset(self) -> None:
        for path, value in zip((self.singles, self.both), authors_small(), strict=True):
            path.write_bytes(pickle.dumps(value))
        arrays, prompts = small()
        self.scores.write_bytes(npz(arrays))
        self.prompts.write_text(json.dumps(prompts))

    def authors(self) -> bool:
        return self._run("--authors-dir", self.folder, "--dataset", "VOC2007", "--backbone", "X")

    def npz(self) -> bool:
        return self._run("--scores", self.scores, "--prompts", self.prompts)

    def _run(self, *arguments: object) -> bool:
        """Whether the files were fused; if not, checks that the error is one clear line."""
        out = self.folder / "out"
        (out / "final.parquet").unlink(missing_ok=True)
        self._capsys.readouterr()
        code = main(["fuse", *map(str, arguments), "--out", str(out)])
        stdout, stderr = self._capsys.readouterr()
        self.reset()
        assert not (self.folder / MARKER).exists()
        if code == 0:
            assert not stderr
            for name in ("zsclip", "debiased", "sparc"):
                values = np.stack(pq.read_table(out / "final.parquet")[name].to_numpy())
                assert np.isfinite(values).all()
            return True
        assert (code, stdout) == (2, "")
        assert stderr.startswith(f"sparc-dist: {self.folder}/")
        assert stderr.count("\n") == 1
        assert "--verbose shows more" not in stderr  # printed after unexpected errors
        return False


def npz(arrays: dict[str, Any], compress: bool = False) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(buffer, **arrays)
    return buffer.getvalue()


@pytest.fixture
def fuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Fuse:
    monkeypatch.chdir(tmp_path)  # so that any marker is left here
    return Fuse(tmp_path, capsys)


def test_the_unchanged_files_are_valid(fuse: Fuse) -> None:
    assert fuse.authors()
    assert fuse.npz()


# Functions that a pickle may call, with arguments that would leave a marker.
CALLS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("os", "system", (f"touch {MARKER}",)),
    ("posix", "system", (f"touch {MARKER}",)),
    ("subprocess", "check_call", (["touch", MARKER],)),
    ("builtins", "open", (MARKER, "w")),
    ("io", "open", (MARKER, "w")),
    ("os", "mkdir", (MARKER,)),
    ("builtins", "eval", (f"open({MARKER!r}, 'w')",)),
    ("builtins", "exec", (f"open({MARKER!r}, 'w')",)),
    ("builtins", "getattr", ("", "format")),
    ("numpy", "save", (MARKER, 1)),
    ("numpy", "fromfile", (MARKER,)),
    ("numpy", "ndarray", ((1,), "O", b"A" * 8)),
    ("numpy", "dtype", ("O",)),
    ("numpy", "dtype", ("f8", False, True)),
    ("numpy.core.multiarray", "_reconstruct", (0, (0,), b"b")),
    ("numpy._core.multiarray", "scalar", (0, b"A" * 8)),
    ("numpy._core.numeric", "_frombuffer", (b"A" * 8, 0, (1,), "C")),
    ("numpy.core.multiarray", "frombuffer", (b"A" * 8,)),
    ("_codecs", "encode", (MARKER, "latin1")),
    ("_codecs", "encode", (MARKER, "zlib")),
    ("copyreg", "_reconstructor", (object, object, None)),
    ("sparc_dist.plain_pickle", "load_plain", (b"N.",)),
    ("sparc_dist.plain_pickle", "_Function", (print,)),
    ("os.path", "__builtins__.open", (MARKER, "w")),
]


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def plain(value: Any) -> bytes:
    """Returns the opcodes that push a value, without the start and end of a pickle."""
    try:
        return pickle.dumps(value, 2)[2:-1]
    except (TypeError, pickle.PicklingError):
        return b"N"


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    """Draws the opcodes of a call in one of the ways that pickles can make it."""
    module, name, arguments = draw(st.sampled_from(CALLS))
    if draw(st.booleans()):
        arguments = draw(st.tuples(junk, junk) | st.tuples(junk) | st.just(()))
    named = b"c" + f"{module}\n{name}\n".encode()
    stacked = text(module) + text(name) + b"\x93"
    pushed = [plain(argument) for argument in arguments]
    each, whole = b"".join(pushed), plain(tuple(arguments))
    way = draw(st.sampled_from(["reduce", "new", "new-ex", "object", "instance", "build", "bare"]))
    function = draw(st.sampled_from([named, stacked]))
    return {
        "reduce": function + whole + b"R",
        "new": function + whole + b"\x81",
        "new-ex": function + whole + b"}\x92",
        "object": b"(" + function + each + b"o",
        "instance": b"(" + each + b"i" + named[1:],
        "build": function + draw(st.sampled_from([whole, plain({"x": 1}), _slots()])) + b"b",
        "bare": function,
    }[way] + draw(st.sampled_from([b"", b"", plain((1, (2,), 3, 4, b"")) + b"b", _slots() + b"b"]))


def _slots() -> bytes:
    """Returns a state that sets attributes of a function or an object."""
    return plain((None, {"__defaults__": (1,), "__code__": None, "__setstate__": None}))


opcodes = st.one_of(
    calls(),
    scraps := st.sampled_from(
        [
            bytes([code])
            for code in b"()]}tlsuae0123NbRo.\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94"
        ]
    ),
    st.binary(min_size=1, max_size=4),
    st.integers(0, 2**32 - 1).map(lambda index: b"r" + struct.pack("<I", index)),
    st.integers(0, 255).map(lambda index: bytes([ord("q"), index, ord("h"), index])),
    st.integers(0, 255).map(lambda code: bytes([0x82, code])),  # extensions
    st.integers(0, 2**31 - 1).map(lambda code: b"\x84" + struct.pack("<I", code)),
    st.integers(0, 2**64 - 1).map(lambda size: b"\x95" + struct.pack("<Q", size)),  # a frame
    st.integers(0, 2**64 - 1).map(lambda size: b"\x96" + struct.pack("<Q", size)),  # a bytearray
    junk.map(plain),
)
programs = st.lists(opcodes, max_size=8).map(b"".join)
hostile = st.builds(
    lambda start, body: start + body + b".",
    st.sampled_from([b"\x80\x02", b"\x80\x05", b""]),
    programs,
)


@bounded(200)
@given(hostile | st.binary())
@example(b"\x80\x02Nr\xff\xff\xff\xff.")
@example(b"(" * 100_000 + b"N" + b"t" * 100_000 + b".")
def test_no_pickle_runs_anything(fuse: Fuse, content: bytes) -> None:
    fuse.singles.write_bytes(content)
    assert not fuse.authors()


@bounded(120)
@given(st.data(), calls())
def test_a_call_hidden_in_an_authors_file_is_not_made(
    fuse: Fuse, data: st.DataObject, call: bytes
) -> None:
    key = data.draw(st.sampled_from(["cossims", "gts", "classnames", "impaths", "other"]))
    content = pickle.dumps(authors_small()[0], 2)
    fuse.singles.write_bytes(content[:-1] + text(key) + call + b"s.")
    # The harmless value of a stand-in under an unused key changes nothing.
    assert not fuse.authors() or key == "other"


def test_plain_pickle_would_leave_the_marker(fuse: Fuse) -> None:
    for module, name, arguments in CALLS[:4]:
        named = b"c" + f"{module}\n{name}\n".encode()
        pickle.loads(b"\x80\x02" + named + plain(arguments) + b"R.")
        assert (fuse.folder / MARKER).exists()
        (fuse.folder / MARKER).unlink()


arrays_or_junk = junk | st.sampled_from(
    [
        np.zeros((6, 2)),
        np.full((6, 2), np.nan),
        np.full((6, 2), 1e300),
        np.full((6, 2), -(2**63)),
        np.full((6, 2), 1 + 2j),
        np.array(5),
        np.zeros((6, 2, 1)),
        np.full((6, 2), "\ud800"),
        np.zeros((0, 2)),
        np.zeros((6, 2), "f2"),
        np.array(["2020-01-01"], "M8[D]"),
        [[1], [1, 2]],
        [["a"] * 2] * 6,
        [str(index) for index in range(6)],
        ["\ud800"] * 6,
        ["cat", "\udc00"],
        b"bytes",
    ]
)


@bounded(150)
@given(st.data(), st.sampled_from([0, 1]), st.sampled_from([0, 2, 4, 5]))
def test_changed_values_in_an_authors_file(
    fuse: Fuse, data: st.DataObject, which: int, protocol: int
) -> None:
    value = data.draw(changed(authors_small()[which], arrays_or_junk))
    path = (fuse.singles, fuse.both)[which]
    path.write_bytes(pickle.dumps(value, protocol))
    fuse.authors()


@bounded(100)
@given(st.data(), st.sampled_from([0, 1]), st.sampled_from([0, 2, 4, 5]))
def test_changed_bytes_in_an_authors_file(
    fuse: Fuse, data: st.DataObject, which: int, protocol: int
) -> None:
    content = pickle.dumps(authors_small()[which], protocol)
    (fuse.singles, fuse.both)[which].write_bytes(data.draw(damaged(content)))
    fuse.authors()


@bounded(100)
@given(st.binary() | damaged(npz(small()[0])) | damaged(npz(small()[0], compress=True)))
def test_changed_bytes_in_an_npz(fuse: Fuse, content: bytes) -> None:
    fuse.scores.write_bytes(content)
    fuse.npz()


@bounded(100)
@given(st.data())
def test_changed_arrays_in_an_npz(fuse: Fuse, data: st.DataObject) -> None:
    arrays = {**small()[0], "image_ids": np.arange(6)}
    name = data.draw(st.sampled_from(sorted(arrays)))
    value = data.draw(arrays_or_junk)
    try:
        arrays[name] = np.asarray(value)
    except ValueError:
        arrays[name] = np.empty(6, object)
    fuse.scores.write_bytes(npz(arrays))
    fused = fuse.npz()
    assert not (fused and arrays[name].dtype == object)


@bounded(100)
@given(changed(small()[1]) | junk | texts)
def test_changed_prompts_in_json(fuse: Fuse, value: Any) -> None:
    fuse.prompts.write_text(json.dumps(value, default=str))
    fuse.npz()


@bounded(50)
@given(st.binary())
@example(b"[" * 100_000)
def test_any_bytes_as_prompts(fuse: Fuse, content: bytes) -> None:
    fuse.prompts.write_bytes(content)
    assert not fuse.npz()


def npy(kind: str, shape: tuple[int, ...], content: bytes) -> bytes:
    """Returns an NPY file whose header need not match its content."""
    buffer = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + content


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("singleton", npy("<f8", (10**7, 10**7), b"more than there is memory")),
        ("singleton", npy("<f8", (-1, 2), bytes(96))),
        ("singleton", npy("|O", (1,), b"cos\nsystem\n(S'touch was-here'\ntR.")),
        ("image_ids", npy("<U1", (6,), b"\xff" * 24)),  # not code points
        ("compound", b"no array"),
    ],
    ids=["giant", "negative", "objects", "characters", "bytes"],
)
def test_a_malformed_array_fails(fuse: Fuse, name: str, array: bytes) -> None:
    changed_archive = io.BytesIO()
    with zipfile.ZipFile(fuse.scores) as good, zipfile.ZipFile(changed_archive, "w") as archive:
        for member in good.namelist():
            if member != f"{name}.npy":
                archive.writestr(member, good.read(member))
        archive.writestr(f"{name}.npy", array)
    fuse.scores.write_bytes(changed_archive.getvalue())
    assert not fuse.npz()


@bounded(150)
@given(hostile)
def test_loaded_values_are_plain(content: bytes) -> None:
    try:
        value = load_plain(content)
    except Exception:  # the caller turns it into a UserError
        return
    assert only_plain(value)


def only_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(only_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(only_plain, value))
    simple = bool | int | float | complex | str | bytes | bytearray | np.ndarray | np.dtype
    return value is None or isinstance(value, simple | np.generic)
