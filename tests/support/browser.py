"""What tests in a real browser share: Chromium, axe-core, and the width of a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: SPARC_CHROMIUM names one that is elsewhere.
CHROMIUM = (
    os.environ.get("SPARC_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
AXE = Path(__file__).parent / "axe" / "axe.min.js"


@contextmanager
def chromium(playwright: Any) -> Iterator[Any]:
    """Starts the browser of this machine. playwright: the module playwright.sync_api."""
    with playwright.sync_playwright() as found:
        browser = found.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def violations(page: Any) -> list[str]:
    """What axe-core finds wrong with a page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    options = {"runOnly": rules, "preload": False}  # preload would fetch the style sheet
    found = page.evaluate("options => axe.run(document, options)", options)
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


def wider_than_screen(page: Any) -> bool:
    """Whether a page must be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
