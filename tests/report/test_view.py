"""The viewer over real HTTP: who may see what, and what the pages say."""

from __future__ import annotations

import io
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sparc_dist import storage
from sparc_dist.runs import RunLayout
from sparc_dist.runs.run import open_unit
from tests.support.golden_unit import BROKEN, CLASSES, IDS, write_unit
from tests.support.pictures import encoded, picture
from tests.support.s3 import FaultProxy, S3Server
from tests.support.viewing import (
    REVIEW,
    Client,
    question,
    replace_images,
    unit_of,
    viewing,
    write_error,
    write_viewed,
)

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
TILE = '<span class="name"><bdi>(.*?)</bdi></span>'
BAD = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test changes, with a report and with odd images."""
    folder = tmp_path_factory.mktemp("viewed")
    odd = {0: f"{folder}/drawing.svg", 1: f"{folder}/scan.tiff", 2: f"{folder}/page.html"}
    write_viewed(folder / "run", odd)
    (folder / "drawing.svg").write_bytes(SVG)
    (folder / "page.html").write_text("<h1>secret</h1>")
    (folder / "scan.tiff").write_bytes(encoded(picture(), "TIFF"))
    (folder / "secret.txt").write_text("secret")
    report = folder / "run" / "report"
    (report / "figures").mkdir(parents=True)
    (report / "index.html").write_text("<!doctype html><p>the report</p>")
    (report / "figures" / "a.png").write_bytes(encoded(picture(), "PNG"))
    (report / "notes.exe").write_text("secret")
    (report / "link.txt").symlink_to(folder / "secret.txt")
    (report / "out").symlink_to(folder)
    return folder / "run"


@pytest.fixture(scope="module")
def client(shared: Path) -> Iterator[Client]:
    with viewing(shared) as client:
        yield client


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run to review; its images need not exist."""
    write_unit(tmp_path / "run")
    return tmp_path / "run"


def test_the_token_opens_the_door_and_nothing_else_does(client: Client) -> None:
    server = client.server
    assert client.get("/", {}).status == 403
    assert client.get("/?token=wrong", {}).status == 403
    assert client.get("/?token=%C3%A4", {}).status == 403
    for wrong in ("", f"{server.cookie}=wrong", f"other={server.token}", ";;=;\xff"):
        assert client.get("/", {"Cookie": wrong}).status == 403
    entered = client.get(server.url.partition(client.origin)[2], {})
    assert entered.status == 200
    cookie = entered.headers["Set-Cookie"]
    assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
    assert client.get("/", {"Cookie": f"a=b; {cookie.partition(';')[0]}"}).status == 200


def test_another_name_of_this_machine_is_refused(client: Client) -> None:
    port = client.server.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "", f"127.0.0.1:{port + 1}"):
        assert client.get("/", client.own_headers | {"Host": host}).status == 403, host
    assert client.get("/", client.own_headers | {"Host": f"localhost:{port}"}).status == 200


