"""Another method's scores: matched by class and image in any spelling, or an error."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparc_dist.config import DATASET_KINDS
from sparc_dist.core import Method, Scores, mentions_of
from sparc_dist.errors import UserError
from sparc_dist.external_scores import read_authors
from sparc_dist.research.plug_in_scores import (
    METHODS,
    PlugIn,
    none_found,
    prepared,
    read_plug_in,
)
from tests.support.cases import made_up
from tests.support.fitting import fit_sparc
from tests.support.strategies import bounded, changed, damaged, junk

GOLDEN = Path(__file__).parents[1] / "golden" / "authors_layout"
CLASSES = ["cat", "potted plant", "airplane"]
IDS = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/3"]
SCORES = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
#: The same classes in another order and spelling, and one that the run does not have.
THEIRS = {"PottedPlant": 1, "aeroplane": 2, "dog": 0, "Cat": 0}


def wide(**more: Any) -> dict[str, Any]:
    """A table with one column per class."""
    columns = {name: SCORES[:, column] for name, column in THEIRS.items()}
    return {"image_id": IDS, **columns, **more}


def arrays(**more: Any) -> dict[str, Any]:
    return {"image_ids": np.array(IDS), "scores": SCORES, **more}


def authors(**more: Any) -> dict[str, Any]:
    shuffled = SCORES[:, list(THEIRS.values())].astype(np.float64)
    return {"cossims": shuffled, "impaths": IDS, "classnames": list(THEIRS), "gts": 0, **more}


def parquet(columns: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=3)
    return buffer.getvalue()


def csv(columns: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    pa.csv.write_csv(pa.table(columns), buffer)
    return buffer.getvalue()


def npz(columns: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **columns)
    return buffer.getvalue()


def read(folder: Path, name: str, content: bytes) -> PlugIn:
    (folder / name).write_bytes(content)
    return read_plug_in(str(folder / name), CLASSES)


LISTS = SCORES.tolist()
ROWS = [0, 1, 2, 3]
FILES = {
    "wide.parquet": parquet(wide(labels=[[1], [0], [], [2, 1]])),
    "lists.parquet": parquet({"image_id": IDS, "of_mine": LISTS, "note": IDS}),
    "chosen.parquet": parquet({"image_id": IDS, "other": LISTS[::-1], "scores": LISTS}),
    "fixed.parquet": parquet({"image_id": IDS, "s": pa.array(LISTS, pa.list_(pa.float32(), 3))}),
    "wide.csv": csv(wide()),
    "spaced.CSV": csv(wide()).replace(b",", b", "),
    "named.npz": npz(
        arrays(scores=SCORES[:, [2, 0, 1]], classes=["Airplane", "cat", "pottedplant"])
    ),
    "bare.npz": npz(arrays(image_ids=np.array(IDS, "S"))),
    "authors.pkl": pickle.dumps(authors()),
    "bare.pickle": pickle.dumps(arrays(scores=LISTS, image_ids=IDS), 2),
}


@pytest.mark.parametrize("name", FILES)
def test_the_same_scores_in_every_format(tmp_path: Path, name: str) -> None:
    plug_in = read(tmp_path, name, FILES[name])
    assert list(plug_in.ids) == IDS
    assert plug_in.scores.dtype == np.float32
    np.testing.assert_array_equal(plug_in.scores, SCORES)


def test_the_authors_own_file() -> None:
    (url,) = map(str, GOLDEN.glob("*_baseline_*"))
    matrices = read_authors(str(GOLDEN), "VOC2007", "ViT-B16")
    plug_in = read_plug_in(url, DATASET_KINDS["voc2007"].classes[::-1])
    singleton = matrices.scores.singleton.astype(np.float32)
    np.testing.assert_array_equal(plug_in.scores, singleton[:, ::-1])
    found, scores = plug_in.rows(["im000007", "/voc/im000003.jpg", "im7.jpg"])
    assert found.tolist() == [True, True, False]
    np.testing.assert_array_equal(scores, singleton[[7, 3], ::-1])


def test_an_alias_never_takes_the_column_of_another_class(tmp_path: Path) -> None:
    url = tmp_path / "s.npz"
    url.write_bytes(npz(arrays(scores=SCORES[:, :2], classes=["motorbike", "motorcycle"])))
    plug_in = read_plug_in(str(url), ["motorcycle", "motor bike"])
    np.testing.assert_array_equal(plug_in.scores, SCORES[:, [1, 0]])
    url.write_bytes(npz(arrays(scores=SCORES[:, :1], classes=["motorbike"])))
    assert read_plug_in(str(url), ["motorcycle"]).scores.shape == (4, 1)
    with pytest.raises(UserError, match="no scores for the class 'motorcycle'"):
        read_plug_in(str(url), ["motorcycle", "motor bike"])


def numbered(ids: list[str]) -> PlugIn:
    """Each image's score is its row."""
    return PlugIn(ids, np.arange(len(ids), dtype=np.float32)[:, None], "s.npz")


