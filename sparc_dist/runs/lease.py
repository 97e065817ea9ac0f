"""The lease of a run, lease.json: one process at a time writes to an output.

Whoever starts or resumes a run, or writes its report, holds the lease meanwhile; the workers of the
run write under that of their driver. Readers need none. A lease is renewed while its process lives,
and anybody may take over one whose process is gone.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sparc_dist import storage
from sparc_dist.errors import OR_WAIT, UserError
from sparc_dist.runs.layout import RunLayout
from sparc_dist.storage import Versioned, without_secrets

log = logging.getLogger(__name__)

#: Seconds between renewals, and after how many without one a lease is free.
RENEWED_EVERY, STALE_AFTER = 15.0, 60.0
#: Seconds between looks at a lease while waiting for it, and between lines about that.
LOOKED_EVERY, SAID_EVERY = 1.0, 5.0
#: How often others may be faster at taking a lease that is free.
ATTEMPTS = 20
#: How long the end of a process waits for a renewal that is under way.
LONGEST_END = 5.0


class Held(UserError):
    """Another process writes to the run."""


@dataclass(frozen=True)
class Writer:
    """Who writes to a run, as lease.json has it.

    machine: its boot and its namespace of processes, "" where these are not known. started: when
    the process started, which tells it from a later one of the same number. renewals: makes the
    content of each version different. advisory: whether the store ignores conditional writes.
    """

    id: str = ""
    host: str = "unknown"
    process: int = 0
    machine: str = ""
    started: str = ""
    since: str = "unknown"
    renewals: int = 0
    advisory: bool = False
    released: bool = False

    @classmethod
    def here(cls) -> Writer:
        """Returns this process, from now on."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        pid = os.getpid()
        process = (socket.gethostname(), pid, _machine(), _start_of(pid))
        return cls(uuid.uuid4().hex, *process, since)

    @classmethod
    def parse(cls, content: bytes) -> Writer:
        """Returns the writer in lease.json; an unknown one if that is damaged."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return cls()

    def content(self) -> bytes:
        """Returns lease.json."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()

    def is_gone(self, age: float) -> bool:
        """Whether the lease, last renewed ``age`` seconds ago, may be taken over."""
        return self.released or age > STALE_AFTER or self._has_ended()

    def _has_ended(self) -> bool:
        """Whether its process ran on this machine and runs no more."""
        if not self.machine or (self.host, self.machine) != (socket.gethostname(), _machine()):
            return False
        if self.process == os.getpid() and self.started == _start_of(self.process):
            return self.id not in _ids  # the store did not confirm that this process took it
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it is another user's
            pass
        return _start_of(self.process) not in ("", self.started)

    def __str__(self) -> str:
        return f"host {self.host}, process {self.process}, since {self.since}"


def _machine() -> str:
    """Returns what two processes have in common that see each other's numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Returns when a process started, "ended" if only its exit code is left, "" if not known."""
    try:
        # The name of the program is in parentheses and may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] in (b"Z", b"X") else fields[19].decode()


class _Lease:
    """A lease that this process holds. It renews itself in a thread until it is released."""

    def __init__(self, url: str, writer: Writer, version: str) -> None:
        self._url, self._writer, self._version = url, writer, version
        self._process, self._is_lost = os.getpid(), False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises UserError if another process has taken over the lease."""
        if self._is_lost:
            found = storage.read_versioned(self._url)
            by = "" if found is None else f" by {Writer.parse(found.content)}"
            raise UserError(
                f"{without_secrets(storage.parent(self._url))} was taken over{by}, because this "
                "process did not renew its lease in time; run the same command again when the "
                "other has ended."
            )

    def release(self) -> None:
        """Lets others write to the run, if the lease is still ours."""
        if os.getpid() != self._process:
            return  # a copy of the process that holds it
        _ids.discard(self._writer.id)
        self._over.set()
        self._thread.join(LONGEST_END)
        if self._is_lost or self._thread.is_alive():
            return
        try:
            if not storage.delete_if(self._url, self._version):
                self._write(released=True)
        except (OSError, UserError):  # then it is free when this process has ended
            log.debug("a lease was not released", exc_info=True)

    def _keep(self) -> None:
        while not self._is_lost and not self._over.wait(RENEWED_EVERY):
            try:
                self._write()
            except Exception:  # the store may answer the next time
                log.debug("a lease was not renewed", exc_info=True)

    def _write(self, released: bool = False) -> None:
        self._writer = replace(self._writer, renewals=self._writer.renewals + 1, released=released)
        version = storage.replace_if(self._url, self._writer.content(), self._version)
        if version is None:
            # An earlier renewal may have arrived although the store did not confirm it.
            found = storage.read_versioned(self._url)
            if found is not None and Writer.parse(found.content).id == self._writer.id:
                version = found.version
        self._is_lost = version is None
        self._version = version or ""


class _Own(threading.local):
    """What a thread holds, by URL; where it is kept, and whether it waits for a lease."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.stack: ExitStack | None = None
        self.waits = False