@pytest.mark.parametrize("path", ["/", "/thumb/voc/tiny/0/5", "/report/index.html", "/nowhere"])
def test_every_answer_has_the_headers_of_a_private_page(client: Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src '")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "script-src" not in headers["Content-Security-Policy"]


def test_the_report_is_served_and_nothing_beside_it(client: Client) -> None:
    assert "the report" in client.get("/report/index.html").text
    assert client.get("/report/figures/a.png").headers["Content-Type"] == "image/png"
    assert client.get("/report").headers["Location"] == "/report/index.html"
    for path in (
        "../run.json",
        "%2e%2e/run.json",
        "..%2frun.json",
        "figures/%2e%2e/%2e%2e/run.json",
        "%252e%252e/run.json",
        "..%5crun.json",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "file:%2f%2f%2fetc%2fpasswd",
        "file:///etc/passwd",
        "link.txt",
        "out/secret.txt",
        "notes.exe",
        "index.html%00.png",
        "figures",
        "%ff%fe",
        "a" * 5000 + ".html",
    ):
        answer = client.get(f"/report/{path}")
        assert answer.status in (400, 404), path
        assert b"secret" not in answer.body
        assert b"root:" not in answer.body


def test_only_images_of_the_run_are_served_and_only_as_pictures(client: Client) -> None:
    photo = client.get("/original/voc/tiny/0/5")
    assert photo.headers["Content-Type"] == "image/jpeg"
    assert photo.body == encoded(picture(5), "JPEG")
    small = client.get("/thumb/voc/tiny/0/5")
    assert Image.open(io.BytesIO(small.body)).size == (48, 40)
    scan = client.get("/original/voc/tiny/0/1")
    assert scan.headers["Content-Type"] == "image/jpeg"
    assert Image.open(io.BytesIO(scan.body)).format == "JPEG"
    for row in (0, 2):  # a drawing with a script, and a page
        for kind in ("original", "thumb"):
            answer = client.get(f"/{kind}/voc/tiny/0/{row}")
            assert answer.status == 404
            assert "not an image in a known format" in answer.text
            assert b"alert(1)" not in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "/original/voc/tiny/0/47",
        "/original/voc/tiny/99/0",
        "/original/voc/tiny/0/-1",
        "/original/voc/tiny/0/1e1",
        "/original/voc/tiny/0/%D9%A1",
        "/original/voc/tiny/0/99999999999999999999",
        "/original/voc/other/0/0",
        "/original/..%2Fvoc/tiny/0/0",
        "/class/voc/tiny/20",
        "/class/voc/tiny/0?page=0",
        "/class/voc/tiny/0?page=15",
        "/class/voc/tiny/0?page=x",
        "/review/voc/tiny/0?round=25",
        "/static/..%2fserver.py",
        "/static/server.py",
        "/nowhere",
        "/%",
        "/?a&b&c&d&e&f&g&h&i&j",
    ],
)
def test_addresses_that_name_nothing_are_refused(client: Client, path: str) -> None:
    assert client.get(path).status in (400, 404)


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"DELETE / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x00\xff\x16\x03\x01\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    ],
)
def test_malformed_requests_are_refused_and_the_server_lives(
    client: Client, request_: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", client.server.server_port), 10) as connection:
        connection.sendall(request_)
        connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 200 " not in received.partition(b"\r\n")[0]
    assert client.get("/").status == 200


def test_all_images_of_a_class_are_paged_by_score(client: Client, shared: Path) -> None:
    unit = open_unit(str(shared))
    index = CLASSES.index("dog")
    scores = {
        image_id: score
        for part in unit.labels()
        for image_id, score in zip(part.ids, part.scores[:, index].tolist(), strict=True)
    }
    found: list[str] = []
    for number in range(1, 15):
        text = client.get(f"/class/voc/tiny/{index}?page={number}").text
        found += re.findall(TILE, text)
    assert sorted(found) == IDS  # every one, once
    assert [scores[name] for name in found] == sorted(scores.values(), reverse=True)
    lowest = client.get(f"/class/voc/tiny/{index}?sort=lowest").text
    assert re.findall(TILE, lowest)[0] == found[-1]
    assert "Page 1 of 14" in lowest


def test_a_search_finds_parts_of_ids_and_is_bounded(client: Client) -> None:
    def ids(text: str) -> list[str]:
        return re.findall(TILE, client.get(f"/search?id={text}").text)

    assert ids("799") == ["799"]
    assert ids("BROK") == [BROKEN]
    assert ids("79") == [name for name in IDS if "79" in name]
    assert len(ids("0")) == 100
    assert "there may be more" in client.get("/search?id=0").text
    assert ids("") == ids("%25") == ids("xyz") == []


def test_the_page_of_an_image_has_every_class_or_the_reason(client: Client) -> None:
    text = client.get("/image/voc/tiny/0/3").text
    assert [name for name in CLASSES if f">{name}</bdi></a>" not in text] == []
    assert "No class was scored" in client.get("/image/voc/tiny/17/1").text


REPORT = b"<!doctype html><header><nav></nav></header><main>&lt;/header&gt;</main>"
PAGES = ("index.html", "voc-tiny/index.html", "voc-tiny/class-dog.html", "voc-tiny/class-no.html")


def write_pages(run: Path, names: Sequence[str] = PAGES) -> None:
    """Writes pages in the place of a report's."""
    for name in names:
        path = run / "report" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(REPORT)
    marker = {"files": dict.fromkeys(names, "")}
    storage.write_json(str(run / "report" / "report.json"), marker)


def links(client: Client, path: str) -> dict[str, str]:
    """The links of the bar of a page, by their text."""
    bar = client.get(path).text.partition('<nav aria-label="View"')[2].partition("</nav>")[0]
    return {text: place for place, text in re.findall(r'<a href="(.*?)".*?>(.*?)</a>', bar)}


def test_pages_of_the_report_lead_to_the_viewer_and_back(run: Path) -> None:
    index, other = CLASSES.index("dog"), CLASSES.index("cat")
    write_pages(run)
    of_class = {
        "Report of this class": "/report/voc-tiny/class-dog.html",
        "All images of this class": f"/class/voc/tiny/{index}",
        "Review this class": f"/review/voc/tiny/{index}",
    }
    with viewing(run) as client:
        for place in of_class.values():
            assert of_class.items() <= links(client, place).items(), place
        assert links(client, of_class["Review this class"])["voc × tiny"] == f"/report/{PAGES[1]}"
        for name in (PAGES[0], PAGES[1], PAGES[3]):
            assert links(client, f"/report/{name}") == {"Run": "/", "Search": "/search"}
        text = client.get(of_class["Report of this class"]).text
        assert text.count("</header>") == 1
        assert 'data-images="/image/voc/tiny"' in text
        assert "Report of this class" not in links(client, f"/class/voc/tiny/{other}")
        # Written meanwhile, and gone again.
        write_pages(run, [*PAGES, "voc-tiny/class-cat.html"])
        assert "Report of this class" in links(client, f"/class/voc/tiny/{other}")
        shutil.rmtree(run / "report")
        assert "Report of this class" not in links(client, of_class["Review this class"])


def test_the_report_itself_is_left_without_links_to_the_viewer(run: Path) -> None:
    write_pages(run)
    with viewing(run) as client:
        client.get(f"/report/{PAGES[2]}")
    assert (run / "report" / PAGES[2]).read_bytes() == REPORT
    Path(unit_of(run).metrics).unlink()
    with viewing(run) as client:  # the report of a unit that is not finished any more
        assert "Review this class" not in links(client, f"/report/{PAGES[2]}")


def test_report_and_viewer_have_one_style(client: Client) -> None:
    style = files("sparc_dist.report").joinpath("templates", "style.css").read_bytes()
    assert client.get("/static/style.css").body == style
    assert 'href="/static/style.css"' in client.get("/").text


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (0.05, "(5.0 %), so the unit counts as done"),
        (0.001, "(0.1 %), so the unit counts as failed"),
        (None, "when the run ends"),
    ],
)
def test_unreadable_images_are_listed_with_what_the_run_did(
    run: Path, limit: float | None, told: str
) -> None:
    write_error(run, f"odd {BAD}", limit)
    with viewing(run) as client:
        text = client.get("/errors/voc/tiny").text
        assert told in text
        assert "1 of 801 images (0.1 %) could not be read" in text
        assert "odd &lt;script&gt;" in text
        assert BAD not in text
        place = f"/image/voc/tiny?id={BROKEN}"
        assert place in text
        assert client.get(place).headers["Location"] == "/image/voc/tiny/17/1"
        assert 'href="/errors/voc/tiny"' in client.get("/image/voc/tiny/17/1").text
        assert 'href="/errors/voc/tiny"' in client.get("/").text
        assert client.get("/errors/voc/tiny?page=2").status == 404


