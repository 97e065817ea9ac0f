import io

import pytest

from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.progress import Progress
from sparc_dist.pipeline.stages import Stages


def test_a_line_tells_done_total_rate_and_time_left() -> None:
    progress = Progress("voc × b32", 10_000, done=2_000)
    progress.done = 4_000
    assert progress.line(10) == "voc × b32  4,000/10,000 images  200 images/s  30 s left"
    assert progress.line(1000).endswith("2.0 images/s  50 min 0 s left")
    assert progress.line(10_000).endswith("0.2 images/s  8 h 20 min left")


def test_it_speaks_at_the_end_and_not_at_every_step() -> None:
    out = io.StringIO()
    progress = Progress("x", 100, every=3600, to=out)
    for _ in range(10):
        progress.add(10)
    assert out.getvalue().count("\n") == 1
    assert "100/100 images" in out.getvalue()


def test_it_speaks_in_between_when_it_is_time() -> None:
    out = io.StringIO()
    progress = Progress("x", 100, every=0, to=out)
    progress.add(10)
    progress.add(10)
    assert out.getvalue().count("\n") == 2


def test_many_passes_count_the_images_once_each_and_are_numbered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages = Stages("pets", "tiny", every=0)
    with using(InProcess()):
        stages.start("noise_model", 100)
        for number in (1, 2):
            stages.next_pass("noise_model", number)
            for _ in range(2):
                stages.advance("noise_model", 50)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" images")[0] for line in lines] == [
        "pets × tiny  noise model, pass 1  50/100",
        "pets × tiny  noise model, pass 1  100/100",
        "pets × tiny  noise model, pass 2  50/100",
        "pets × tiny  noise model, pass 2  100/100",
    ]


def test_short_passes_do_not_fill_the_screen() -> None:
    out = io.StringIO()
    progress = Progress("x", 100, every=3600, to=out)
    for number in range(9):
        progress.next_pass(f"pass {number}")
        progress.add(100)
    assert out.getvalue() == ""
