"""The pages of a report in a real browser, opened from the disk; skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.browser import CHROMIUM, chromium, violations, wider_than_screen
from tests.support.exhibits import CLASSES, HOSTILE, against, hostile, ordinary

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")

UNIT, CLASS = "voc-B32/index.html", "voc-B32/class-c0.html"
PAGES = ("index.html", UNIT, CLASS, f"{CLASS}#image=i0007", "compare.html#a=2&b=5")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ordinary(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium(sync_api) as started:
        yield started


@pytest.fixture
def open_page(browser: Any, report: Path) -> Iterator[Open]:
    """Opens a page; afterwards, no page may have logged an error or asked for anything else."""
    wrong: list[str] = []
    contexts = []

    def open_one(name: str, folder: Path | str = report, **options: Any) -> Any:
        base = folder.as_uri() if isinstance(folder, Path) else folder
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: _check_failed(request, wrong))
        page.on("request", lambda request: _check(request.url, base, wrong))
        page.goto(f"{base}/{name}")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not wrong


def _check_failed(request: Any, wrong: list[str]) -> None:
    # The browser itself gives up on pictures of a list that the page has replaced or left; a
    # file that is missing has another error.
    if request.failure != "net::ERR_ABORTED":
        wrong.append(f"failed: {request.url}: {request.failure}")


def _check(url: str, base: str, wrong: list[str]) -> None:
    if not url.startswith((base, "data:,")):
        wrong.append(f"outside: {url}")


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_accessible_and_fit_the_screen(open_page: Open, name: str) -> None:
    page = open_page(name)
    if "#image" in name:
        page.get_by_role("heading", name="What decided").wait_for()
    for scheme in ("light", "dark"):
        assert violations(page, scheme) == [], scheme
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.locator("h1").is_visible()
        assert not wider_than_screen(page)


def test_dark_and_light_differ(open_page: Open) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light, dark = (open_page("index.html", color_scheme=name) for name in ("light", "dark"))
    assert light.evaluate(back) == "rgb(255, 255, 255)"
    assert dark.evaluate(back) == "rgb(20, 24, 29)"


def test_tables_sort_by_click_and_by_keyboard(open_page: Open) -> None:
    page = open_page(UNIT)
    classes = page.get_by_role("table", name="Classes: average precision")
    names = classes.locator("tbody th")
    assert names.all_inner_texts() == CLASSES
    head = classes.get_by_role("columnheader", name="AP, SPARC (%)")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(text) for text in classes.locator("tbody td:nth-child(4)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    classes.get_by_role("button", name="class").focus()
    page.keyboard.press("Enter")
    assert names.all_inner_texts() == sorted(CLASSES)
    page.keyboard.press("Space")
    assert names.all_inner_texts() == sorted(CLASSES, reverse=True)
    assert head.get_attribute("aria-sort") is None


def test_long_rows_of_images_have_pages(open_page: Open) -> None:
    page = open_page(CLASS)
    row = page.locator("#row-likeliest")
    assert row.locator("li:visible").count() == 24
    row.get_by_role("button", name="Next").click()
    row.get_by_role("button", name="Next").click()
    assert row.get_by_role("status").inner_text() == "49 to 60 of 60"
    assert row.locator("li:visible").count() == 12
    assert row.get_by_role("button", name="Next").is_disabled()


def test_links_lead_to_an_image_and_back(open_page: Open) -> None:
    page = open_page("index.html")
    page.get_by_role("link", name="voc × B32").click()
    page.get_by_role("link", name="aeroplane").click()
    assert page.locator("h1").inner_text() == "aeroplane"
    link = page.locator("#row-above a").first
    name = link.inner_text().strip()
    link.focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("dialog")
    panel.wait_for()
    assert page.locator("#panel-title").inner_text() == f"Image {name}"
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    assert "#" not in page.url
    assert link.evaluate("link => link === document.activeElement")
    link.click()
    panel.wait_for()
    page.go_back()
    panel.wait_for(state="hidden")
    page.get_by_role("link", name="Next class: bicycle").click()
    assert page.locator("h1").inner_text() == "bicycle"
    page.get_by_role("link", name="voc × B32").click()
    page.get_by_role("link", name="Overview").click()
    assert page.url.endswith("/index.html")


def test_the_panel_adds_up_a_score(open_page: Open) -> None:
    page = open_page(f"{CLASS}#image=i0007")
    parts = page.get_by_role("table", name="How the score of aeroplane comes about")
    *added, total = [float(text) for text in parts.locator("td:last-child").all_inner_texts()]
    assert len(added) == 4
    assert sum(added) == pytest.approx(total, abs=0.003)
    rows = page.get_by_role("table", name="All classes of the image").locator("tbody tr")
    assert rows.count() == len(CLASSES)
    scores = [float(text) for text in rows.locator("td:nth-child(5)").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)


def test_an_unknown_image_is_told(open_page: Open) -> None:
    page = open_page(f"{CLASS}#image=nowhere")
    page.get_by_role("heading", name="This image is not part of the report.").wait_for()


def test_an_image_without_picture_says_why(open_page: Open) -> None:
    page = open_page(f"{CLASS}#image=i0000")
    told = page.get_by_role("dialog").locator(".warning").inner_text()
    assert told == "No picture: the file is gone"


def test_two_backbones_are_compared(open_page: Open) -> None:
    page = open_page("compare.html")
    page.get_by_label("A", exact=True).select_option("voc × B32: SPARC")
    page.get_by_label("B", exact=True).select_option("voc × RN50: SPARC")
    assert page.url.endswith("#a=2&b=6")
    assert page.get_by_role("table").locator("tbody tr").count() == len(CLASSES)
    assert page.get_by_role("table").locator("tbody svg").count() == len(CLASSES)
    told = page.locator("#compared > p").inner_text()
    assert "of the 60 images that both show;" in told
    page.locator("#compared .images a").first.click()
    page.get_by_role("dialog").get_by_role("heading", level=2).wait_for()


def test_two_methods_are_compared(open_page: Open) -> None:
    page = open_page("compare.html#a=0&b=1")
    differences = page.get_by_role("table").locator("tbody td:nth-child(4)").all_inner_texts()
    sizes = [abs(float(text.replace("−", "-"))) for text in differences]
    assert sizes == sorted(sizes, reverse=True)
    page.get_by_role("button", name="B (%)").click()
    values = page.get_by_role("table").locator("tbody td:nth-child(3)").all_inner_texts()
    assert [float(text) for text in values] == sorted(map(float, values), reverse=True)
    # ZSCLIP decides nothing; SPARC and duo differ on the second image.
    assert "two methods that decide" in page.locator("#compared > p").inner_text()
    page = open_page("compare.html#a=2&b=3")
    told = page.locator("#compared > p").inner_text()
    assert told.startswith("A and B decide differently on 1 of the 60 images that both show;")
    (different,) = page.locator("#compared .images li").all_inner_texts()
    assert "Only A: nothing" in different
    assert "(A below 5 %, B 75.0 %)" in different


def test_two_runs_are_compared(open_page: Open, tmp_path: Path) -> None:
    page = open_page("compare.html", against(tmp_path))
    page.get_by_label("A", exact=True).select_option("voc × B32: SPARC")
    page.get_by_label("B", exact=True).select_option("before: voc × B32: SPARC")
    told = page.locator("#compared > p").all_inner_texts()
    assert told[0] == "Classes that are not compared: only A has aeroplane; only B has zebra."
    assert told[1].startswith("A and B decide differently on 2 of the 59 images that both show;")
    # The larger difference is first; only our own run has a page of the image.
    first, second = page.locator("#compared .images li").all()
    assert "B 70.0 %)" in first.inner_text()
    assert "B 60.0 %)" in second.inner_text()
    assert first.locator("img").count() == 1
    assert first.get_by_role("link").all_inner_texts() == ["Only A"]
    assert page.locator("#compared .notes li").all_inner_texts() == ["before: voc × L14 is …."]
    assert violations(page) == []


def test_print_shows_every_page_of_a_list(open_page: Open) -> None:
    page = open_page(CLASS, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("#row-likeliest li:visible").count() == 60
    assert not page.locator("nav").is_visible()
    assert not page.locator(".pager").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_web_server_is_as_good_as_a_disk(open_page: Open, report: Path) -> None:
    handler = partial(QuietHandler, directory=str(report))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        page = open_page("index.html", f"http://127.0.0.1:{server.server_address[1]}")
        page.get_by_role("link", name="voc × B32").click()
        page.get_by_role("link", name="aeroplane").click()
        page.locator("#row-above a").first.click()
        page.get_by_role("heading", name="What decided").wait_for()
        page.get_by_role("button", name="Close").click()
        page.get_by_role("link", name="Compare").click()
        page.get_by_role("table").wait_for()
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: every request is expected."""


