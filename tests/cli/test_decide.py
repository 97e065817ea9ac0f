"""decide and ask, as a user types them, on the golden set."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.cli.decide import _prevalences
from sparc_dist.core import Agreement, Answers, decide
from sparc_dist.errors import UserError
from sparc_dist.runs import UnitLayout
from sparc_dist.runs.answers import read_answers
from tests.support.cases import golden, golden_answer
from tests.support.final_scores import scored, states
from tests.support.golden_unit import CLASSES, IDS, write_unit

Output = pytest.CaptureFixture[str]


@pytest.fixture
def unit(tmp_path: Path) -> UnitLayout:
    return write_unit(tmp_path / "run")


def call(tmp_path: Path, command: str, *options: object) -> int:
    return main([command, str(tmp_path / "run"), *map(str, options)])


def fill_in(path: Path) -> None:
    """Answers all questions with the labels."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = golden()[2]
    for row in rows:
        present = labels[IDS.index(row["image_id"]), CLASSES.index(row["class"])]
        row["answer"] = "yes" if present else "no"
    write(path, rows)


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def answers_file(path: Path, *rows: tuple[str, str, str]) -> Path:
    write(path, [dict(zip(("image_id", "class", "answer"), row, strict=True)) for row in rows])
    return path


def micro_f1(unit: UnitLayout) -> float:
    found: float = storage.read_json(unit.metrics)["sparc"]["decisions"]["micro_f1"]
    return found


def test_prevalences_from_pairs_and_from_a_table(
    tmp_path: Path, unit: UnitLayout, capsys: Output
) -> None:
    expected = golden_answer("decisions")["sparc"]
    assert call(tmp_path, "decide", "--prevalence", "pottedplant=0.4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["class", "prevalence", "present", "from", "status"]
    assert lines[16].split() == ["pottedplant", "0.400", "0.379", "given"]
    assert lines[21] == "micro-F1: 64.4 % before, 65.5 % now"
    assert lines[22] == "macro-F1: 57.4 % before, 57.7 % now"
    assert storage.read_json(unit.decisions)["rule"] == {"prevalence": {"pottedplant": 0.4}}

    table = tmp_path / "train.csv"
    names = [";".join(CLASSES[i] for i in row.nonzero()[0]) for row in golden()[2]]
    write(table, [{"uri": f"{i}.jpg", "labels": cell} for i, cell in enumerate(names)])
    assert call(tmp_path, "decide", "--prevalence", table) == 0
    assert micro_f1(unit) == pytest.approx(
        expected["prevalences_given"]["percent"]["micro_F1"], abs=0.1
    )


def test_answers_improve_decisions(tmp_path: Path, unit: UnitLayout, capsys: Output) -> None:
    labels, out = golden()[2], tmp_path / "answers.csv"
    rows = [
        (IDS[i], name, "yes" if labels[i, c] else "No ")
        for i in range(50)
        for c, name in enumerate(CLASSES)
    ]
    assert call(tmp_path, "decide", "--answers", answers_file(out, *rows, ("x", "cat", "y"))) == 0
    printed = capsys.readouterr().out
    assert "micro-F1: 64.4 % before, 67.9 % now" in printed
    assert "1 of the 51 images with answers have no scores, such as 'x'" in printed


def test_ask_then_fill_in_then_decide(tmp_path: Path, unit: UnitLayout, capsys: Output) -> None:
    out = tmp_path / "answers.csv"
    assert call(tmp_path, "ask", "--count", 50, "--out", out) == 0
    assert "1000 questions about 50 images" in capsys.readouterr().out
    rows = list(csv.DictReader(out.open(newline="")))
    assert list(rows[0]) == ["image_id", "uri", "class", "answer"]
    assert rows[0]["uri"] == f"/photos/{rows[0]['image_id']}.jpg"
    assert {row["answer"] for row in rows} == {""}
    asked = list(dict.fromkeys(row["image_id"] for row in rows))
    assert len(asked) == 50
    assert asked != sorted(asked)
    again, other = tmp_path / "again.csv", tmp_path / "other.csv"
    call(tmp_path, "ask", "--count", 50, "--out", again)
    call(tmp_path, "ask", "--count", 50, "--out", other, "--seed", 1)
    assert again.read_bytes() == out.read_bytes() != other.read_bytes()

    assert call(tmp_path, "decide", "--answers", out) == 2
    assert "has no answers; fill in yes or no" in capsys.readouterr().err
    fill_in(out)
    assert call(tmp_path, "decide", "--answers", out) == 0
    assert micro_f1(unit) == pytest.approx(expected_f1(asked), abs=0.1)
    assert micro_f1(unit) == pytest.approx(66.25, abs=0.1)  # 64.4 without answers


def expected_f1(asked: list[str]) -> float:
    """Micro-F1 with all answers about some images, from exact scores in one piece."""
    (total, final), labels = scored("sparc"), golden()[2]
    rows = [IDS.index(image_id) for image_id in asked]
    answers = Answers.of(total[rows], final[rows], labels[rows])
    rule = decide(*states(total, final), 20, None, answers)
    found = Agreement.of(*rule.judge(total, final), labels).metrics()["micro_f1"]
    assert found is not None
    return found


def test_ask_about_one_class(tmp_path: Path, unit: UnitLayout, capsys: Output) -> None:
    out = tmp_path / "answers.csv"
    assert call(tmp_path, "ask", "--count", 40, "--class", "bus", "--out", out) == 0
    rows = list(csv.DictReader(out.open(newline="")))
    assert {row["class"] for row in rows} == {"bus"}
    assert len({row["image_id"] for row in rows}) == 40
    fill_in(out)
    assert call(tmp_path, "decide", "--answers", out) == 0
    rule = storage.read_json(unit.decisions)["sparc"]["classes"]["bus"]
    assert rule["status"] == "labelled"
    assert call(tmp_path, "ask", "--out", out) == 2
    assert "exists and may hold answers; choose another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prevalence", "cow=0.1,unicorn=0.2"], "--prevalence: unknown class 'unicorn'; the"),
        (["--prevalence", "cow=1.5"], "--prevalence cow=1.5: write a share between 0 and 1"),
        (["--prevalence", "cow=often"], "--prevalence cow=often: write a share"),
        (["--prevalence", "cow"], "'cow' is not CLASS=SHARE; write it like aeroplane=0.1"),
        (["--prevalence", "cow=0.1,cow=0.2"], "--prevalence: 'cow' is given twice; keep one"),
        (["--prevalence", "none.csv"], "There is no table none.csv"),
        (["--top", "21"], "--top 21: there are only 20 classes; lower it"),
        (["--answers", "none.csv"], "--answers none.csv: there is no such file; check"),
        (["--dataset", "coco"], "There is no dataset 'coco' in the run at"),
    ],
)
@pytest.mark.usefixtures("unit")
def test_errors_name_the_option_and_the_remedy(
    tmp_path: Path, options: list[str], message: str, capsys: Output
) -> None:
    assert call(tmp_path, "decide", *options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [["--threshold", "1"], ["--threshold", "x"], ["--per-image", "0"]]
)
def test_numbers_out_of_range_are_refused(
    tmp_path: Path, option: list[str], capsys: Output
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call(tmp_path, "decide", *option)
    assert f"argument {option[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("000", "unicorn", "yes")], "line 2: unknown class 'unicorn'; use one of"),
        ([("000", "cat", ""), ("000", "cat", "maybe")], "line 3: the answer is 'maybe'; write yes"),
        ([("000", "cat", "yes"), ("000", "cat", "no")], "line 3: yes and no for the same image"),
        ([("nobody", "cat", "yes")], "--answers: none of its 1 images is in"),
    ],
)
@pytest.mark.usefixtures("unit")
def test_wrong_answers_are_explained(
    tmp_path: Path, rows: list[tuple[str, str, str]], message: str, capsys: Output
) -> None:
    path = answers_file(tmp_path / "a.csv", *rows)
    assert call(tmp_path, "decide", "--answers", path) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("unit")
