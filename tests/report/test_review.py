"""Reviews over real HTTP: answers, what they change, and who may give them."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.report.view.review import Outcome, Review
from sparc_dist.report.view.site import Site
from sparc_dist.runs.answers_file import Session
from sparc_dist.runs.finished_unit import open_unit
from sparc_dist.runs.refit import Rule, refit
from tests.support.cases import golden
from tests.support.golden_unit import CLASSES, IDS, write_unit
from tests.support.viewing import REVIEW, Client, question, unit_of, viewing


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run to review; its images need not exist."""
    write_unit(tmp_path / "run")
    return tmp_path / "run"


def answer_all(client: Client) -> int:
    """Answers every question of a round with the labels."""
    column = golden()[2][:, CLASSES.index("person")]
    for count in range(100):
        asked = question(client)
        if not asked:
            return count
        word = "unsure" if count == 7 else "yes" if column[IDS.index(asked)] else "no"
        assert client.post(REVIEW, image=asked, do=word).status == 303
    raise AssertionError("The review does not end.")


def test_a_review_ends_in_the_decisions_that_decide_makes_of_its_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = unit_of(run)
    shutil.copytree(run, tmp_path / "other")
    before = Path(unit.decisions).read_bytes()
    with viewing(run) as client:
        assert answer_all(client) == 40
        assert Path(unit.decisions).read_bytes() == before
        assert client.post(REVIEW, do="use").status == 303
        text = client.get(REVIEW).text
        assert "What the answers changed" in text
        for name in ("estimated F1", "F1 on your answers"):
            assert re.search(rf'{name} \(%\)</th>(<td class="number">\d+\.\d</td>){{2}}', text)
        assert '<td class="number">labelled</td>' in text
        # The page of the class has the new threshold, too.
        new = storage.read_json(unit.decisions)["sparc"]["classes"]["person"]
        shown = client.get(REVIEW.replace("review", "class")).text
        assert f"probability {100 * new['threshold_probability']:.1f} %</dd>" in shown
    (session,) = Path(unit.answers).iterdir()
    with session.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    assert [row["time"] for row in rows] == sorted({row["time"] for row in rows})
    assert {row["class"] for row in rows} == {"person"}
    assert {row["answer"] for row in rows} == {"yes", "no", "unsure"}
    other = unit_of(tmp_path / "other")
    assert main(["decide", str(tmp_path / "other"), "--answers", unit.answers]) == 0
    assert Path(other.decisions).read_bytes() == Path(unit.decisions).read_bytes() != before
    for shard in (0, 17):
        ours, theirs = Path(unit.labels(shard)), Path(other.labels(shard))
        assert ours.read_bytes() == theirs.read_bytes()
    capsys.readouterr()


def test_decisions_of_the_command_show_on_the_page(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with viewing(run) as client:
        assert "What the answers changed" not in client.get(REVIEW).text
        answer_all(client)
        assert main(["decide", str(run), "--answers", unit_of(run).answers]) == 0
        shown = client.get(REVIEW).text
        assert "What the answers changed" in shown
    with viewing(run) as client:  # it is read from the run, so another start shows the same
        again = client.get(REVIEW).text
        assert again.partition("<section")[2] == shown.partition("<section")[2]
        assert main(["decide", str(run)]) == 0
        assert "What the answers changed" not in client.get(REVIEW).text
    capsys.readouterr()


@pytest.mark.parametrize(("primary", "before_rival"), [("sparc", 0), ("duo", 0), ("duo", 1)])
def test_without_answers_both_sides_of_an_outcome_are_the_same(
    tmp_path: Path, primary: str, before_rival: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparc_dist.core.decisions.MIN_COLUMNS", 1000 if before_rival else 10)
    write_unit(tmp_path / "run", primary)
    refit(open_unit(str(tmp_path / "run")), Rule())
    layout = unit_of(tmp_path / "run")
    # What changes nothing, but says that there were answers.
    stored = storage.read_json(layout.decisions)
    storage.write_json(layout.decisions, {**stored, "rule": {"answers": 0}})
    view = Site(str(tmp_path / "run")).view("voc", "tiny")
    assert view.decision.before_rival == bool(before_rival)
    for index in range(0, 20, 5):
        outcome = Outcome.of(view, index, Review.of(view, index, 0, Session(layout.answers)))
        assert outcome is not None
        assert outcome.standing[0] == outcome.standing[1]
        assert outcome.expected[0] == outcome.expected[1]


def test_answers_of_another_tool_are_left_alone_and_count(run: Path) -> None:
    folder = Path(unit_of(run).answers)
    folder.mkdir()
    tool = folder / "tool.csv"
    with viewing(run) as client:
        asked = question(client)
        content = f"Image_ID;class;answer;who\n003;dog;Yes;Ann\n{asked};person;Y;Ann\n"
        tool.write_text(content)
        assert "1 yes, 0 no" in client.get(REVIEW).text
        assert "Undo" not in client.get(REVIEW).text  # not an answer of this session
        client.post(REVIEW, do="undo")
        assert "1 yes, 0 no" in client.get(REVIEW).text
        client.post(REVIEW, image=asked, do="no")  # a later one counts
        client.post(REVIEW, image=asked, do="unsure")  # changed one's mind
        assert "0 yes, 0 no, 1 unsure" in client.get(REVIEW).text
        client.post(REVIEW, do="undo")
        client.post(REVIEW, do="undo")  # nothing left to take back
        assert "0 yes, 0 no, 0 unsure" in client.get(REVIEW).text
        assert question(client) == asked
        assert tool.read_text() == content
        # A word that is none stops the refit with its line, and changes nothing.
        tool.write_text("image_id,class,answer\n003,dog,perhaps\n")
        refused = client.post(REVIEW, do="use")
        assert (refused.status, "tool.csv, line 2: the answer is" in refused.text) == (409, True)
        assert open_unit(str(run)).classes


def test_a_new_server_goes_on_where_the_last_one_ended(run: Path) -> None:
    with viewing(run) as client:
        first = question(client)
        client.post(REVIEW, image=first, do="unsure")
        second = question(client)
    with viewing(run) as client:
        again = question(client)
        assert first != second == again
        assert "1 of 40" in client.get(REVIEW).text


def test_forms_of_other_sites_are_refused(run: Path) -> None:
    with viewing(run) as client:
        asked = question(client)
        form = {"image": asked, "do": "yes"}
        own = client.own_headers
        right = own | {"Origin": client.origin}
        assert client.post(REVIEW, own, **form).status == 403
        for origin in ("null", "https://evil.example", client.origin + ".evil.example"):
            assert client.post(REVIEW, own | {"Origin": origin}, **form).status == 403
        assert client.post(REVIEW, {"Origin": client.origin}, **form).status == 403
        assert client.post(REVIEW, key="", **form).status == 403
        assert client.post(REVIEW, image=asked, do="perhaps").status == 400
        assert client.post(REVIEW, image="../../etc/passwd", do="yes").status == 400
        assert client.post("/class/voc/tiny/0", **form).status == 404
        assert client.ask("POST", REVIEW, right | {"Content-Length": "x"}, "a").status == 411
        assert client.ask("POST", REVIEW, right, "a=" + "b" * 2**17).status == 413
        assert client.ask("POST", REVIEW, right, "%ff=%fe").status == 400
        assert not Path(unit_of(run).answers).exists()
        assert client.post(REVIEW, **form).status == 303
        assert Path(unit_of(run).answers).exists()
