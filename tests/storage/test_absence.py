"""A refusal is a proof of absence only where missing files are refused and others are not."""

from __future__ import annotations

import uuid

import pytest

from sparc_dist import storage
from sparc_dist.storage import files
from tests.support.s3 import FaultProxy, Policy, Request


@pytest.fixture
def root(on_s3: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new place in the store, of which this process knows nothing."""
    monkeypatch.setattr(files, "_readable", set())
    monkeypatch.setattr(files, "_hiding", {})
    return f"s3://runs/{uuid.uuid4().hex}"


def refusing(method: str, ending: str) -> Policy:
    def policy(request: Request) -> tuple[int, str] | None:
        found = request.method == method and request.key.endswith(ending)
        return (403, "AccessDenied") if found else None

    return policy


def test_a_missing_file_is_missing(root: str, on_s3: FaultProxy) -> None:
    assert storage.read_if_exists(f"{root}/run.json") is None
    assert storage.is_missing(f"{root}/run.json")


def test_a_store_that_hides_missing_files(root: str, on_s3: FaultProxy) -> None:
    on_s3.behave(hide_missing=True)
    storage.check_access(root)
    assert storage.read_if_exists(f"{root}/run.json") is None
    storage.write_bytes(f"{root}/run.json", b"x")
    assert storage.read_if_exists(f"{root}/run.json") == b"x"
    assert not storage.is_missing(f"{root}/run.json")


def test_a_file_that_is_refused_is_not_missing(root: str, on_s3: FaultProxy) -> None:
    storage.write_bytes(f"{root}/run.json", b"x")
    on_s3.behave(policy=refusing("GET", "run.json"))
    with pytest.raises(PermissionError, match=r"Reading .*run\.json was refused"):
        storage.read_if_exists(f"{root}/run.json")


def test_without_the_right_to_read_nothing_is_missing(root: str, on_s3: FaultProxy) -> None:
    """As with rights that arrive late: every name is refused, also one that cannot exist."""
    storage.write_bytes(f"{root}/run.json", b"x")
    on_s3.behave(policy=refusing("GET", ""))
    with pytest.raises(PermissionError, match="was refused"):
        storage.read_if_exists(f"{root}/run.json")
    with pytest.raises(PermissionError, match="was refused"):
        storage.check_access(root)


def test_a_worker_proves_it_on_its_own(root: str, on_s3: FaultProxy) -> None:
    """It has read nothing of the run so far: it writes a file there and reads it back."""
    storage.write_bytes(f"{root}/done/1.json", b"x")
    on_s3.behave(hide_missing=True)
    assert storage.read_if_exists(f"{root}/done/0.json") is None
    asked = [(request.method, request.key.rpartition("/")[2]) for request in on_s3.log]
    assert ("PUT", ".access-check") in asked
    on_s3.log.clear()
    assert storage.read_if_exists(f"{root}/done/2.json") is None
    assert len(on_s3.log) == 1


def test_rights_that_arrive_meanwhile(root: str, on_s3: FaultProxy) -> None:
    """The file was refused before the right came; it is read again after that is known."""
    storage.write_bytes(f"{root}/run.json", b"x")
    asked: list[str] = []

    def policy(request: Request) -> tuple[int, str] | None:
        asked.append(request.method)
        return (403, "AccessDenied") if "PUT" not in asked else None

    on_s3.behave(policy=policy)
    assert storage.read_if_exists(f"{root}/run.json") == b"x"