def test_without_javascript_pages_show_what_they_have(open_page: Open) -> None:
    page = open_page(CLASS, java_script_enabled=False)
    assert page.locator("#row-likeliest li:visible").count() == 60
    assert page.get_by_role("img", name="Distribution of scores").is_visible()
    assert "JavaScript, which is off" in page.locator("main").inner_text()


def test_hostile_names_are_only_text(open_page: Open, attacked: Path) -> None:
    pages = ["index.html", UNIT, "compare.html#a=0&b=2"]
    pages += [f"voc-B32/class-c{place}.html#image=i{place:04d}" for place in range(len(HOSTILE))]
    page = open_page(pages[0], attacked, viewport={"width": 390, "height": 800})
    for name in pages:
        page.goto(f"{attacked.as_uri()}/{name}")
        page.wait_for_load_state("load")
        if "#image" in name:
            page.get_by_role("heading", name="What decided").wait_for()
        assert page.evaluate("window.attacked") is None
        assert not wider_than_screen(page)
        assert page.locator("main script, main [onerror], main [src='x']").count() == 0


def test_hostile_names_are_shown_as_they_are(open_page: Open, attacked: Path) -> None:
    page = open_page(UNIT, attacked)
    names = page.get_by_role("table", name="Classes:").locator("tbody th").all_text_contents()
    assert [name.strip() for name in names] == HOSTILE
    page = open_page("voc-B32/class-c6.html#image=i0006", attacked)
    assert page.locator("#panel-title").inner_text() == "Image __proto__"
