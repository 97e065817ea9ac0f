"""The viewer under attack on real sockets: requests that are wrong, endless or never finished."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from PIL import Image

from sparc_dist.report.view import server
from tests.support.golden_unit import write_unit
from tests.support.viewing import REVIEW, Client, viewing, write_viewed

#: The time limit of the server under test, and how long a test waits for what it ends.
SECONDS, PATIENCE = 2, 30
#: An image larger than what the system buffers for a client that does not read.
LARGE = "/original/voc/tiny/0/0"
#: A second request in the body of the first.
HIDDEN = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("attacked") / "run"
    noise = Image.frombytes("RGB", (3000, 2000), os.urandom(18_000_000))
    noise.save(root.parent / "large.png", compress_level=0)
    write_viewed(root, {0: str(root.parent / "large.png")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "SECONDS", SECONDS)
        patch.setattr(server, "READING", SECONDS)
        with viewing(root) as client:
            yield client


@contextmanager
def connected(client: Client) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", client.server.server_port), PATIENCE) as to:
        yield to


def head(client: Client, first: str, *lines: str) -> bytes:
    """The head of a request by someone who has the cookie."""
    own = {"Host": client.origin.removeprefix("http://"), "Origin": client.origin}
    named = (f"{name}: {value}" for name, value in (own | client.own_headers).items())
    return "\r\n".join((f"{first} HTTP/1.1", *named, *lines, "", "")).encode()


def received(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    parts = []
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def statuses(answer: bytes) -> list[int]:
    """The status of each answer; no page contains such a line."""
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)]


def sent(client: Client, *parts: bytes) -> list[int]:
    """Sends bytes and returns the statuses of all answers."""
    with connected(client) as connection:
        with suppress(ConnectionError):  # closed before all was sent
            connection.sendall(b"".join(parts))
        return statuses(received(connection))


def is_answered(client: Client) -> bool:
    with suppress(ConnectionError):
        return client.get("/").status == 200
    return False


@pytest.mark.parametrize("number", ["99999999", "9" * 30])
def test_zeros_before_a_length_do_not_hide_it(client: Client, number: str) -> None:
    length = f"Content-Length: {'0' * 4000}{number}"
    assert sent(client, head(client, f"POST {REVIEW}", length)) in ([400], [413])
    assert client.get("/").status == 200


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 6",),
        ("Content-Length: +5",),
        ("Content-Length : 5",),
        ("Transfer-Encoding: chunked, identity",),
        ("Host: evil.example",),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_that_can_be_read_in_two_ways_is_refused(
    client: Client, method: str, lines: tuple[str, ...]
) -> None:
    assert sent(client, head(client, f"{method} {REVIEW}", *lines), b"0\r\n\r\n", HIDDEN) == [400]


def test_the_body_of_a_page_request_is_not_the_next_request(client: Client) -> None:
    first = head(client, "GET /search", f"Content-Length: {len(HIDDEN)}")
    last = head(client, "GET /", "Connection: close")
    assert sent(client, first, HIDDEN, last) == [200, 200]
    chunked = head(client, "GET /search", "Transfer-Encoding: chunked")
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)
    assert sent(client, chunked, body, last) == [200, 200]


def test_the_body_of_a_refused_form_is_not_the_next_request(client: Client) -> None:
    form = head(client, "POST /nowhere", f"Content-Length: {len(HIDDEN)}")
    assert sent(client, form, HIDDEN, head(client, "GET /")) == [403]


def test_a_form_over_the_limit_is_refused(client: Client) -> None:
    form = head(client, f"POST {REVIEW}", f"Content-Length: {10 * server.LARGEST_FORM}")
    assert sent(client, form, b"a" * (server.LARGEST_FORM + 1)) == [413]
    endless = b"%x\r\n%s\r\n" % (2**12, b"a" * 2**12) * 17
    chunked = head(client, f"POST {REVIEW}", "Transfer-Encoding: chunked")
    assert sent(client, chunked, endless) == [413]


@pytest.mark.parametrize(
    "lines", [b"A: b\r\n" * 100_000, b"A: " + b"b" * 10**6, b"A: b\r\n c\r\n" * 100_000]
)
def test_endless_headers_are_refused(client: Client, lines: bytes) -> None:
    assert sent(client, b"GET / HTTP/1.1\r\n", lines) in ([400], [])
    assert client.get("/").status == 200


@pytest.mark.parametrize("part", [b"", b"G", b"GET / HTTP/1.1\r\nHost: "])
def test_a_head_that_does_not_end_ends_the_connection(client: Client, part: bytes) -> None:
    start = time.monotonic()
    assert sent(client, part) == []
    assert time.monotonic() - start < PATIENCE


def test_a_head_that_comes_byte_by_byte_ends_the_connection(client: Client) -> None:
    answered = head(client, "GET /search")
    start = time.monotonic()
    with connected(client) as connection, suppress(ConnectionError):
        connection.sendall(answered)
        while time.monotonic() - start < PATIENCE:
            connection.sendall(b"a")
            time.sleep(0.05)
    assert time.monotonic() - start < PATIENCE


def test_a_form_that_does_not_end_is_refused(client: Client) -> None:
    assert sent(client, head(client, f"POST {REVIEW}", "Content-Length: 9"), b"a") == [408]


def test_stalled_connections_keep_nobody_waiting(client: Client) -> None:
    with ExitStack() as stalled:
        for number in range(200):
            connection = stalled.enter_context(connected(client))
            body = head(client, f"POST {REVIEW}", "Content-Length: 9")
            connection.sendall(body if number % 2 else b"G")
        start = time.monotonic()
        assert [client.get("/").status for _ in range(3)] == [200] * 3
        assert time.monotonic() - start < PATIENCE / 2


def is_answered_soon(client: Client) -> bool:
    for _ in range(5 * PATIENCE):
        if is_answered(client):
            return True
        time.sleep(0.2)
    return False


def test_more_connections_than_the_limit_are_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 3)
    with ExitStack() as stalled:
        many = [stalled.enter_context(connected(client)) for _ in range(8)]
        assert received(many[-1]) == b""
    assert is_answered_soon(client)


def test_a_client_that_does_not_read_loses_its_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(client) as connection:
        connection.sendall(head(client, f"GET {LARGE}"))
        begun = connection.recv(1000)
        monkeypatch.setattr(server, "CONNECTIONS", 1)
        assert not is_answered(client)
        assert is_answered_soon(client)
        assert len(begun + received(connection)) < 18_000_000


def test_a_client_that_reads_slowly_is_sent_everything(client: Client) -> None:
    parts = []
    with connected(client) as connection:
        connection.sendall(head(client, f"GET {LARGE}", "Connection: close"))
        start = time.monotonic()
        while part := connection.recv(2**17):
            parts.append(part)
            time.sleep(0.05 if time.monotonic() - start < 3 * SECONDS else 0)
    assert statuses(parts[0]) == [200]
    assert sum(map(len, parts)) > 18_000_000


def test_the_head_of_a_page_is_sent_alone(client: Client) -> None:
    with connected(client) as connection:
        connection.sendall(head(client, "HEAD /", "Connection: close"))
        answer = received(connection)
    assert statuses(answer) == [200]
    assert answer.endswith(b"\r\n\r\n")
    assert f"Content-Length: {len(client.get('/').body)}".encode() in answer


def test_what_is_refused_before_it_is_understood_has_our_headers(client: Client) -> None:
    with connected(client) as connection:
        connection.sendall(b"GET / HTTP/9\r\n\r\n")
        answer = received(connection)
    assert b"Cache-Control: no-store" in answer
    assert b"frame-ancestors 'none'" in answer
    assert b"aiohttp" not in answer


def test_another_method_is_refused(client: Client) -> None:
    assert sent(client, head(client, "DELETE /", "Connection: close")) == [405]


def test_stopping_does_not_wait_for_stalled_connections(tmp_path: Path) -> None:
    write_unit(tmp_path / "run")
    with ExitStack() as stalled:
        with viewing(tmp_path / "run") as client:
            stalled.enter_context(connected(client)).sendall(b"G")
            start = time.monotonic()
        assert time.monotonic() - start < server.SECONDS
