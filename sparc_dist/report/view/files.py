"""Files of the report and of the viewer; pages of the report get a bar that leads to the viewer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import PurePosixPath

from fsspec.implementations.local import LocalFileSystem

from sparc_dist import storage
from sparc_dist.report.view.response import HTML, Response, not_found

#: What a report consists of, by suffix. Other files are not served.
TYPES = {
    ".html": HTML,
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".csv": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
#: The pages of a report carry their style with them; scripts come from files only.
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"


#: The viewer's own files, by the package and the folder in which they are.
OWN = {
    "style.css": ("sparc_dist.report", "templates"),
    "report.js": ("sparc_dist.report", "templates"),
    "keys.js": ("sparc_dist.report.view", "static"),
    "icon.svg": ("sparc_dist.report.view", "static"),
}
#: Before this, a page gets the bar. Text cannot contain it: every "<" in a name is escaped.
BAR = b"</header>"


def report_file(folder: str, names: Sequence[str], bar: Callable[[], bytes]) -> Response:
    """Returns a file below the folder of a report, which names say one by one.

    The names hold no separator, so they cannot leave the folder; a link on a local disk could.
    bar: returns what pages get besides; the stored report has no such links, for they lead nowhere
    without the viewer.
    """
    path = PurePosixPath(*names)
    url = storage.join(folder, *path.parts)
    if path.suffix not in TYPES or _leaves(url, folder):
        raise not_found("The report has no such file.")
    try:
        content = storage.read_bytes(url)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        raise not_found(
            "The report has no such file; `sparc-dist report RUN` writes the report."
        ) from None
    if path.suffix == ".html" and BAR in content:
        content = content.replace(BAR, bar() + BAR, 1)
    return Response(content, TYPES[path.suffix], policy=POLICY)


def own_file(name: str) -> Response:
    """Returns a file of the viewer: the style that the report has, too, or a script."""
    if name not in OWN:
        raise not_found("There is no such file.")
    package, folder = OWN[name]
    content = files(package).joinpath(folder, name).read_bytes()
    return Response(content, TYPES[PurePosixPath(name).suffix])


def _leaves(url: str, folder: str) -> bool:
    """Whether a local file is outside of a folder once links are followed."""
    fs, path = storage.resolve(url)
    if not isinstance(fs, LocalFileSystem):
        return False
    root = os.path.realpath(storage.resolve(folder)[1])
    return os.path.commonpath([root, os.path.realpath(path)]) != root
