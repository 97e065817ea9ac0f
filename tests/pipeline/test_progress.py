import io

from sparc_dist.pipeline.progress import Progress


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
