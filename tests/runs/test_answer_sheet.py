"""answers.csv of a unit, which grows by one answer at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparc_dist.errors import UserError
from sparc_dist.runs.answer_sheet import AnswerSheet
from sparc_dist.runs.answers_file import Question, read_answers

CAT = Question('a "b", c', "s3://bucket/a,b.jpg", "cat")
DOG = Question(CAT.image_id, CAT.uri, "dog")


def test_an_answer_replaces_the_earlier_one_and_can_be_taken_back(tmp_path: Path) -> None:
    url = str(tmp_path / "unit" / "answers.csv")
    sheet = AnswerSheet.read(url)
    assert sheet.rows == ()
    sheet.with_answer(CAT, "yes").with_answer(DOG, "unsure").with_answer(CAT, "no").write(url)
    sheet = AnswerSheet.read(url)
    assert sheet.answers("cat") == {CAT.image_id: "no"}
    assert sheet.answers("dog") == {CAT.image_id: "unsure"}
    assert read_answers(url, ["cat", "dog"]) == {CAT.image_id: {0: False}}
    sheet.without(CAT).write(url)
    assert AnswerSheet.read(url).answers("cat") == {}
    with pytest.raises(UserError, match="has no answers"):
        read_answers(url, ["cat", "dog"])


@pytest.mark.parametrize("word", ["unsure", "U", "?", ""])
def test_unsure_and_empty_answers_are_left_out(tmp_path: Path, word: str) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(f"image_id,class,answer\na,cat,{word}\nb,cat,Y\n")
    assert read_answers(str(path), ["cat"]) == {"b": {0: True}}


def test_a_file_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_bytes(b"")
    assert AnswerSheet.read(str(path)).rows == ()
    for content in (b"\xff\xfe", b"image_id,answer\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="--answers"):
            AnswerSheet.read(str(path))