def rows_of(plug_in: PlugIn, image_ids: list[str]) -> list[int | None]:
    found, scores = plug_in.rows(image_ids)
    rows = iter(scores[:, 0].tolist())
    return [int(next(rows)) if is_found else None for is_found in found]


@pytest.mark.parametrize(
    ("image_id", "row"),
    [
        ("data/a/1.jpg", 0),
        ("a/1.jpg", 0),
        ("a/1", 0),
        ("x/data/b/1.JPG", 1),
        ("b\\1.png", 1),  # one image, stored in another format
        ("./b/1.jpg", 1),
        ("1.jpg", None),  # in a or in b
        ("c/1.jpg", None),
        ("2", 2),
        ("any/where/2.jpg", 2),
        ("c/3.jpg", 3),
        ("d/3.jpg", None),
        ("4.jpg", 4),
        ("4.png", 5),
        ("4", None),
        ("v1.5", 6),
        ("v1.jpg", None),  # .5 is not the suffix of an image
    ],
)
def test_an_image_is_found_by_id_or_path(image_id: str, row: int | None) -> None:
    theirs = ["data/a/1.jpg", "data/b/1.jpg", "2", "/data/c/3.jpg", "4.jpg", "4.png", "v1.5"]
    assert rows_of(numbered(theirs), [image_id]) == [row]


paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join)


@bounded(60)
@given(
    st.lists(paths, unique=True, min_size=1),
    st.sampled_from(["", "data/", "/a/b/"]),
    st.permutations(["", ".jpg", ".PNG"]),
    st.randoms(use_true_random=False),
)
def test_an_image_is_found_with_any_prefix_and_suffix(
    images: list[str], prefix: str, endings: list[str], random: Any
) -> None:
    # With a first folder whose name occurs nowhere else, no path is the end of another.
    shared = [f"r/{path}" for path in images]
    ours = random.sample(shared, len(shared))
    expected = [shared.index(path) for path in ours]
    longer = numbered([prefix + path + endings[0] for path in shared])
    assert rows_of(longer, [path + endings[1] for path in ours]) == expected
    bare = numbered([path + endings[0] for path in shared])
    assert rows_of(bare, [prefix + path + endings[1] for path in ours]) == expected


def test_two_images_of_the_run_never_share_a_row() -> None:
    plug_in = numbered(["1.jpg", "2.jpg"])
    assert rows_of(plug_in, ["a/1.jpg", "2", "2"]) == [0, 1, 1]
    with pytest.raises(
        UserError, match=r"'1\.jpg' could be the run's image 'a/1.jpg' or 'b/1.jpg'"
    ):
        plug_in.rows(["a/1.jpg", "b/1.jpg"])


def test_if_no_image_is_found_the_error_shows_ids_of_both_sides() -> None:
    plug_in = numbered(["1", "2"])
    found, scores = plug_in.rows(["x.jpg"])
    assert (found.tolist(), scores.shape) == ([False], (0, 1))
    assert "are like '1', the run's are like 'x.jpg'" in str(none_found(plug_in, ["x.jpg"]))


def broken(row: int, column: int, value: float) -> Any:
    scores = SCORES.astype(np.float64)
    scores[row, column] = value
    return scores


