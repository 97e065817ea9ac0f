"""The viewer over real HTTP, on a finished run whose images exist."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq

from sparc_dist import storage
from sparc_dist.datasets.images import write_images
from sparc_dist.report import write_report
from sparc_dist.report.view.server import ViewServer
from sparc_dist.report.view.site import Site
from sparc_dist.runs import RunLayout, UnitLayout
from sparc_dist.runs.shards import ERRORS
from tests.support.answer import Answer
from tests.support.golden_unit import (
    BROKEN,
    CLASSES,
    IMAGES,
    SHARD,
    golden_prompts,
    write_unit,
)
from tests.support.pictures import encoded, picture

#: The review of a class.
REVIEW = f"/review/voc/tiny/{CLASSES.index('person')}"


def write_viewed(root: Path, uris: Mapping[int, str] | None = None) -> Path:
    """Writes the golden unit, whose images are small JPEGs but for those with other URIs."""
    write_unit(root)
    photos = root.parent / "photos"
    photos.mkdir()
    table = pq.read_table(root / "voc" / "images.parquet")
    places = []
    for number, image_id in enumerate(table["image_id"].to_pylist()):
        path = photos / f"{image_id}.jpg"
        path.write_bytes(encoded(picture(number), "JPEG"))
        places.append((uris or {}).get(number, str(path)))
    replace_images(root, table.set_column(1, "uri", pa.array(places)))
    return photos


def replace_images(root: Path, table: pa.Table) -> None:
    write_images([table], RunLayout(str(root)).dataset("voc"), SHARD)


def write_error(root: Path, reason: str, limit: float | None) -> None:
    """Lets the image without scores be one that could not be read.

    limit: max_error_share; None: the run has not ended so far.
    """
    unit, uri = unit_of(root), "/photos/broken.jpg"
    error = {"image_id": BROKEN, "uri": uri, "error": reason, "passing": False}
    storage.write_table(unit.errors(17), pa.Table.from_pylist([error], schema=ERRORS))
    errors = {"images": 1, "share": 1 / (IMAGES + 1), "reasons": {reason: 1}}
    storage.write_json(unit.metrics, storage.read_json(unit.metrics) | {"errors": errors})
    run = RunLayout(str(root)).run
    done = {"dataset": "voc", "backbone": "tiny", "status": "done", "max_error_share": limit}
    units = [done] if limit is not None else []
    storage.write_json(run, storage.read_json(run) | {"units": units})


def write_viewed_report(root: Path) -> None:
    """Writes the report of the run, which needs its prompts."""
    storage.write_table(RunLayout(str(root)).dataset("voc").prompts, golden_prompts())
    write_report(str(root))


@dataclass(frozen=True)
class Client:
    """Someone who has the cookie, or anything else in its headers."""

    server: ViewServer

    @property
    def own_headers(self) -> dict[str, str]:
        return {"Cookie": f"{self.server.cookie}={self.server.token}"}

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", path, self.own_headers if headers is None else headers)

    def post(self, path: str, headers: Mapping[str, str] | None = None, /, **form: str) -> Answer:
        fields = {"key": self.server.site.key, **form}
        own = self.own_headers | {"Origin": self.origin} if headers is None else headers
        return self.ask("POST", path, own, urlencode(fields))

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: str | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()


@contextmanager
def viewing(root: str | Path) -> Iterator[Client]:
    """Serves a run until the block ends."""
    with ViewServer(Site(str(root))) as server:
        yield Client(server)


def unit_of(run: Path) -> UnitLayout:
    """The layout of the golden unit."""
    return RunLayout(str(run)).dataset("voc").unit("tiny")


def question(client: Client) -> str:
    """Returns the id of the image that the review asks about; nothing at its end."""
    found = re.search(r'name="image" value="(.*?)"', client.get(REVIEW).text)
    return found[1] if found else ""
