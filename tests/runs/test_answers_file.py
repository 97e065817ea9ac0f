"""Files of answers: filled by hand, or one per session of the viewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparc_dist.errors import UserError
from sparc_dist.runs.answers import Question, Session, read_answers

CAT = Question('a "b", c', "s3://bucket/a,b.jpg", "cat")
DOG = Question(CAT.image_id, CAT.uri, "dog")
CLASSES = ["cat", "dog"]


def answer(session: Session, question: Question, word: str) -> None:
    session.write(question, word, session.read().get(question.key))


def test_an_answer_replaces_the_earlier_one_and_can_be_taken_back(tmp_path: Path) -> None:
    folder = str(tmp_path / "unit" / "answers")
    first, second = Session(folder), Session(folder)
    assert (first.read(), first.place()) == ({}, folder)
    answer(first, CAT, "yes")
    answer(first, DOG, "unsure")
    answer(second, CAT, "no")
    assert {key: row.answer for key, row in first.read().items()} == {
        DOG.key: "unsure",
        CAT.key: "no",
    }
    assert read_answers(folder, CLASSES) == {CAT.image_id: {0: False}}
    assert read_answers(first.url, CLASSES) == {CAT.image_id: {0: True}}  # one file alone
    answer(first, CAT, "")
    with pytest.raises(UserError, match="has no answers"):
        read_answers(folder, CLASSES)
    answer(first, CAT, "yes")
    assert read_answers(folder, CLASSES) == {CAT.image_id: {0: True}}


def test_the_last_answer_counts_though_another_clock_is_fast(tmp_path: Path) -> None:
    row = '"a ""b"", c",cat,yes,2999-01-01T01:00:00.000000+01:00'
    (tmp_path / "fast.csv").write_text(f"image_id,class,answer,time\n{row}\n")
    slow = Session(str(tmp_path))
    answer(slow, CAT, "no")
    assert read_answers(str(tmp_path), CLASSES) == {CAT.image_id: {0: False}}
    assert slow.rows[CAT.key].time == "2999-01-01T00:00:00.000001+00:00"


def test_two_files_without_times_must_agree(tmp_path: Path) -> None:
    for name, word in (("a.csv", "yes"), ("B.CSV", "no")):
        (tmp_path / name).write_text(f"image_id,class,answer\n1,cat,{word}\n2,cat,yes\n")
    (tmp_path / "notes.txt").write_text("not read")
    with pytest.raises(UserError, match=r"a\.csv, line 2: yes and no for the same image and class"):
        read_answers(str(tmp_path), CLASSES)
    (tmp_path / "B.CSV").write_text("image_id,class,answer\n1,cat,y\n1,dog,no\n")
    assert read_answers(str(tmp_path), CLASSES) == {"1": {0: True, 1: False}, "2": {0: True}}


@pytest.mark.parametrize("word", ["unsure", "U", "?", ""])
def test_unsure_and_empty_answers_are_left_out(tmp_path: Path, word: str) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(f"image_id,class,answer\na,cat,{word}\nb,cat,Y\n")
    assert read_answers(str(path), ["cat"]) == {"b": {0: True}}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for content in (b"", b"\xff\xfe", b"image_id,answer\n"):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(UserError, match=r"--answers .*a\.csv"):
            Session(str(tmp_path)).read()
    (tmp_path / "a.csv").unlink()
    with pytest.raises(UserError, match="there is no such file; check the path"):
        read_answers(str(tmp_path), CLASSES)
