"""Score matrices from files: valid ones are read, others fail with an error."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparc_dist.errors import UserError
from sparc_dist.external_scores import read_authors, read_npz
from tests.support.matrices import authors_small, small

GOLDEN = Path(__file__).parents[1] / "golden"


def write(folder: Path, arrays: dict[str, Any], prompts: object) -> tuple[str, str]:
    np.savez(folder / "scores.npz", **arrays)
    (folder / "prompts.json").write_text(json.dumps(prompts))
    return str(folder / "scores.npz"), str(folder / "prompts.json")


def test_the_golden_npz_and_pickles_are_equal() -> None:
    npz = read_npz(str(GOLDEN / "scores.npz"), str(GOLDEN / "prompts.json"))
    authors = read_authors(str(GOLDEN / "authors_layout"), "VOC2007", "ViT-B16")
    for name in ("singleton", "auxiliary", "compound"):
        np.testing.assert_array_equal(getattr(npz.scores, name), getattr(authors.scores, name))
    np.testing.assert_array_equal(npz.labels, authors.labels)
    assert npz.bank.classes == authors.bank.classes
    assert [p.class_ids for p in npz.bank.compound] == [p.class_ids for p in authors.bank.compound]
    assert authors.ids[:2] == ["im000000.jpg", "im000001.jpg"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda a, p: a.pop("auxiliary"), "no array `auxiliary`"),
        (
            lambda a, p: a.update(singleton=a["singleton"][:, :1]),
            r"`singleton` has the shape",
        ),
        (
            lambda a, p: a.update(compound=a["compound"][:5]),
            r"6 images and 1 compound",
        ),
        (lambda a, p: a.update(labels=a["labels"].T), "`labels` has the shape"),
        (lambda a, p: a.update(labels=a["labels"] + 5), "`labels` must be 1 for present"),
        (lambda a, p: a["compound"].__setitem__((3, 0), np.nan), "nan at row 3, column 0"),
        (lambda a, p: a["singleton"].__setitem__((1, 1), np.inf), "inf at row 1, column 1"),
        (lambda a, p: a.update(singleton=np.zeros(6)), "must be a matrix of numbers"),
        (lambda a, p: a.update(singleton=np.full((6, 2), "x")), "must be a matrix of numbers"),
        (lambda a, p: p.update(prompts=["a boat"]), "prompt 0, 'a boat', mentions no class"),
        (lambda a, p: p.update(classes=["cat", "cat"]), "duplicate class"),
        (lambda a, p: p.update(background=["dog"]), "duplicate class 'dog'"),
        (lambda a, p: p.update(background="tree"), "`background` must be a list of texts"),
        (lambda a, p: p.update(background=["tree"]), "3 classes and background classes"),
        (lambda a, p: p.pop("classes"), "`classes` must be a list of texts"),
        (lambda a, p: a.update(image_ids=np.array(list("abcabc"))), "duplicate image id 'a'"),
        (lambda a, p: a.update(image_ids=np.array(list("abc"))), "3 `image_ids` for 6 images"),
        (lambda a, p: a.update(image_ids=np.array("a")), "1 `image_ids` for 6 images"),
        (lambda a, p: a.update(singleton=np.array(3.0)), "must be a matrix of numbers"),
        (
            lambda a, p: a.update({k: v[:0] for k, v in a.items()}),
            "contains no images",
        ),
    ],
)
def test_an_error_says_where_the_mistake_is(
    tmp_path: Path, change: Callable[[Any, Any], object], expected: str
) -> None:
    arrays, prompts = small()
    change(arrays, prompts)
    with pytest.raises(UserError, match=expected):
        read_npz(*write(tmp_path, arrays, prompts))


def test_labels_and_ids_are_optional(tmp_path: Path) -> None:
    arrays, prompts = small()
    del arrays["labels"]
    matrices = read_npz(*write(tmp_path, arrays, prompts))
    assert matrices.labels is None
    assert matrices.ids == ["0", "1", "2", "3", "4", "5"]


def test_an_npz_with_objects_fails(tmp_path: Path) -> None:
    arrays, prompts = small()
    arrays["singleton"] = np.array([{}, []], dtype=object)
    with pytest.raises(UserError, match="not an NPZ file of plain arrays"):
        read_npz(*write(tmp_path, arrays, prompts))


class Attack:
    """Runs a command when it is unpickled by plain pickle."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def authors_files(folder: Path, singles: object, both: object, dataset: str = "VOC2007") -> None:
    (folder / f"{dataset}_test_baseline_zsclip_cossims_X_ensemble_80.pkl").write_bytes(
        pickle.dumps(singles)
    )
    (folder / f"{dataset}_test_simple_single_and_compound_cossims_X.pkl").write_bytes(
        pickle.dumps(both)
    )


def test_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    witness = tmp_path / "was-here"
    singles, both = authors_small()
    authors_files(tmp_path, {**singles, "cossims": Attack(f"touch {witness}")}, both)
    with pytest.raises(UserError, match=r"was not read .*it refers to"):
        read_authors(str(tmp_path), "VOC2007", "X")
    assert not witness.exists()
    # The attack is real: plain pickle would have run it.
    pickle.loads(pickle.dumps(Attack(f"touch {witness}")))
    assert witness.exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s, b: b.update(impaths=b["impaths"][::-1]), "lists other images"),
        (lambda s, b: b.update(gts=1 - b["gts"]), "has other labels"),
        (lambda s, b: b["simple_single_and_compound_prompts"].reverse(), "are not the class names"),
        (lambda s, b: s.pop("classnames"), "must contain a dict with"),
        (lambda s, b: s.update(impaths=7), "`impaths` must be a list of texts"),
        (lambda s, b: b.update(cossims=b["cossims"][:, :2]), "`compound` has the shape"),
        (lambda s, b: b.update(cossims="x"), "`cossims` must be a matrix"),
    ],
)
def test_pickles_that_do_not_fit(
    tmp_path: Path, change: Callable[[Any, Any], object], expected: str
) -> None:
    singles, both = authors_small()
    change(singles, both)
    authors_files(tmp_path, singles, both)
    with pytest.raises(UserError, match=expected):
        read_authors(str(tmp_path), "VOC2007", "X")


def test_aliases_of_coco_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    singles, both = authors_small()
    singles |= {"classnames": ["motor bike", "aeroplane", "bowl"], "cossims": rng.random((6, 3))}
    singles["gts"] = both["gts"] = rng.integers(0, 2, (6, 3))
    both["simple_single_and_compound_prompts"] = [
        "motorcycle",
        "airplane",
        "food bowl",
        "motorcycle and airplane",
        "bowl and motor bike",
    ]
    both["cossims"] = rng.random((6, 5))
    authors_files(tmp_path, singles, both, "COCO2014")
    matrices = read_authors(str(tmp_path), "COCO2014", "X")
    assert matrices.bank.classes == ("motorcycle", "airplane", "bowl")
    assert [prompt.class_ids for prompt in matrices.bank.compound] == [(0, 1), (0, 2)]


def test_files_that_are_missing_or_of_another_kind(tmp_path: Path) -> None:
    arrays, prompts = small()
    scores, texts = write(tmp_path, arrays, prompts)
    with pytest.raises(UserError, match="There is no file"):
        read_npz(str(tmp_path / "none.npz"), texts)
    with pytest.raises(UserError, match="not an NPZ"):
        read_npz(texts, texts)
    with pytest.raises(UserError, match="not valid JSON"):
        read_npz(scores, scores)
    with pytest.raises(UserError, match="There is no file"):
        read_authors(str(tmp_path), "VOC2007", "X")
