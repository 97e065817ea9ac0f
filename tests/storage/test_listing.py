"""Listing: the order of paths, any place to begin, pages of an object store, folders ahead."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparc_dist import storage
from sparc_dist.storage import listing

#: "." sorts before "/", so that a file may come between a folder's name and its files.
NAMES = st.text("ab.é", min_size=1, max_size=3).filter(lambda name: name.strip("."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def tree(paths: set[str]) -> list[str]:
    """Returns the paths in order, without those that are folders of others."""
    folders = {path[:i] for path in paths for i, letter in enumerate(path) if letter == "/"}
    return sorted(paths - folders)


def paths_below(folder: Path, after: str = "", skipped: Counter[str] | None = None) -> list[str]:
    files = storage.files_below(str(folder), after=after, skipped=skipped)
    return [os.path.relpath(file.url, folder) for file in files]


@given(st.sets(PATHS, min_size=1, max_size=12), PATHS)
def test_files_come_in_the_order_of_paths_from_anywhere(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str], after: str
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    for path in tree(paths):
        storage.write_bytes(str(folder / path), b"x")
    for start in ("", after, *paths):
        assert paths_below(folder, start) == [path for path in tree(paths) if path > start]


@pytest.fixture
def many() -> list[str]:
    """More names than two pages have, in a bucket, with folders among them and below them."""
    names = [f"flat/{number:04d}.jpg" for number in range(2100)]
    names += ["flat/0500.d/x.jpg", "flat/0500/y.jpg", "flat/sub/1.jpg", "z.jpg"]
    urls = sorted(f"s3://runs/many/{name}" for name in names)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda url: storage.write_bytes(url, b""), urls))
    return urls


@pytest.mark.s3
@pytest.mark.usefixtures("on_s3")
def test_pages_of_a_bucket(many: list[str]) -> None:
    assert [file.url for file in storage.files_below("s3://runs/many")] == many
    for url in (many[3], many[1500], many[-3]):
        after = url.removeprefix("s3://runs/many/")
        found = [file.url for file in storage.files_below("s3://runs/many", after=after)]
        assert found == [each for each in many if each > url]
    pages: list[int] = []

    def leave_out(folder: str, names: list[str]) -> dict[str, str]:
        pages.append(len(names))
        return {"0500": "not wanted"} if "0500" in names else {}

    chosen = [file.url for file in storage.files_below("s3://runs/many", leave_out)]
    assert chosen == [url for url in many if "/0500/" not in url]
    assert max(pages) == storage.PAGE  # no more names are held at a time


def test_folders_are_fetched_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcd":
        storage.write_bytes(str(tmp_path / name / "1.jpg"), b"x")
    together, fetch = Barrier(4, timeout=20), listing._page

    def page(url: str, *of: str) -> listing.Page:
        if url != str(tmp_path):
            together.wait()  # breaks unless four folders are waited for at once
        return fetch(url, *of)

    monkeypatch.setattr(listing, "_page", page)
    assert len(list(storage.files_below(str(tmp_path)))) == 4


def test_a_look_at_a_folder_does_not_wait_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [f"{number:03d}" for number in range(100)]
    for name in folders:
        storage.write_bytes(str(tmp_path / name / "1.jpg"), b"x")
    fetched, fetch = [], listing._page

    def page(url: str, *of: str) -> listing.Page:
        fetched.append(url)
        return fetch(url, *of)

    monkeypatch.setattr(listing, "_page", page)
    files = storage.files_below(str(tmp_path))
    assert next(files).url == str(tmp_path / "000" / "1.jpg")
    assert len(fetched) < len(folders) / 2


def test_a_link_to_a_folder_with_a_shorter_name_is_no_loop(tmp_path: Path) -> None:
    storage.write_bytes(str(tmp_path / "photos" / "a.jpg"), b"x")
    (tmp_path / "photos2").mkdir()
    (tmp_path / "photos2" / "linked").symlink_to(tmp_path / "photos")
    assert paths_below(tmp_path / "photos2") == ["linked/a.jpg"]


def test_circles_of_links_are_skipped_and_counted(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        storage.write_bytes(str(tmp_path / name / "1.jpg"), b"x")
    (tmp_path / "a" / "to-b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to-a").symlink_to(tmp_path / "a")
    (tmp_path / "c" / "up").symlink_to(tmp_path)
    (tmp_path / "x.jpg").symlink_to("y.jpg")
    (tmp_path / "y.jpg").symlink_to("x.jpg")
    (tmp_path / "z.jpg").symlink_to(tmp_path / "a" / "1.jpg")
    skipped: Counter[str] = Counter()
    found = paths_below(tmp_path, skipped=skipped)
    assert found == ["a/1.jpg", "a/to-b/1.jpg", "b/1.jpg", "b/to-a/1.jpg", "c/1.jpg", "z.jpg"]
    assert skipped == {"in a circle of links": 5}


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Twelve folders with links to each other, and two links to a folder elsewhere."""
    names = "abcdefghijkl"
    for name in names:
        storage.write_bytes(str(tmp_path / "tree" / name / "1.jpg"), b"x")
        for other in set(names) - {name}:
            (tmp_path / "tree" / name / f"to-{other}").symlink_to(tmp_path / "tree" / other)
    storage.write_bytes(str(tmp_path / "else" / "where" / "1.jpg"), b"x")
    (tmp_path / "tree" / "a" / "out").symlink_to(tmp_path / "else")
    (tmp_path / "tree" / "z").symlink_to(tmp_path / "else")
    return tmp_path / "tree"


def test_of_many_links_to_a_folder_the_first_is_followed(linked: Path) -> None:
    skipped: Counter[str] = Counter()
    found = paths_below(linked, skipped=skipped)
    assert len(found) == len({*found}) == 12 + 12 + 1
    assert {f"{name}/1.jpg" for name in "abcdefghijkl"} < {*found}
    assert "a/out/where/1.jpg" in found
    assert "z/where/1.jpg" not in found
    assert skipped[listing.REPEATED] > 100
    assert skipped.keys() == {listing.CIRCLE, listing.REPEATED}


def test_a_listing_that_is_resumed_follows_no_other_links(linked: Path) -> None:
    (linked / "a" / "x.jpg").symlink_to("x.jpg")
    whole: Counter[str] = Counter()
    found = paths_below(linked, skipped=whole)
    for last, path in enumerate(found):
        rest: Counter[str] = Counter()
        assert paths_below(linked, path, rest) == found[last + 1 :]
        assert rest <= whole
    assert +rest == {listing.REPEATED: 12}  # l/to-a to l/to-k, and z


def test_a_link_that_cannot_be_followed_is_left_to_its_reader(tmp_path: Path) -> None:
    storage.write_bytes(str(tmp_path / "1.jpg"), b"x")
    (tmp_path / "2.jpg").symlink_to("a" * 300)  # longer than the name of a file can be
    assert paths_below(tmp_path) == ["1.jpg", "2.jpg"]


@pytest.mark.parametrize("name", ["d", "d" * 200])
def test_folders_nested_too_deeply_are_skipped_and_counted(tmp_path: Path, name: str) -> None:
    storage.write_bytes(str(tmp_path / "z.jpg"), b"x")
    top = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):  # one by one: the whole path is longer than the system takes
        os.mkdir(name, dir_fd=top)
        below = os.open(name, os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)
    skipped: Counter[str] = Counter()
    assert paths_below(tmp_path, skipped=skipped) == ["z.jpg"]
    assert skipped == {"nested too deeply": 1}
    subprocess.run(["rm", "-rf", str(tmp_path / name)], check=True)  # pytest would fail to
