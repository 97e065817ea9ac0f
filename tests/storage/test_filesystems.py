"""A URL becomes a file system; transient errors are retried, the others are not."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any
from zipfile import ZipFile

import pytest
from fsspec.implementations.arrow import ArrowFSWrapper

from sparc_dist import storage
from sparc_dist.errors import UserError
from sparc_dist.images.reading import read_image
from sparc_dist.storage import (
    NoBucket,
    Refused,
    StorageError,
    filesystems,
    resolve,
    without_secrets,
)
from tests.support.s3 import FAULTS, FaultProxy, Faults, prefix_only

AWS = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pauses between attempts short."""
    monkeypatch.setattr(filesystems, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(filesystems, "OUTAGE", 0)


def test_s3_takes_its_options_from_the_environment_as_awss_tools_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    fs, path = resolve("s3://bucket/a b#c?.jpg")
    assert path == "bucket/a b#c?.jpg"
    assert fs.endpoint_url is None
    assert "request_checksum_calculation" not in fs.config_kwargs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("SPARC_STORAGE_TIMEOUT", "7")
    fs, _ = resolve("s3://bucket/key")
    assert fs.endpoint_url == "http://127.0.0.1:9000"
    assert fs.client_kwargs["region_name"] == "eu-north-1"
    assert fs.config_kwargs["read_timeout"] == 7
    assert fs.config_kwargs["request_checksum_calculation"] == "when_required"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9001")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_SUPPORTED")
    fs, _ = resolve("s3://bucket/key")
    assert fs.endpoint_url == "http://127.0.0.1:9001"
    assert fs.config_kwargs["request_checksum_calculation"] == "when_supported"


def test_pyarrow_opens_what_fsspec_cannot() -> None:
    fs, path = resolve("gs://bucket/photos/a b.jpg")
    assert isinstance(fs, ArrowFSWrapper)
    assert fs.fs.type_name == "gcs"
    assert path == "bucket/photos/a b.jpg"
    with pytest.raises(UserError, match=r"No file system for az:// is installed"):
        resolve("az://container/x")


@pytest.mark.parametrize(
    "url",
    [
        "reference://x",
        "reference://x::{folder}/templates.json",
        "reference::{folder}/templates.json://",
        "github://owner:repository@/x.jpg",
        "simplecache::s3://bucket/x.jpg",
        "zip://x.jpg::simplecache::s3://bucket/x.zip",
        "zip://x.jpg::zip://inner.zip::s3://bucket/x.zip",
        "zip://x.jpg",
        "dir://x.jpg::file:///tmp",
        "local:///etc/passwd",
        "memory://x.jpg",
        "S3://bucket/x.jpg",
    ],
)
def test_other_protocols_are_refused_by_name(url: str, tmp_path: Path) -> None:
    """Templates of reference:// are programs: an earlier fsspec ran a command that they name."""
    sign = tmp_path / "sign"
    program = f"{{{{ cycler.__init__.__globals__.os.system('touch {sign}') }}}}"
    references = {"version": 1, "templates": {"a": program}, "refs": {"x": ["{{a}}"]}}
    (tmp_path / "templates.json").write_text(json.dumps(references))
    named = url.format(folder=tmp_path)
    with pytest.raises(UserError, match=r"is not opened: its protocol is none of"):
        storage.read_bytes(named)
    assert "is not opened" in str(read_image(named))
    assert not sign.exists()


def test_an_archive_may_be_named_like_a_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ZipFile("reference", "w") as archive:
        archive.writestr("x.jpg", b"content")
    assert storage.read_bytes("zip://x.jpg::reference") == b"content"


def test_local_names_may_contain_any_character(tmp_path: Path) -> None:
    for name in ("a::b", "~x", "c#bytes=0+5.jpg", "100%.jpg", "*?[x]"):
        url = str(tmp_path / name)
        storage.write_bytes(url, name.encode())
        assert storage.read_bytes(url) == name.encode()
    url = storage.byte_range(str(tmp_path / "a::b"), 1, 2)
    assert storage.read_bytes(url) == b"::"


@pytest.mark.usefixtures("on_s3")
def test_s3_names_may_contain_any_character() -> None:
    for name in ("a::b", "sp ace", "c#d", "100%", "q?x=1", "ü/é"):
        storage.write_bytes(f"s3://runs/names/{name}", name.encode())
        assert storage.read_bytes(f"s3://runs/names/{name}") == name.encode()
    found = [file.url for file in storage.files_below("s3://runs/names")]
    assert "s3://runs/names/ü/é" in found
    assert storage.sha256("s3://runs/names/none") is None


def faults(kind: str, share: float) -> Faults:
    shares: dict[str, Any] = {kind: share}
    return Faults(**shares, stall_seconds=1)