MISTAKES: list[tuple[str, Callable[[], bytes], str]] = [
    ("s.txt", lambda: b"", r"none of \.parquet, \.csv, \.npz, \.pkl, \.pickle; use"),
    ("s.csv", lambda: csv({"id": IDS}), "0 columns `image_id`; it must have one"),
    ("s.csv", lambda: csv(wide(Cat=["x"] * 4)), "`Cat` is not numeric .*'x'.*; correct it"),
    ("s.csv", lambda: csv(wide(Cat=["nan"] * 4)), "`Cat` is nan at row 0"),
    ("s.csv", lambda: csv(wide(CAT=SCORES[:, 0])), "duplicate class 'cat'; keep one"),
    ("s.csv", lambda: csv(wide(image_id=[1, 2, 3, 1])), "duplicate image id '1'"),
    ("s.csv", lambda: csv(wide())[:50], "cannot be read as a table .*; write it again"),
    ("s.csv", lambda: csv(wide()).splitlines()[0] + b"\n", "contains no images"),
    (
        "s.csv",  # with pandas's index in a column without a name
        lambda: csv({"": ROWS, "image_id": IDS, "cat": ROWS, "aeroplane": ROWS}),
        "no scores for the class 'potted plant'; add a column",
    ),
    (
        "s.parquet",
        lambda: parquet({"image_id": IDS, "s": [[1, 2]] * 4}),
        "row 0: `s` has 2 numbers",
    ),
    (
        "s.parquet",
        lambda: parquet({"image_id": IDS, "s": [*LISTS[:3], None]}),
        "row 3: `s` has 0",
    ),
    ("s.parquet", lambda: parquet({"image_id": IDS, "s": [[1, 2, None]] * 4}), "nan at row 0"),
    ("s.parquet", lambda: parquet({"image_id": IDS, "s": LISTS, "t": LISTS}), "2 columns of lists"),
    (
        "s.parquet",
        lambda: parquet(wide(image_id=["a", None, "b", "c"])),
        "row 1: `image_id` is mis",
    ),
    ("s.parquet", lambda: parquet(wide(image_id=LISTS)), "`image_id` must be texts"),
    ("s.parquet", lambda: parquet(wide(Cat=[*SCORES[:3, 0], None])), "`Cat` is nan at row 3"),
    ("s.npz", lambda: npz({"scores": SCORES}), "neither `image_ids` nor `impaths`; add it"),
    (
        "s.npz",
        lambda: npz(arrays(scores=SCORES[:, :2])),
        r"\(4, 2\).* 4 ids and 3 classes in the run",
    ),
    ("s.npz", lambda: npz(arrays(classes=CLASSES[:2])), "2 classes in `classes`; use"),
    ("s.npz", lambda: npz(arrays(scores=broken(2, 1, np.inf))), "inf at row 2, column 1"),
    ("s.npz", lambda: npz(arrays(scores=broken(2, 1, 1e39))), "1e.39 at row 2, column 1"),
    ("s.npz", lambda: npz(arrays(scores=np.full((4, 3), "x"))), "must be a matrix of numbers"),
    ("s.pkl", lambda: pickle.dumps(authors(impaths=[["a"]])), "`impaths` must be texts"),
    ("s.pkl", lambda: pickle.dumps([1]), "must contain a dict"),
    ("s.pkl", lambda: pickle.dumps(authors(gts=len)), r"was not read .*builtins.len'\); write"),
]


@pytest.mark.parametrize(("name", "content", "expected"), MISTAKES)
def test_an_error_says_where_the_mistake_is(
    tmp_path: Path, name: str, content: Callable[[], bytes], expected: str
) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        read(tmp_path, name, content())
    assert str(caught.value).startswith(str(tmp_path / name))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"There is no file nowhere/s\.csv; check the path"):
        read_plug_in("nowhere/s.csv", CLASSES)


def test_the_log_of_tagclips_probabilities_is_used() -> None:
    scores, mentioned = made_up(3)
    singleton = scores.singleton.astype(np.float32)
    ids = [str(row) for row in range(len(singleton))]
    plug_in = prepared(PlugIn(ids, np.exp(singleton), "t.npz"), "tagclip")
    assert METHODS["tagclip"] == "none"

    def final(singleton: Any) -> Any:
        whole = Scores(singleton, scores.auxiliary, scores.compound)
        return fit_sparc(
            lambda: [whole], mentions_of(mentioned, 5), Method(image_debias="none")
        ).final(whole)[1]

    np.testing.assert_allclose(final(plug_in.rows(ids)[1]), final(singleton), atol=1e-5)