_own = _Own()
#: Those of all threads of this process, and the ids of those that it has or is about to take.
_leases: set[_Lease] = set()
_ids: set[str] = set()


@contextmanager
def writing(root: str, wait: bool = False) -> Iterator[None]:
    """Holds the lease of the run at ``root``; within a block that holds it, changes nothing.

    Raises Held if another process or thread has it, unless told to wait.
    """
    if not storage.is_remote(root):
        root = os.path.realpath(root)
    url = RunLayout(root).lease
    with ExitStack() as stack:
        if url not in _own.held:
            (_own.stack or stack).enter_context(_held(url, wait or _own.waits))
        yield


@contextmanager
def kept(wait: bool = False) -> Iterator[None]:
    """Keeps leases that are taken inside until the end: a run and its report are one.

    wait: whether to wait for those that others hold.
    """
    before = _own.stack, _own.waits
    with ExitStack() as stack:
        if _own.stack is None:
            _own.stack, _own.waits = stack, wait
        try:
            yield
        finally:
            _own.stack, _own.waits = before


def check() -> None:
    """Raises UserError if a lease of this process has been taken over: it must not write on."""
    for lease in tuple(_leases):
        lease.check()


def writer_of(root: str) -> str | None:
    """Returns who writes to a run now, for people; None if nobody does."""
    found = storage.read_versioned(RunLayout(root).lease)
    if found is None or (writer := Writer.parse(found.content)).is_gone(found.age):
        return None
    advisory = " (advisory: this store ignores conditional writes)" if writer.advisory else ""
    return f"{writer}, renewed {found.age:.0f} s ago{advisory}"


@contextmanager
def _held(url: str, wait: bool) -> Iterator[None]:
    """Takes a lease, and releases it."""
    storage.check_access(storage.parent(url))
    lease = _taken(url, wait)
    _own.held.add(url)
    _leases.add(lease)
    try:
        yield
    finally:
        _own.held.discard(url)
        _leases.discard(lease)
        lease.release()


def _taken(url: str, wait: bool) -> _Lease:
    """Returns the lease once it is free."""
    said, lost = 0.0, 0
    while lost < ATTEMPTS:
        found = storage.read_versioned(url)
        if found is not None and not found.content and found.age < LOOKED_EVERY:
            time.sleep(0.01)  # it is being created
            continue
        other = Writer() if found is None else Writer.parse(found.content)
        if found is None or other.is_gone(found.age):
            if lease := _take(url, found):
                return lease
            lost += 1
            continue
        place = without_secrets(storage.parent(url))
        if not wait:
            raise Held(
                f"{place} is being written by {other}, renewed {found.age:.0f} s ago; try again "
                f"when it has ended{OR_WAIT}."
            )
        if time.monotonic() - said > SAID_EVERY or not said:
            print(f"waiting for {place}: written by {other}", file=sys.stderr, flush=True)
            said = time.monotonic()
        time.sleep(LOOKED_EVERY)
    raise Held(f"{without_secrets(url)} changes too often; try again.")


def _take(url: str, found: Versioned | None) -> _Lease | None:
    """Creates a lease, or takes over one that is free; None if another process was faster."""
    writer, version = Writer.here(), None
    _ids.add(writer.id)
    try:
        content = writer.content()
        version = (
            storage.create(url, content)
            if found is None
            else storage.replace_if(url, content, found.version)
        )
        if version and not storage.is_strict(url, content):
            # Who has been overwritten meanwhile finds out here.
            writer = replace(writer, renewals=1, advisory=True)
            version = storage.replace_if(url, writer.content(), version)
    finally:
        if version is None:
            _ids.discard(writer.id)
    return _Lease(url, writer, version) if version else None
