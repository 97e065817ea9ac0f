"""Listing folders of any size: in the order of paths, page by page, folders ahead in parallel.

A page of an object store has a thousand names; other file systems return a folder as one page.
"""

from __future__ import annotations

import errno
import os
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from sparc_dist.errors import UserError
from sparc_dist.storage.filesystems import with_retries
from sparc_dist.storage.urls import is_chain, is_remote, join, split_byte_range

#: The names of a page of an object store. A folder with fewer is one page.
PAGE = 1000
#: The number of folders whose first pages are fetched ahead.
AHEAD = 16
#: The number of folders, one in the other, that are visited.
DEEPEST = 100
#: Why a name is not visited, as a note counts it.
CIRCLE, REPEATED = "in a circle of links", "repeated links to a folder"
TOO_DEEP = "nested too deeply"

#: Given a folder and the names of a page of it, returns those to leave out, with the reason.
LeaveOut = Callable[[str, list[str]], dict[str, str]]


class File(NamedTuple):
    """A file of a listing. version: differs after its content has changed; None if unknown."""

    url: str
    version: str | None


@dataclass(frozen=True)
class Page:
    """Some names of a folder in their order, those of folders with a slash at their end.

    token: what the store wants to hear for the next page; None after the last one. versions: of the
    files of a store that supplies them. skipped: the names that cannot be visited, with the reason.
    links: to folders, with where they lead; None if the store has no links.
    """

    names: list[str]
    token: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] | None = None


def local_version(url: str) -> str | None:
    """Returns size and time of a local file, or of that of a byte range; None if there is none."""
    if is_remote(url):
        return None
    part = split_byte_range(url)
    try:
        found = os.stat(part[0] if part else url)
    except (OSError, ValueError):  # missing, or no name of a file
        return None
    return f"{found.st_size}-{found.st_mtime_ns}"


def entity_tag(entry: dict[str, Any]) -> str | None:
    """Returns the ETag in an entry of a store's listing."""
    found = entry.get("ETag") or entry.get("etag")
    return str(found).strip('"') if found else None


def files_below(
    url: str,
    leave_out: LeaveOut = lambda folder, names: {},
    after: str = "",
    skipped: Counter[str] | None = None,
) -> Iterator[File]:
    """Yields the files below a folder, in the order of their paths.

    leave_out: which files and folders not to visit; by default none. after: a path below the
    folder; only files behind it are listed. skipped: counts what is not visited, by the reason.
    Of the links to a folder only the first is followed: folders that link to each other have more
    paths than anyone can visit.
    """
    if is_chain(url):
        raise UserError(f"{url} is a chain of file systems; use a plain URL or folder.")
    pool = ThreadPoolExecutor(AHEAD)
    try:
        walk = _Walk(url, pool, leave_out, after, Counter() if skipped is None else skipped)
        yield from walk.below("", walk.page(""))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _Walk:
    """Visits folders, by their path below the URL; first pages come from a pool of threads.

    followed: where the links lead that have been followed.
    """

    url: str
    pool: ThreadPoolExecutor
    leave_out: LeaveOut
    after: str
    skipped: Counter[str]
    followed: set[str] = field(default_factory=set)

    def page(self, path: str, token: str | None = None) -> Page:
        """Returns a page of a folder; without a token the first."""
        after = self.after.removeprefix(path) if self.after.startswith(path) else ""
        return _page(self._folder(path), after, token)

    def _folder(self, path: str) -> str:
        return join(self.url, path.rstrip("/")) if path else self.url

    def below(self, path: str, page: Page | None, depth: int = 0) -> Iterator[File]:
        """Yields the files below a folder. page: its first one. depth: the folders around it."""
        while page is not None:
            links = page.links or {}
            for name, future in self._fetched(path, self._chosen(path, page, depth), links):
                # Keeps the user's spelling of the URL: a file system may have other names.
                below = join(self.url, path + name)
                if not name.endswith("/"):
                    yield File(below, page.versions.get(name) or local_version(below))
                elif future is not None:
                    yield from self.below(path + name, future.result(), depth + 1)
                elif links[name] in self.followed:
                    self._skip(path + name, REPEATED)
                else:
                    self.followed.add(links[name])
                    yield from self.below(path + name, self.page(path + name), depth + 1)
            page = self.page(path, page.token) if page.token else None

    def _chosen(self, path: str, page: Page, depth: int) -> list[str]:
        """Returns the names of a page to visit; counts the others."""
        names = [name.rstrip("/") for name in page.names]
        left_out = page.skipped | self.leave_out(self._folder(path), names)
        if depth == DEEPEST:
            folders = (name[:-1] for name in page.names if name.endswith("/"))
            left_out = dict.fromkeys(folders, TOO_DEEP) | left_out
        for name, reason in left_out.items():
            self._skip(path + name, reason)
        return [
            whole
            for whole, name in zip(page.names, names, strict=True)
            if name not in left_out and self._is_ahead(path + whole, page.links is not None)
        ]

    def _is_ahead(self, path: str, has_links: bool) -> bool:
        """Whether a path is behind ``after``, or is a folder to visit nevertheless.

        Such a folder contains ``after``, or perhaps links: those must count as followed.
        """
        return path > self.after or (
            path.endswith("/") and (has_links or self.after.startswith(path))
        )

    def _skip(self, path: str, reason: str) -> None:
        """Counts what is not visited behind ``after``."""
        self.skipped[reason] += path > self.after

    def _fetched(
        self, path: str, names: list[str], links: Container[str]
    ) -> Iterator[tuple[str, Future[Page] | None]]:
        """Yields each name, with the first page of a folder; fetches those of the next ones.

        Links come without a page: many may lead to the same folder.
        """
        waiting: deque[tuple[str, Future[Page] | None]] = deque()
        fetching = 0
        for name in names:
            future = None
            if name.endswith("/") and name not in links:
                future = self.pool.submit(self.page, path + name)
                fetching += 1
            waiting.append((name, future))
            while fetching > AHEAD or (waiting and waiting[0][1] is None):
                fetching -= waiting[0][1] is not None
                yield waiting.popleft()
        yield from waiting