def test_a_probability_of_zero_counts_as_the_smallest_above_it() -> None:
    scores = np.array([[0, 0.5], [1e-45, 1]], np.float32)  # not 1e-45, but the nearest float32
    logs = prepared(PlugIn(["a", "b"], scores, "t.npz"), "tagclip").scores
    smallest = float(scores[1, 0])
    np.testing.assert_array_equal(logs, np.log([[smallest, 0.5], [smallest, 1]]).astype(np.float32))


@pytest.mark.parametrize("scores", [[[0.5, -0.1]], [[0.0, 0.0]]])
def test_tagclip_scores_that_are_not_probabilities_fail(scores: list[list[float]]) -> None:
    plug_in = PlugIn(["a"], np.array(scores, np.float32), "t.npz")
    with pytest.raises(UserError, match=r"^t\.npz: .* name the method `other`"):
        prepared(plug_in, "tagclip")
    for method in ("tai-dpt", "comc", "other"):
        assert prepared(plug_in, method) == plug_in
        assert METHODS[method] == "full"


def check_sound(folder: Path, name: str, content: bytes) -> None:
    """Checks that the file is read, or fails with an error of one line."""
    message = ""
    try:
        plug_in = read(folder, name, content)
    except UserError as error:
        message = str(error)
    if message:
        assert message.startswith(str(folder))
        assert "\n" not in message
        return
    assert plug_in.scores.shape == (len(set(plug_in.ids)), 3)
    assert np.isfinite(plug_in.scores).all()
    assert plug_in.rows(plug_in.ids)[0].all()


contents = st.sampled_from(sorted(FILES)).flatmap(
    lambda name: st.tuples(st.just(name), damaged(FILES[name]) | st.binary())
)


@bounded(300)
@given(contents)
@example(("s.parquet", b"PAR1" + bytes(8) + b"PAR1"))
@example(("s.csv", b"image_id,cat,potted plant,airplane\n\xff,1,2,3\n"))
@example(("s.pkl", b"(" * 100_000 + b"N" + b"t" * 100_000 + b"."))
def test_damaged_bytes_are_scores_or_an_error(tmp_path: Path, file: tuple[str, bytes]) -> None:
    check_sound(tmp_path, *file)


@bounded(150)
@given(changed(authors(cossims=SCORES[:, list(THEIRS.values())].tolist()), junk | st.just(LISTS)))
def test_changed_values_are_scores_or_an_error(tmp_path: Path, value: Any) -> None:
    check_sound(tmp_path, "s.pkl", pickle.dumps(value))


columns = st.sampled_from(["image_id", "scores", "cat", "potted plant", "airplane"])
cells = st.sampled_from(
    [
        pa.array([["x"]] * 4),
        pa.array([[[1.0, 2.0, 3.0]]] * 4),
        pa.array([[True] * 3] * 4),
        pa.array([[1, 2, 3]] * 4, pa.large_list(pa.uint64())),
        pa.array([{"a": 1}] * 4),
        pa.array([[("a", 1.0)]] * 4, pa.map_(pa.string(), pa.float64())),
        pa.array([1, 2, 3, 2**63 - 1]),
        pa.array([0, 1, 2, 3], pa.timestamp("us")),
        pa.array([b"\xff", b"1", b"2", b"3"]),
        pa.array([1, 2, 3, 4], pa.decimal128(38, 2)),
        pa.array(["1", "2", "3", "4"]).dictionary_encode(),
        pa.nulls(4),
    ]
)


@bounded(150)
@given(st.dictionaries(columns, cells, min_size=1, max_size=3))
@example({"scores": pa.array([[1, 2, 3]] * 4)})
def test_columns_of_any_type_are_scores_or_an_error(
    tmp_path: Path, other: dict[str, pa.Array]
) -> None:
    good = {"image_id": IDS, **{name: SCORES[:, i] for i, name in enumerate(CLASSES)}}
    check_sound(tmp_path, "s.parquet", parquet(good | other))