def test_ask_about_an_unknown_class(tmp_path: Path, capsys: Output) -> None:
    assert call(tmp_path, "ask", "--class", "unicorn", "--out", tmp_path / "a.csv") == 2
    assert "--class: unknown class 'unicorn'; the classes are aeroplane" in capsys.readouterr().err


def test_a_table_without_labels_or_without_a_class(
    tmp_path: Path, unit: UnitLayout, capsys: Output
) -> None:
    table = tmp_path / "train.csv"
    write(table, [{"uri": "a.jpg", "labels": ""}, {"uri": "b.jpg", "labels": ""}])
    assert call(tmp_path, "decide", "--prevalence", table) == 2
    assert "no row has labels" in capsys.readouterr().err
    write(table, [{"uri": "a.jpg", "labels": "cat"}, {"uri": "b.jpg", "labels": "dog"}])
    assert call(tmp_path, "decide", "--prevalence", table) == 0
    assert "contains aeroplane, bicycle" in capsys.readouterr().out
    given = storage.read_json(unit.decisions)["sparc"]["classes"]
    assert {name for name, row in given.items() if row["status"] == "given"} == {"cat", "dog"}


def test_a_comma_in_the_name_of_a_class() -> None:
    classes = ["cat", "dog, brown", "a=b", "dog"]
    found = _prevalences("dog, brown=0.1,cat=0.2, a=b=0.3,dog=0.4", classes)
    assert found == {1: 0.1, 0: 0.2, 2: 0.3, 3: 0.4}


def test_only_a_labels_csv_of_ours_is_written_again(tmp_path: Path, unit: UnitLayout) -> None:
    other = tmp_path / "run" / "labels.csv"
    other.write_text("my,own,truth\n")
    assert call(tmp_path, "decide", "--top", 2) == 0
    assert other.read_text() == "my,own,truth\n"
    other.write_text("image_id,class,probability,present,score,rank\n")
    assert call(tmp_path, "decide", "--top", 2) == 0
    assert other.read_text().count(",yes,") == 2 * len(IDS)


def test_answers_as_spreadsheets_save_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("sep=;\nImage_id; class;answer\n\n000;cat;Yes\n")
    assert read_answers(str(path), CLASSES) == {"000": {CLASSES.index("cat"): True}}
    path.write_text("image_id\tclass\tanswer\n000\tcat\tno\n")
    assert read_answers(str(path), CLASSES) == {"000": {CLASSES.index("cat"): False}}
    path.write_text("image_id,class,answer,answer\n000,cat,no,yes\n")
    with pytest.raises(UserError, match="more than one column `answer`"):
        read_answers(str(path), CLASSES)
