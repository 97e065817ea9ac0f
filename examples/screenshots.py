"""Takes the pictures of a run's pages that docs/report.md and docs/view.md show.

    sparc-dist demo && python examples/screenshots.py sparc-demo docs/images

RUN is any finished run with a report; pictures of your photos stay where OUT says. The pages are
those of `sparc-dist view`, which runs meanwhile; no answer is given. Needs Debian's chromium, and
playwright from the extra `test`.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

SIZE = {"width": 1200, "height": 800}
COLOURS = 128  # enough for text and thumbnails, at a third of the bytes
#: Whether the images on the screen have been loaded or cannot be.
LOADED = """() => [...document.images].every((image) => {
  const {top, bottom} = image.getBoundingClientRect();
  const done = image.naturalWidth || image.classList.contains("broken");
  return done || bottom < 0 || top > innerHeight;
})"""


def take(browser: Browser, run: str, out: Path) -> None:
    """Follows the links from the first page to a review; saves NAME.png of each page."""
    with viewing(run) as address:
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        page.goto(address)
        page.get_by_role("link", name="Report", exact=True).click()
        save = _saving(page, out)
        save("report-overview")
        page.locator("h2 a").first.click()
        save("report-unit")
        page.locator("tbody th a").first.click()
        page.locator("#row-likeliest").wait_for()
        save("report-class")
        page.locator("#row-above h2").evaluate("title => title.scrollIntoView()")
        save("report-threshold")
        page.locator("#row-above .images a, #row-likeliest .images a").first.click()
        page.get_by_role("dialog").wait_for()
        save("report-image")
        page.get_by_role("button", name="Close").click()
        page.get_by_role("link", name="All images of this class").click()
        save("view-class")
        page.get_by_role("link", name="Review this class").click()
        save("view-review")
        page.get_by_role("link", name="Report", exact=True).click()
        if page.get_by_role("link", name="Compare").count():  # there are two sides
            page.get_by_role("link", name="Compare").click()
            page.emulate_media(color_scheme="dark")
            save("report-compare")
        page.close()


@contextmanager
def viewing(run: str) -> Iterator[str]:
    """Serves a run; yields the address."""
    command = [sys.executable, "-m", "sparc_dist", "view", run, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def _saving(page: Page, out: Path) -> Callable[[str], None]:
    """Returns what saves a picture of the page as it is, in few bytes."""
    out.mkdir(parents=True, exist_ok=True)

    def save(name: str) -> None:
        page.wait_for_load_state("load")
        page.wait_for_function(LOADED)
        taken = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
        taken.quantize(COLOURS).save(out / f"{name}.png", optimize=True)

    return save


if __name__ == "__main__":
    program = os.environ.get("SPARC_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        take(chromium, sys.argv[1], Path(sys.argv[2]))