def test_an_image_is_found_by_its_whole_id(client: Client) -> None:
    assert client.get("/image/voc/tiny?id=050").headers["Location"] == "/image/voc/tiny/1/3"
    for text in ("", "5", "0500", "%00", "..%2F050"):
        assert client.get(f"/image/voc/tiny?id={text}").status == 404
    assert "Every image could be read" in client.get("/errors/voc/tiny").text
    assert "Unreadable images" not in links(client, "/image/voc/tiny/0/0")


def test_text_of_others_is_escaped(run: Path) -> None:
    table = pq.read_table(run / "voc" / "images.parquet")
    ids = [BAD, *table["image_id"].to_pylist()[1:]]
    replace_images(run, table.set_column(0, "image_id", pa.array(ids)))
    final = storage.read_table(unit_of(run).final(0))
    storage.write_table(unit_of(run).final(0), final.set_column(0, "image_id", pa.array(ids[:47])))
    with viewing(run) as client:
        view = client.server.site.view("voc", "tiny")
        view.unit.classes[0] = BAD  # type: ignore[index]
        for path in ("/", "/class/voc/tiny/0", "/review/voc/tiny/0", "/image/voc/tiny/0/0"):
            assert BAD not in client.get(path).text, path
        assert "&lt;script&gt;" in client.get("/class/voc/tiny/0").text
        assert "&lt;script&gt;" in client.get("/image/voc/tiny/0/0").text
        found = client.get("/search?id=%3Cscript").text
        assert BAD not in found
        assert "&lt;script&gt;alert(" in found
        assert BAD not in client.get(f"/{BAD}").text


def test_a_run_on_s3_is_viewed_and_reviewed(run: Path, s3: S3Server, on_s3: FaultProxy) -> None:
    place = "s3://runs/viewed"
    for path in run.rglob("*"):
        if path.is_file():
            storage.write_bytes(f"{place}/{path.relative_to(run)}", path.read_bytes())
    storage.write_bytes(f"{place}/report/index.html", b"<p>the report</p>")
    with viewing(place) as client:
        assert "the report" in client.get("/report/index.html").text
        assert client.get("/report/missing.html").status == 404
        assert "Page 1 of 14" in client.get("/class/voc/tiny/0").text
        asked = question(client)
        assert client.post(REVIEW, image=asked, do="yes").status == 303
        assert client.post(REVIEW, do="use").status == 303
        assert "What the answers changed" in client.get(REVIEW).text
    (file,) = storage.files_below(RunLayout(place).dataset("voc").unit("tiny").answers)
    assert f"{asked},/photos" in storage.read_bytes(file.url).decode()
