"""Listing folders of any size: in the order of paths, page by page, folders ahead in parallel.

A page of an object store has a thousand names; other file systems return a folder as one page.
"""

from __future__ import annotations

import errno
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
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

#: Given a folder and the names of a page of it, returns those to visit.
Choice = Callable[[str, list[str]], Iterable[str]]


class File(NamedTuple):
    """A file of a listing. version: differs after its content has changed; None if unknown."""

    url: str
    version: str | None


@dataclass(frozen=True)
class Page:
    """Some names of a folder in their order, those of folders with a slash at their end.

    token: what the store wants to hear for the next page; None after the last one. versions: of the
    files of a store that supplies them. skipped: how many names were left out, by the reason.
    """

    names: list[str]
    token: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)


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
    choose: Choice | None = None,
    after: str = "",
    skipped: Counter[str] | None = None,
) -> Iterator[File]:
    """Yields the files below a folder, in the order of their paths.

    choose: which files and folders to visit; by default all. after: a path below the folder; only
    files behind it are listed. skipped: counts the names that cannot be visited, by the reason.
    """
    if is_chain(url):
        raise UserError(f"{url} is a chain of file systems; use a plain URL or folder.")
    pool = ThreadPoolExecutor(AHEAD)
    try:
        walk = _Walk(pool, choose, Counter() if skipped is None else skipped)
        yield from walk.below(url, _page(url, after), after)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _Walk:
    """Visits folders; their first pages come from a pool of threads."""

    pool: ThreadPoolExecutor
    choose: Choice | None
    skipped: Counter[str]

    def below(self, url: str, page: Page | None, after: str, depth: int = 0) -> Iterator[File]:
        """Yields the files behind ``after``, a path below the folder. page: its first one."""
        while page is not None:
            self.skipped.update(page.skipped)
            names = self._chosen(url, page.names, after)
            if depth == DEEPEST:
                files = [name for name in names if not name.endswith("/")]
                self.skipped["nested too deeply"] += len(names) - len(files)
                names = files
            for name, future in self._fetched(url, names, after):
                # Keeps the user's spelling of the URL: a file system may have other names.
                below = join(url, name)
                if future is None:
                    yield File(below, page.versions.get(name) or local_version(below))
                else:
                    rest = _rest(after, name)
                    yield from self.below(below.rstrip("/"), future.result(), rest, depth + 1)
            page = _page(url, after, page.token) if page.token else None

    def _chosen(self, url: str, names: list[str], after: str) -> list[str]:
        behind = [name for name in names if name > after or _rest(after, name)]
        if self.choose is None:
            return behind
        chosen = {*self.choose(url, [name.rstrip("/") for name in names])}
        return [name for name in behind if name.rstrip("/") in chosen]

    def _fetched(
        self, url: str, names: list[str], after: str
    ) -> Iterator[tuple[str, Future[Page] | None]]:
        """Yields each name, with the first page of a folder; fetches those of the next ones."""
        waiting: deque[tuple[str, Future[Page] | None]] = deque()
        fetching = 0
        for name in names:
            future = None
            if name.endswith("/"):
                future = self.pool.submit(_page, join(url, name).rstrip("/"), _rest(after, name))
                fetching += 1
            waiting.append((name, future))
            while fetching > AHEAD or (waiting and waiting[0][1] is None):
                fetching -= waiting[0][1] is not None
                yield waiting.popleft()
        yield from waiting


def _rest(after: str, folder: str) -> str:
    """Returns the part of a path that is below a folder, whose name ends in a slash."""
    return after.removeprefix(folder) if folder[-1] == "/" and after.startswith(folder) else ""


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
    skipped: Counter[str] = Counter()
    names = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if _is_circle(path, entry):
                    skipped["in a circle of links"] += 1
                else:
                    names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        skipped["nested too deeply"] += 1
    return Page(sorted(names), skipped=skipped)


def _is_circle(path: str, entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a link that leads to itself, or to a folder on the way to it."""
    if not entry.is_symlink():
        return False
    try:
        if not entry.is_dir():
            return False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return True
    target = os.path.join(os.path.realpath(entry.path), "")
    folder = Path(os.path.abspath(path))
    way = (os.path.join(os.path.realpath(each), "") for each in (folder, *folder.parents))
    return any(each.startswith(target) for each in way)


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
