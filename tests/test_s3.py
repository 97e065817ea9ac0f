"""The server refuses and the proxy fails as told, as seen by clients that do not try again."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import s3fs

from tests.s3 import (
    MESSAGES,
    Faults,
    Request,
    S3Server,
    fault_proxy,
    prefix_only,
    read_only,
    s3_server,
)

CONTENT = b"0123456789" * 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    (folder / "bucket" / "team").mkdir(parents=True)
    (folder / "bucket" / "team" / "there").write_bytes(CONTENT)
    (folder / "bucket" / "beside").write_bytes(CONTENT)
    with s3_server(folder) as server:
        yield server


def client(server: S3Server, endpoint: str | None = None, **changes: Any) -> Any:
    """A file system that asks once and remembers nothing."""
    files = s3fs.S3FileSystem(
        **{"key": server.key, "secret": server.secret, **changes},
        client_kwargs={"endpoint_url": endpoint or server.endpoint, "region_name": "us-east-1"},
        config_kwargs={
            "retries": {"max_attempts": 0},
            "signature_version": "s3v4",
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    files.retries = 1
    return files


def raw(
    files: Any, method: str, path: str, body: bytes | None = None, timeout: float = 10
) -> tuple[int, bytes]:
    """Status and body of one signed request, as they come over the wire."""
    operation = {"GET": "get_object", "HEAD": "head_object", "PUT": "put_object"}[method]
    url = urlsplit(files.sign(path, client_method=operation))
    connection = HTTPConnection(url.netloc, timeout=timeout)
    try:
        connection.request(method, f"{url.path}?{url.query}", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Echo(BaseHTTPRequestHandler):
    """Answers in chunks with a request's chunks as they came, frames and all."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        came = b""
        while not came.endswith(b"\r\n0\r\n\r\n"):
            came += self.rfile.readline()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (came[:7], came[7:], b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_server_refuses_a_wrong_key(server: S3Server, wrong: str) -> None:
    assert client(server).cat_file("bucket/beside") == CONTENT
    stranger = client(server, **{wrong: "wrong"})
    for ask in (stranger.cat_file, stranger.info, stranger.ls):
        with pytest.raises(PermissionError):
            ask("bucket/beside")
    with pytest.raises(PermissionError):
        stranger.pipe_file("bucket/refused", b"")
    assert not (server.folder / "bucket" / "refused").exists()


def test_a_server_that_cannot_start_says_why() -> None:
    nowhere = s3_server(Path("a-remote-of-rclone-that-is-not-there:"))
    with pytest.raises(RuntimeError, match="didn't find section"), nowhere:
        """It is not reached."""


def test_environment_is_all_that_a_client_needs(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(server.endpoint) as proxy:
        for name, value in server.environment(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        assert files.cat_file("bucket/beside") == CONTENT
    assert proxy.log[-1] == Request("GET", "bucket", "beside", {})


def test_proxy_hands_on_bodies_names_and_listings(server: S3Server) -> None:
    with fault_proxy(server.endpoint) as proxy:
        files = client(server, proxy.endpoint)
        key = "bucket/odd/ä +%?#&= name"
        files.pipe_file(key, CONTENT)
        assert (server.folder / key).read_bytes() == CONTENT
        assert files.cat_file(key, start=3, end=7) == b"3456"
        assert files.info(key)["size"] == len(CONTENT)
        assert files.ls("bucket/odd", detail=False) == [key]
        large = b"x" * 11 * 2**20
        with files.open("bucket/large", "wb", block_size=5 * 2**20) as file:
            file.write(large)
        assert files.cat_file("bucket/large") == large
        files.rm_file(key)
        assert not files.exists(key)
    assert Request("GET", "bucket", "odd/ä +%?#&= name", {}) in proxy.log
    assert proxy.requests["DELETE"] == 1
    assert proxy.requests.total() == len(proxy.log)
    assert not proxy.injected


def test_proxy_hands_on_chunks() -> None:
    with HTTPServer(("127.0.0.1", 0), Echo) as upstream:
        Thread(target=upstream.handle_request).start()
        with fault_proxy(f"http://127.0.0.1:{upstream.server_port}") as proxy:
            connection = HTTPConnection(urlsplit(proxy.endpoint).netloc, timeout=10)
            connection.request("PUT", "/bucket/key", iter([b"one ", b"two"]), encode_chunked=True)
            assert connection.getresponse().read() == b"7\r\none two\r\n0\r\n\r\n"
            connection.close()


def test_reads_of_what_others_overwrite_are_whole(server: S3Server) -> None:
    contents = [b"%d " % number * 500 for number in range(100)]
    with fault_proxy(server.endpoint) as proxy, ThreadPoolExecutor(8) as pool:
        files = client(server, proxy.endpoint)

        def write_and_read(content: bytes) -> tuple[int, bytes]:
            assert raw(files, "PUT", "bucket/shared", content)[0] == 200
            return raw(files, "GET", "bucket/shared")

        answers = list(pool.map(write_and_read, contents))
    assert {status for status, _ in answers} == {200}
    assert {content for _, content in answers} <= set(contents)


def test_drop_closes_without_an_answer(server: S3Server) -> None:
    with fault_proxy(server.endpoint, Faults(drop=1)) as proxy:
        files = client(server, proxy.endpoint)
        with pytest.raises(RemoteDisconnected):
            raw(files, "GET", "bucket/beside")
        # What s3fs lets through is not even an OSError, and aiohttp asks twice of its own accord.
        with pytest.raises(Exception, match="Connection was closed"):
            files.info("bucket/beside")
    assert proxy.injected == {"drop": 3}


@pytest.mark.parametrize(
    ("faults", "status", "code"),
    [(Faults(error_500=1), 500, "InternalError"), (Faults(slow_down=1), 503, "SlowDown")],
)
def test_errors(server: S3Server, faults: Faults, status: int, code: str) -> None:
    with fault_proxy(server.endpoint, faults) as proxy:
        files = client(server, proxy.endpoint)
        got, body = raw(files, "GET", "bucket/beside")
        assert (got, f"<Code>{code}</Code>" in body.decode()) == (status, True)
        assert raw(files, "HEAD", "bucket/beside") == (status, b"")
        with pytest.raises(OSError, match=MESSAGES[code]):
            files.pipe_file("bucket/error", b"")
    assert proxy.injected.total() == 3


def test_stall_says_nothing_for_a_while(server: S3Server) -> None:
    with fault_proxy(server.endpoint, Faults(stall=1, stall_seconds=60)) as proxy:
        with pytest.raises(TimeoutError):
            raw(client(server, proxy.endpoint), "GET", "bucket/beside", timeout=0.3)
        assert proxy.injected == {"stall": 1}
    with fault_proxy(server.endpoint, Faults(stall=1, stall_seconds=0.1)) as proxy:
        files = client(server, proxy.endpoint)
        with pytest.raises(RemoteDisconnected):
            raw(files, "GET", "bucket/beside")


def test_truncate_breaks_off_reads_only(server: S3Server) -> None:
    with fault_proxy(server.endpoint, Faults(truncate=1)) as proxy:
        files = client(server, proxy.endpoint)
        with pytest.raises(IncompleteRead) as cut:
            raw(files, "GET", "bucket/beside")
        assert (cut.value.partial, cut.value.expected) == (CONTENT[:500], 500)
        assert raw(files, "HEAD", "bucket/beside") == (200, b"")
        assert raw(files, "PUT", "bucket/whole", CONTENT)[0] == 200
    assert proxy.injected == {"truncate": 1}


@pytest.mark.parametrize("kind", ["drop", "error_500"])
def test_some_that_fail_have_been_carried_out(server: S3Server, kind: str) -> None:
    with fault_proxy(server.endpoint, Faults(**{kind: 1.0}, seed=3)) as proxy:
        files = client(server, proxy.endpoint)
        for number in range(20):
            with suppress(RemoteDisconnected):
                assert raw(files, "PUT", f"bucket/{kind}/{number}", CONTENT)[0] == 500
    assert proxy.injected == {kind: 20}
    assert 5 <= len(list((server.folder / "bucket" / kind).iterdir())) <= 15


def test_faults_come_in_their_shares_and_again_with_the_same_seed() -> None:
    faults = Faults(drop=0.1, error_500=0.2, slow_down=0.3)
    source, again = Random(1), Random(1)
    drawn = [faults.draw(source) for _ in range(10_000)]
    assert drawn == [faults.draw(again) for _ in range(10_000)]
    shares = Counter(kind for kind, _ in drawn)
    assert shares == pytest.approx(
        {"drop": 1000, "error_500": 2000, "slow_down": 3000, "": 4000}, abs=200
    )
    assert sum(late for _, late in drawn) == pytest.approx(1500, abs=200)


def test_clients_may_go_away(server: S3Server, capfd: pytest.CaptureFixture[str]) -> None:
    with fault_proxy(server.endpoint) as proxy:
        address = urlsplit(proxy.endpoint)
        for text in (
            b"",
            b"GET",
            b"PUT /bucket/half HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234",
            b"PUT /bucket/half HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n",
        ):
            with socket.create_connection((address.hostname, address.port)) as connection:
                connection.sendall(text)
        assert raw(client(server, proxy.endpoint), "GET", "bucket/beside") == (200, CONTENT)
    assert [request.method for request in proxy.log] == ["GET"]
    assert capfd.readouterr().err == ""


def test_read_only(server: S3Server) -> None:
    with fault_proxy(server.endpoint, policy=read_only) as proxy:
        files = client(server, proxy.endpoint)
        assert files.cat_file("bucket/beside") == CONTENT
        assert "bucket/beside" in files.ls("bucket", detail=False)
        with pytest.raises(PermissionError):
            files.pipe_file("bucket/beside", b"")
        with pytest.raises(PermissionError):
            files.rm_file("bucket/beside")
    assert (server.folder / "bucket" / "beside").read_bytes() == CONTENT


def test_prefix_only(server: S3Server) -> None:
    with fault_proxy(server.endpoint, policy=prefix_only("bucket", "team/")) as proxy:
        files = client(server, proxy.endpoint)
        files.pipe_file("bucket/team/mine", CONTENT)
        assert files.cat_file("bucket/team/mine") == CONTENT
        assert "bucket/team/there" in files.ls("bucket/team", detail=False)
        for ask in (files.cat_file, files.info, files.rm_file):
            with pytest.raises(PermissionError):
                ask("bucket/beside")
        with pytest.raises(PermissionError):
            files.ls("bucket")
        with pytest.raises(PermissionError):
            files.pipe_file("bucket/x", b"")
        for operation in ("head_bucket", "create_bucket", "list_objects_v2"):
            with pytest.raises(PermissionError):
                files.call_s3(operation, Bucket="bucket")
    assert not (server.folder / "bucket" / "x").exists()


def test_hide_missing(server: S3Server) -> None:
    with fault_proxy(server.endpoint, hide_missing=True) as proxy:
        files = client(server, proxy.endpoint)
        assert raw(files, "HEAD", "bucket/none") == (403, b"")
        status, body = raw(files, "GET", "bucket/none")
        assert (status, b"<Code>AccessDenied</Code>" in body) == (403, True)
        assert raw(files, "GET", "bucket/beside") == (200, CONTENT)


def test_a_mistake_in_a_policy_is_told(server: S3Server) -> None:
    def mistaken(request: Request) -> tuple[int, str] | None:
        raise KeyError(request.key)

    with (
        pytest.raises(RuntimeError, match="proxy itself"),
        fault_proxy(server.endpoint, policy=mistaken) as proxy,
        pytest.raises(RemoteDisconnected),
    ):
        raw(client(server, proxy.endpoint), "GET", "bucket/beside")