def _page(url: str, after: str, token: str | None = None) -> Page:
    """Returns a page of a folder, of an object store only with names behind a path."""

    def fetch(fs: Any, path: str) -> Page:
        if isinstance(fs, LocalFileSystem):
            return _local_page(path)
        if hasattr(fs, "call_s3"):
            return _s3_page(fs, path, after, token)
        return _other_page(fs, path)

    return with_retries(url, "listing", fetch)


def _local_page(path: str) -> Page:
    # fsspec's own listing takes a kilobyte per file.
    names: list[str] = []
    linked: list[str] = []
    skipped: dict[str, str] = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    is_folder = entry.is_dir()
                except OSError as error:
                    is_folder = False  # reading it will fail
                    if error.errno == errno.ELOOP:
                        skipped[entry.name] = CIRCLE
                names.append(f"{entry.name}/" if is_folder else entry.name)
                if is_folder and entry.is_symlink():
                    linked.append(entry.name)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        skipped[""] = TOO_DEEP
    links, circles = _targets(path, linked) if linked else ({}, {})
    return Page(sorted(names), skipped=skipped | circles, links=links)


def _targets(path: str, linked: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns where a folder's links lead, and which of them to a folder on the way to it."""
    parts = Path(os.path.abspath(path)).parts
    way = [*accumulate(parts, lambda real, part: os.path.realpath(os.path.join(real, part)))]
    links = {f"{name}/": os.path.realpath(os.path.join(way[-1], name)) for name in linked}
    around = {str(folder) for real in way for folder in (Path(real), *Path(real).parents)}
    return links, {name: CIRCLE for name in linked if links[f"{name}/"] in around}


def _s3_page(fs: Any, path: str, after: str, token: str | None) -> Page:
    bucket, key, _ = fs.split_path(path.rstrip("/") + "/")
    # A folder before its files: what follows "a" includes "a/".
    begin: dict[str, str] = {"ContinuationToken": token} if token else {}
    if after and not token:
        begin = {"StartAfter": key + after.partition("/")[0]}
    found = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=key, Delimiter="/", **begin)
    entries = {entry["Key"].removeprefix(key): entry for entry in found.get("Contents", ())}
    folders = [entry["Prefix"].removeprefix(key) for entry in found.get("CommonPrefixes", ())]
    # S3 also lists the folder itself, if something has created it, and folders without a name.
    names = sorted(name for name in (*entries, *folders) if name.rstrip("/"))
    return Page(names, found.get("NextContinuationToken"), _versions(entries))


def _other_page(fs: Any, path: str) -> Page:
    start = len(path.rstrip("/")) + 1
    entries: dict[str, dict[str, Any]] = {}
    for entry in fs.ls(path, detail=True):
        if name := entry["name"].rstrip("/")[start:]:
            entries[f"{name}/" if entry["type"] == "directory" else name] = entry
    return Page(sorted(entries), versions=_versions(entries))


def _versions(entries: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Returns the versions of the files that have one."""
    return {name: tag for name, entry in entries.items() if (tag := entity_tag(entry))}
