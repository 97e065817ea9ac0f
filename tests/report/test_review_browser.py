"""The viewer in a real browser: paging, search, a review by keyboard, accessibility.

Skipped without Playwright and a Chromium; SPARC_CHROMIUM names one that is elsewhere.
"""

from __future__ import annotations

import csv
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparc_dist import storage
from sparc_dist.runs import RunLayout
from tests.support.browser import CHROMIUM, chromium, violations, wider_than_screen
from tests.support.cases import golden
from tests.support.golden_unit import CLASSES, IDS
from tests.support.viewing import (
    Client,
    viewing,
    write_error,
    write_viewed,
    write_viewed_report,
)

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium")
PERSON = CLASSES.index("person")
PAGES = (
    "/",
    "/class/voc/tiny/3?page=2",
    "/review/voc/tiny/3",
    "/search?id=79",
    "/image/voc/tiny/0/3",
    "/image/voc/tiny/17/1",
    "/errors/voc/tiny",
    "/report/voc-tiny/index.html",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium(playwright) as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("viewed") / "run"
    write_viewed(root)
    write_error(root, "the file is empty", 0.05)
    write_viewed_report(root)
    return root


@pytest.fixture(scope="module")
def client(run: Path) -> Iterator[Client]:
    with viewing(run) as client:
        yield client


@pytest.fixture
def page(browser: Any, client: Client) -> Iterator[Any]:
    """A page behind the door; at its end, nothing was logged and no other host was asked."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    logged: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    page.on("pageerror", lambda error: logged.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(client.server.url)
    page.wait_for_url(f"{client.origin}/")
    yield page
    page.close()
    assert logged == []
    assert [url for url in asked if not url.startswith(f"{client.origin}/")] == []


def shown_images(page: Any) -> bool:
    """Whether all images that are not far below have pixels."""
    script = "() => [...document.images].every((e) => e.loading === 'lazy' || e.naturalWidth > 0)"
    return bool(page.evaluate(script))


def test_paging_search_and_the_report(page: Any) -> None:
    page.get_by_role("link", name="dog", exact=True).click()
    assert page.get_by_role("heading", level=1).inner_text() == "dog"
    assert page.locator(".images li").count() == 60
    page.wait_for_function("() => document.images[0].naturalWidth > 0")
    seen = page.locator(".images .name").all_inner_texts()
    page.get_by_role("link", name="Next").first.click()
    page.wait_for_url(re.compile("page=2"))
    press(page, "ArrowRight")
    page.wait_for_url(re.compile("page=3"))
    assert {*seen}.isdisjoint(page.locator(".images .name").all_inner_texts())
    page.get_by_role("link", name="Last").first.click()
    assert page.locator(".images li").count() == 800 - 13 * 60
    press(page, "ArrowLeft")
    page.wait_for_url(re.compile("page=13"))
    page.get_by_label("Image id").fill("123")
    page.keyboard.press("Enter")
    assert page.get_by_role("status").inner_text() == "1 image."
    page.get_by_role("link", name="123").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Image 123"
    page.wait_for_function("() => document.images[0].naturalWidth === 48")
    page.get_by_role("link", name="Report", exact=True).click()
    assert "mAP" in page.get_by_role("heading", level=1).inner_text()


def test_the_pages_of_a_class_lead_to_each_other(page: Any) -> None:
    """The report's page, all images, and the review; and from an image to its original."""
    title = page.get_by_role("heading", level=1)
    page.get_by_role("link", name="Report", exact=True).click()
    page.get_by_role("link", name="voc × tiny").click()
    assert page.get_by_role("link", name="Review this class").count() == 0
    page.get_by_role("table", name="Classes").get_by_role("link", name="dog", exact=True).click()
    page.get_by_role("heading", name="Just below the threshold").wait_for()
    links = page.get_by_role("navigation", name="View")
    assert links.locator("[aria-current]").inner_text() == "Report of this class"
    links.get_by_role("link", name="All images of this class").click()
    page.wait_for_url(re.compile("/class/voc/tiny/"))
    assert title.inner_text() == "dog"
    links.get_by_role("link", name="Review this class").click()
    assert title.inner_text() == "Does this image contain: dog?"
    links.get_by_role("link", name="Report of this class").click()
    page.wait_for_url(re.compile("/report/voc-tiny/class-dog.html"))
    shown = page.locator("#row-likeliest a").first
    image_id = shown.inner_text().strip()
    shown.click()
    page.get_by_role("link", name="Original image").click()
    assert title.inner_text() == f"Image {image_id}"
    page.wait_for_function("() => document.images[0].naturalWidth === 48")


def press(page: Any, key: str) -> None:
    """Presses a key once the script listens."""
    page.wait_for_load_state("load")
    page.keyboard.press(key)


def answer(page: Any) -> str:
    """Presses the key of the right answer; returns the id of the image."""
    image_id = page.locator("input[name=image]").get_attribute("value")
    before = page.get_by_role("status").inner_text()
    press(page, "y" if golden()[2][IDS.index(image_id), PERSON] else "n")
    page.wait_for_function(
        "(t) => document.querySelector('[role=status]')?.innerText !== t", arg=before
    )
    return str(image_id)


def test_a_class_is_reviewed_by_keyboard_to_new_thresholds(page: Any, run: Path) -> None:
    unit = RunLayout(str(run)).dataset("voc").unit("tiny")
    before = storage.read_json(unit.decisions)["sparc"]["classes"]["person"]
    page.get_by_role("link", name="Review person").click()
    page.wait_for_function("() => document.images[0].naturalWidth === 48")
    answered = [answer(page) for _ in range(10)]
    page.reload()
    assert page.get_by_role("status").inner_text().strip().startswith("10 of 40")
    press(page, "z")
    page.get_by_text("9 of 40").wait_for()
    assert page.locator("input[name=image]").get_attribute("value") == answered[-1]
    press(page, "U")
    page.get_by_text("1 unsure").wait_for()
    (session,) = Path(unit.answers).iterdir()
    with session.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image_id"] for row in rows] == answered
    assert rows[-1]["answer"] == "unsure"
    for _ in range(30):
        answer(page)
    assert page.get_by_role("heading", level=1).inner_text() == "All 40 images have an answer"
    page.get_by_role("button", name="Use these answers").click()
    page.get_by_role("heading", name="What the answers changed").wait_for()
    after = storage.read_json(unit.decisions)["sparc"]["classes"]["person"]
    assert after["status"] == "labelled"
    row = page.get_by_role("row", name="threshold (probability, %)").inner_text().split("\t")
    shown = [f"{100 * rule['threshold_probability']:.1f}" for rule in (before, after)]
    assert row[1:] == shown
    assert violations(page) == []
    page.get_by_role("link", name="person").click()
    assert f"probability {shown[1]} %" in page.locator("dl").inner_text()
    page.go_back()
    page.get_by_role("link", name="Ask about more images").click()
    page.get_by_text("of 40").wait_for()
    assert page.get_by_role("heading", level=1).inner_text() == "Does this image contain: person?"


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_accessible_and_fit_any_screen(page: Any, client: Client, path: str) -> None:
    page.goto(client.origin + path)
    page.wait_for_load_state("networkidle")
    for scheme in ("light", "dark"):
        assert violations(page, scheme) == [], scheme
    assert shown_images(page)
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        assert not wider_than_screen(page)


def test_the_script_takes_pictures_of_every_kind_of_page(
    browser: Any, run: Path, tmp_path: Path
) -> None:
    example = Path(__file__).parents[2] / "examples" / "screenshots.py"
    runpy.run_path(str(example))["take"](browser, str(run), tmp_path)
    report = ("class", "compare", "image", "overview", "threshold", "unit")
    names = [*(f"report-{name}" for name in report), "view-class", "view-review"]
    assert sorted(path.stem for path in tmp_path.iterdir()) == names
