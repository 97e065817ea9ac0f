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
GUIDELINES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
#: The rules whose outcome depends on colours.
COLOURS = ["color-contrast", "link-in-text-block"]


@contextmanager
def chromium(playwright: Any) -> Iterator[Any]:
    """Starts the browser of this machine. playwright: the module playwright.sync_api."""
    with playwright.sync_playwright() as found:
        browser = found.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def violations(page: Any, scheme: str = "light") -> list[str]:
    """What axe-core finds wrong with a page, or in its dark form, which differs in colours only."""
    page.emulate_media(color_scheme=scheme)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    rules = COLOURS if scheme == "dark" else GUIDELINES
    options = {"runOnly": rules, "preload": False}  # preload would fetch the style sheet
    found = page.evaluate("options => axe.run(document, options)", options)
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


def wider_than_screen(page: Any) -> bool:
    """Whether a page must be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