def test_each_fault_is_retried_counted_and_finally_an_error(
    on_s3: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARC_STORAGE_TIMEOUT", "0.5")
    storage.write_bytes("s3://runs/faults-of-one/x", b"content" * 1000)
    for kind in FAULTS:
        on_s3.behave(faults(kind, 1.0))
        before = filesystems.retries()
        with pytest.raises(StorageError, match=r"in 8 attempts at reading s3://runs/faults"):
            storage.read_bytes("s3://runs/faults-of-one/x")
        assert filesystems.retries() - before == filesystems.ATTEMPTS - 1, kind
        assert on_s3.injected[kind] >= filesystems.ATTEMPTS
        on_s3.behave(faults(kind, 0.4))
        for _ in range(6):
            assert storage.read_bytes("s3://runs/faults-of-one/x") == b"content" * 1000


def test_a_store_that_was_reached_is_waited_for(
    on_s3: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write_bytes("s3://runs/outage/x", b"content")
    monkeypatch.setattr(filesystems, "OUTAGE", 60)
    on_s3.behave(faults("reset", 1.0))
    back = Timer(0.5, on_s3.behave)
    back.start()
    before = filesystems.retries()
    assert storage.read_bytes("s3://runs/outage/x") == b"content"
    assert filesystems.retries() - before >= filesystems.ATTEMPTS


@pytest.mark.usefixtures("on_s3")
def test_a_server_that_is_down_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    before = filesystems.retries()
    with pytest.raises(StorageError, match=r"in 8 attempts .*\(EndpointConnectionError\)"):
        storage.read_bytes("s3://runs/x")
    assert filesystems.retries() - before == filesystems.ATTEMPTS - 1


def test_refusals_fail_at_once_and_are_never_retried(
    on_s3: FaultProxy,
) -> None:
    before = filesystems.retries()
    for url in ("s3://My Bucket!/x.jpg", "s3://runs"):
        assert "does not name a file" in str(read_image(url))
    with pytest.raises(FileNotFoundError):
        storage.read_bytes("s3://runs/none")
    with pytest.raises(NoBucket, match="There is no bucket s3://none; create it"):
        storage.read_bytes("s3://none/x")
    on_s3.behave(policy=prefix_only("runs", "mine/"))
    with pytest.raises(Refused, match=r"Reading s3://runs/x was refused .* s3:GetObject"):
        storage.read_bytes("s3://runs/x")
    with pytest.raises(Refused, match=r"Listing s3://runs/other was refused .*ListBucket"):
        list(storage.files_below("s3://runs/other"))
    with pytest.raises(Refused, match=r"Deleting s3://runs/x was refused .*DeleteObject"):
        storage.delete("s3://runs/x")
    assert filesystems.retries() == before


@pytest.mark.usefixtures("on_s3")
def test_a_file_is_read_in_ranges() -> None:
    content = bytes(range(256)) * 40_000
    storage.write_bytes("s3://runs/large", content)
    with storage.open_file("s3://runs/large") as file:
        file.seek(-10, 2)
        assert file.read() == content[-10:]
        file.seek(3_000_000)
        assert file.read(5) == content[3_000_000:3_000_005]
        file.seek(0)
        assert file.read() == content
    assert storage.read_bytes(storage.byte_range("s3://runs/large", 256, 3)) == b"\0\1\2"


class _Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(int(self.path.strip("/").partition("?")[0]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextmanager
def web() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_on_the_web_a_dead_host_is_an_error_of_the_image() -> None:
    with web() as place:
        assert str(read_image(f"{place}/404")) == "there is no such file"
        may_pass = [getattr(read_image(f"{place}/{code}"), "passing", None) for code in (404, 403)]
        assert may_pass == [False, True]  # dead links are common
        assert str(read_image(f"{place}/503")) == "its host does not answer"
        assert str(read_image(f"{place}/403")) == "reading it was refused, or there is no such file"
        with pytest.raises(Refused) as caught:
            storage.read_bytes(f"{place}/403?X-Amz-Signature=abc")
        assert "abc" not in str(caught.value)
        with storage.open_file(f"{place}/200") as file:
            assert file.read() == b""
    assert str(read_image(f"{place}/200")) == "its host does not answer"


def test_urls_in_messages_have_no_secrets() -> None:
    signed = "https://me:pw@host.org/a/b.jpg?X-Amz-Signature=abc"
    assert without_secrets(signed) == "https://host.org/a/b.jpg"
    assert without_secrets("HTTPS://host/x?sig=abc") == "HTTPS://host/x"
    assert without_secrets("ftp://me:pw@host/x") == "ftp://host/x"
    assert without_secrets("zip://a::https://me:pw@host/x?sig=abc") == "zip://a::https://host/x"
    assert without_secrets("s3://bucket/what?.jpg") == "s3://bucket/what?.jpg"
    with pytest.raises(StorageError) as caught:
        storage.read_bytes("http://me:pw@127.0.0.1:1/x?key=abc")
    assert "http://127.0.0.1:1/x" in str(caught.value)
    assert "pw" not in str(caught.value)
    assert "abc" not in str(caught.value)


@pytest.mark.usefixtures("on_s3")
def test_s3_is_told_what_a_file_is_so_that_browsers_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs, _ = storage.resolve("s3://runs/report/index.html")
    given: dict[str, Any] = {}
    put = fs.pipe_file

    def recorded(path: str, content: bytes, **options: Any) -> None:
        given[path] = options
        put(path, content, **options)

    monkeypatch.setattr(fs, "pipe_file", recorded)
    for name in ("index.html", "style.css", "part"):
        storage.write_bytes(f"s3://runs/report/{name}", b"text")
        assert storage.read_bytes(f"s3://runs/report/{name}") == b"text"
    assert list(given.values()) == [{"ContentType": "text/html"}, {"ContentType": "text/css"}, {}]
