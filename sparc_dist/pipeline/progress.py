"""Progress: one line per unit with images done, images/s and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TextIO


class Progress:
    """Counts images and prints a line every few seconds."""

    def __init__(
        self, label: str, total: int, done: int = 0, every: float = 5.0, to: TextIO | None = None
    ) -> None:
        self.label = label
        self.total = total
        self.done = done
        self._start_done = done
        self._every = every
        self._to = to
        self._one_of_many = False
        self._start = self._printed = time.monotonic()

    def next_pass(self, label: str) -> None:
        """Counts from 0 again. Passes may be short, so the end of one is not always printed."""
        self.label, self.done, self._start_done = label, 0, 0
        self._start, self._one_of_many = time.monotonic(), True

    def add(self, images: int) -> None:
        """Counts images as done; prints a line when it is due, and at the end of the only pass."""
        self.done += images
        now = time.monotonic()
        ended = self.done >= self.total and not self._one_of_many
        if now - self._printed >= self._every or ended:
            self._printed = now
            print(self.line(now - self._start), file=self._to or sys.stderr, flush=True)

    def tick(self) -> None:
        """Prints a line if none was printed for some time."""
        now = time.monotonic()
        if now - self._printed >= self._every:
            self._printed = now
            print(self.line(now - self._start), file=self._to or sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """Returns the line after ``seconds``."""
        rate = (self.done - self._start_done) / seconds if seconds > 0 else 0.0
        left = f"{_duration((self.total - self.done) / rate)} left" if rate else "starting"
        speed = f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"
        return f"{self.label}  {self.done:,}/{self.total:,} images  {speed} images/s  {left}"


@contextmanager
def repeated(work: Callable[[], None], every: float) -> Iterator[None]:
    """Calls ``work`` every few seconds, in a thread, until the block ends."""
    done = Event()

    def repeat() -> None:
        while not done.wait(every):
            work()

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def heartbeat(text: str, every: float = 5.0, to: TextIO | None = None) -> Iterator[None]:
    """Prints what is being done at once, and again every few seconds until it is done."""
    start = time.monotonic()

    def say(more: str = "") -> None:
        print(f"{text} …{more}", file=to or sys.stderr, flush=True)

    say()
    with repeated(lambda: say(f" {_duration(time.monotonic() - start)}"), every):
        yield


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
