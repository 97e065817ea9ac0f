"""Reviews over real HTTP: answers, what they change, and who may give them."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener
from uuid import uuid4

import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.report.view.review import Outcome, Review
from sparc_dist.report.view.site import Site
from sparc_dist.runs import RunLayout
from sparc_dist.runs.answers import Session
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.run import open_unit
from tests.support.cases import golden
from tests.support.golden_unit import CLASSES, IDS, write_unit
from tests.support.s3 import FaultProxy
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


def test_answers_are_not_used_while_another_process_writes(run: Path) -> None:
    lease = run / "lease.json"
    with viewing(run) as client:
        answer_all(client)
        lease.write_text('{"host": "far"}')
        refused = client.post(REVIEW, do="use")
        assert refused.status == 409
        assert "is being written by host far" in refused.text
        lease.unlink()
        assert client.post(REVIEW, do="use").status == 303


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
        assert client.ask("POST", REVIEW, right | {"Content-Length": "x"}, "a").status == 400
        assert client.ask("POST", REVIEW, right, "a=" + "b" * 2**17).status == 413
        assert client.ask("POST", REVIEW, right, "%ff=%fe").status == 400
        assert not Path(unit_of(run).answers).exists()
        assert client.post(REVIEW, **form).status == 303
        assert Path(unit_of(run).answers).exists()


def store(run: Path, place: str) -> None:
    """Copies a run to S3."""
    for path in run.rglob("*"):
        if path.is_file():
            storage.write_bytes(f"{place}/{path.relative_to(run)}", path.read_bytes())


def given(place: str) -> dict[tuple[str, str], str]:
    """The answers in a run that count, as a new session reads them."""
    folder = RunLayout(place).dataset("voc").unit("tiny").answers
    return {key: row.answer for key, row in Session(folder).read().items() if row.answer}


@pytest.mark.parametrize("remote", [False, pytest.param(True, marks=pytest.mark.s3)])
def test_two_viewers_at_a_time_lose_no_answer(
    run: Path, remote: bool, request: pytest.FixtureRequest
) -> None:
    place = str(run)
    if remote:
        request.getfixturevalue("on_s3")
        place = f"s3://runs/{uuid4().hex}"
        store(run, place)
    classes = range(2)  # reviews of two classes ask 60 questions
    with viewing(place) as one, viewing(place) as two:
        pages = [f"/review/voc/tiny/{index}" for index in classes]
        view = one.server.site.view("voc", "tiny")
        session = one.server.site.session(view)
        asked = [
            (page, tile.image_id)
            for index, page in zip(classes, pages, strict=True)
            for tile in Review.of(view, index, 0, session).asked[:30]
        ]

        def answer(client: Client, numbers: range) -> list[int]:
            return [
                client.post(asked[i][0], image=asked[i][1], do="yes" if i % 2 else "no").status
                for i in numbers
            ]

        with ThreadPoolExecutor(2) as people:
            done = people.map(answer, (one, two), (range(0, 60, 2), range(1, 60, 2)))
            assert {status for statuses in done for status in statuses} == {303}
        found = given(place)
        assert len(found) == 60
        assert [*found.values()].count("yes") == 30
        # Each takes back its own, and nobody else's.
        last = asked[30 + 28][1]
        one.post(pages[1], do="undo")
        assert {*found} - {*given(place)} == {(last, CLASSES[1])}
        two.post(pages[1], image=last, do="yes")
        assert "16 yes, 14 no" in one.get(pages[1]).text
    with viewing(place) as later:  # nothing of its own to take back
        later.post(pages[1], do="undo")
        assert len(given(place)) == 60
        assert later.post(pages[1], do="use").status == 303
    rule = storage.read_json(RunLayout(place).dataset("voc").unit("tiny").decisions)["rule"]
    assert rule == {"answers": 60}


def test_where_listing_is_forbidden_a_session_knows_its_own_answers(
    run: Path, on_s3: FaultProxy
) -> None:
    place = f"s3://runs/{uuid4().hex}"
    store(run, place)
    with viewing(place) as client:
        client.post(REVIEW, image=question(client), do="yes")
    on_s3.behave(policy=lambda asked: None if asked.key else (403, "AccessDenied"))
    with viewing(place) as client:
        first = question(client)
        client.post(REVIEW, image=first, do="no")
        text = client.get(REVIEW).text
        assert "0 yes, 1 no" in text
        assert "those of this session alone, because the store forbids listing" in text
        assert question(client) != first
        assert client.post(REVIEW, do="use").status == 303
        assert "What the answers changed" in client.get(REVIEW).text
    on_s3.behave()
    assert len(given(place)) == 1  # the same question, and the later answer counts


def test_a_viewer_that_is_killed_loses_no_answer(run: Path) -> None:
    command = [sys.executable, "-m", "sparc_dist", "view", str(run), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as viewer:
        try:
            assert viewer.stdout is not None
            address = urlsplit(viewer.stdout.readline().strip())
            with viewing(run) as other:
                asked = question(other)
            opener = build_opener(HTTPCookieProcessor())
            opener.open(address.geturl())
            origin = f"{address.scheme}://{address.netloc}"
            text = opener.open(f"{origin}{REVIEW}").read().decode()
            key = re.search(r'name="key" value="(.*?)"', text)
            assert key is not None
            form = urlencode({"key": key[1], "image": asked, "do": "yes"}).encode()
            opener.open(Request(f"{origin}{REVIEW}", form, {"Origin": origin}))
        finally:
            viewer.kill()
    assert given(str(run)) == {(asked, "person"): "yes"}
