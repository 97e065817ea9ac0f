"""Decoding apart: a helper process that a hostile file may take to its limits, and no further.

What a header cannot tell, as how long a decoder takes and how much memory, is found out in a
process of its own. The system ends it after some CPU time, however busy the machine is, and lets
it have no more than some memory. It stays for the next file, or a new one is started.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

#: CPU seconds and bytes of memory for any file, and for each byte of it; and the most of both.
SECONDS, SECONDS_PER_BYTE, MOST_SECONDS = 0.7, 1e-6, 30.0
MEMORY, MEMORY_PER_BYTE, MOST_MEMORY = 200 * 2**20, 128, 2**31
#: The most seconds by the clock; a helper that does nothing is ended, too.
WAIT = 120.0
#: The most bytes of an answer; its sender may be in the hands of the file that it decodes.
LARGEST = 2**28

_idle: list[_Helper] = []


def run(work: str, content: bytes, *arguments: Any) -> list[bytes] | str:
    """Does some work on a file in a helper: a name in ``decoding.WORK``, and its arguments.

    Returns the parts of its answer, or the reason if there is none.
    """
    helper = None
    while helper is None or helper.process.poll() is not None:
        try:
            helper = _idle.pop()
        except IndexError:
            helper = _Helper()
    answer = helper.ask(work, content, arguments)
    if helper.process.poll() is None:
        _idle.append(helper)
    return answer


def close() -> None:
    """Ends the helpers of this process."""
    while _idle:
        _idle.pop().end()


# A copy of this process has copies of its pipes.
os.register_at_fork(after_in_child=_idle.clear)
atexit.register(close)


class _Helper:
    """A helper process and the pipes to it."""

    def __init__(self) -> None:
        # Ray adds to the path of its workers after they have started.
        program = f"import sys; sys.path[:] = {sys.path!r}; from sparc_dist.images import apart; "
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{program}apart.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libtiff writes there
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for its parent
        )

    def ask(self, work: str, content: bytes, arguments: Any) -> list[bytes] | str:
        """Returns the parts of the answer, or the reason; ends the process if it fails."""
        assert self.process.stdin
        assert self.process.stdout
        clock = threading.Timer(WAIT, self.process.kill)
        clock.daemon = True
        clock.start()
        try:
            request = {"work": work, "bytes": len(content), "arguments": arguments}
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.write(content)
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline(LARGEST))
            if answer["error"] is not None:
                return str(answer["error"])
            if sum(answer["sizes"]) > LARGEST:
                raise ValueError("too long")
            return [_exactly(self.process.stdout, size) for size in answer["sizes"]]
        except (OSError, ValueError, KeyError, TypeError):
            return self._reason(len(content))
        finally:
            clock.cancel()

    def _reason(self, size: int) -> str:
        """Returns why there is no answer."""
        self.end()
        if self.process.returncode == -signal.SIGPROF:
            return f"cannot be decoded: takes more than {_seconds(size):.1f} seconds"
        return "cannot be decoded: its decoder crashed"

    def end(self) -> None:
        """Ends the process, however busy it is."""
        with suppress(subprocess.TimeoutExpired):  # one that ends itself tells why
            self.process.wait(0 if self.process.poll() is not None else 0.05)
        self.process.kill()
        self.process.communicate()


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) != size:
        raise ValueError("too short")
    return content


def _seconds(size: int) -> float:
    return min(SECONDS + SECONDS_PER_BYTE * size, MOST_SECONDS)


def serve() -> None:
    """Answers one request after another from standard input, until there is none: the helper."""
    from PIL import AvifImagePlugin

    from sparc_dist.images.decoding import WORK, BadImage

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # a stack each, on a machine of many cores
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        content = source.read(request["bytes"])
        _limit(len(content))
        parts: list[bytes] = []
        error = None
        try:
            parts = WORK[request["work"]](content, *request["arguments"])
        except BadImage as bad:
            error = str(bad)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer = {"error": error, "sizes": [len(part) for part in parts]}
        target.write(b"".join([json.dumps(answer).encode(), b"\n", *parts]))
        target.flush()


def _limit(size: int) -> None:
    """Limits what this process may use for a file of ``size`` bytes beyond what it has."""
    # Nobody handles the signal, so that the system ends the process, whatever a decoder does.
    signal.setitimer(signal.ITIMER_PROF, _seconds(size))
    with suppress(OSError, ValueError):  # only Linux tells, and limits it
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[5])
        memory = min(MEMORY + MEMORY_PER_BYTE * size, MOST_MEMORY)
        used = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, resource.RLIM_INFINITY))
