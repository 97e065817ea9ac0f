"""Something to see: at once, and again while nothing ends."""

from __future__ import annotations

import io
import time

from sparc_dist.pipeline.progress import Progress, heartbeat
from tests.support.waiting import until


def test_a_heartbeat_prints_at_once_and_again() -> None:
    out = io.StringIO()
    with heartbeat("embedding 1,600 texts", every=0.05, to=out):
        assert out.getvalue() == "embedding 1,600 texts …\n"
        assert until(lambda: out.getvalue().count("\n") > 2, 10)
    lines = out.getvalue().splitlines()
    assert lines[1] == "embedding 1,600 texts … 0 s"
    time.sleep(0.2)
    assert out.getvalue().splitlines() == lines  # it ends with the work


def test_progress_without_progress_is_printed_again() -> None:
    out = io.StringIO()
    progress = Progress("scoring", 4, every=0.05, to=out)
    progress.tick()
    assert out.getvalue() == ""
    time.sleep(0.06)
    progress.tick()
    assert out.getvalue().startswith("scoring  0/4 images")
