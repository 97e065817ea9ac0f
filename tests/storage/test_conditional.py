from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from sparc_dist.storage import create, delete_if, is_strict, read_versioned, replace_if
from tests.support.memory_s3 import BUCKET
from tests.support.s3 import FaultProxy, Faults, Request

WRITERS = 8
#: Half of the requests fail, half of those after they were carried out.
LATE = Faults(drop=0.2, reset=0.1, error_500=0.2, seed=3)


S3 = [pytest.param(name, marks=pytest.mark.s3) for name in ("s3", "rclone")]


@pytest.fixture(params=["disk", *S3])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file that does not exist, in a folder that does not exist."""
    name = f"{uuid4().hex}/deep/file.json"
    fixture = {"s3": "on_conditional_s3", "rclone": "on_s3"}.get(request.param)
    if fixture:
        request.getfixturevalue(fixture)
    root = {
        "disk": str(tmp_path),
        "s3": f"s3://{BUCKET}",
        "rclone": "s3://runs",
    }
    return f"{root[request.param]}/{name}"


@pytest.fixture(params=["disk", S3[0]])
def strict(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """As ``url``, where conditions are kept."""
    if request.param == "s3":
        request.getfixturevalue("on_conditional_s3")
        return f"s3://{BUCKET}/{uuid4().hex}/file.json"
    return str(tmp_path / "deep" / "file.json")


def test_a_file_is_created_once_and_replaced_by_who_knows_its_version(url: str) -> None:
    assert read_versioned(url) is None
    assert replace_if(url, b"0", "none") is None
    first = create(url, b"1")
    assert first is not None
    assert create(url, b"other") is None
    found = read_versioned(url)
    assert found is not None
    assert (found.content, found.version) == (b"1", first)
    assert 0 <= found.age < 5

    second = replace_if(url, b"2", first)
    assert second not in (None, first)
    assert replace_if(url, b"3", first) is None
    found = read_versioned(url)
    assert found is not None
    assert (found.content, found.version) == (b"2", second)


def test_it_is_known_which_stores_keep_conditions(url: str) -> None:
    version = create(url, b"1")
    known = not url.startswith("s3://runs")
    assert is_strict(url, b"1") == known
    found = read_versioned(url)
    assert found is not None
    assert (found.content, found.version) == (b"1", version)


def test_only_a_local_file_is_deleted(url: str) -> None:
    version = create(url, b"1")
    assert version is not None
    is_local = "://" not in url
    assert delete_if(url, "another") == is_local
    assert read_versioned(url) is not None
    assert delete_if(url, version) == is_local
    assert (read_versioned(url) is None) == is_local


def winners(write: Callable[[int], str | None]) -> list[int]:
    with ThreadPoolExecutor(WRITERS) as pool:
        found = list(pool.map(write, range(WRITERS)))
    return [writer for writer, version in enumerate(found) if version is not None]


def replaced(url: str, contents: list[bytes], version: str, writer: int) -> str | None:
    return replace_if(url, contents[writer], version)


def test_of_many_that_write_at_once_one_wins(strict: str) -> None:
    (first,) = winners(lambda writer: create(strict, b"created %d" % writer))
    for turn in range(5):
        found = read_versioned(strict)
        assert found is not None
        version = found.version
        if turn == 0:
            assert found.content == b"created %d" % first
        contents = [b"%d %d" % (turn, writer) for writer in range(WRITERS)]
        (one,) = winners(partial(replaced, strict, contents, version))
        found = read_versioned(strict)
        assert found is not None
        assert found.content == contents[one]
    assert not list(Path(strict).parent.glob(".*.tmp"))


def test_a_put_whose_answer_was_lost_is_known_as_ones_own(on_conditional_s3: FaultProxy) -> None:
    on_conditional_s3.behave(LATE)
    on_conditional_s3.injected.clear()
    for number in range(6):
        url = f"s3://{BUCKET}/{uuid4().hex}"
        version = create(url, b"%d" % number)
        assert version is not None
        assert replace_if(url, b"%d again" % number, version) is not None
    assert sum(on_conditional_s3.injected.values()) > 5


def test_a_store_without_conditions_may_say_so(on_s3: FaultProxy) -> None:
    refused: set[int] = set()

    def policy(request: Request) -> tuple[int, str] | None:
        # Every other put: the proxy sees no headers.
        puts = sum(each.method == "PUT" for each in on_s3.log)
        if request.method == "PUT" and puts % 2:
            refused.add(puts)
            return 501, "NotImplemented"
        return None

    on_s3.behave(policy=policy)
    url = f"s3://runs/{uuid4().hex}"
    assert create(url, b"1") is not None
    assert not is_strict(url, b"1")
    assert len(refused) >= 2


def test_a_conflict_is_tried_again(on_conditional_s3: FaultProxy) -> None:
    def policy(request: Request) -> tuple[int, str] | None:
        puts = sum(each.method == "PUT" for each in on_conditional_s3.log)
        return (409, "ConditionalRequestConflict") if puts == 1 else None

    on_conditional_s3.behave(policy=policy)
    assert create(f"s3://{BUCKET}/{uuid4().hex}", b"1") is not None


def test_the_age_of_a_local_file_is_that_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    version = create(str(path), b"1")
    os.utime(path, (time.time() - 100,) * 2)
    found = read_versioned(str(path))
    assert found is not None
    assert 99 < found.age < 105
    replace_if(str(path), b"2", str(version))
    found = read_versioned(str(path))
    assert found is not None
    assert found.age < 5
