"""The service for real: the command, Ray Serve on loopback, HTTP."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sparc_dist.serving import Labeler
from tests.conftest import FEW
from tests.support.bomb import blank, jpeg_2000, scans, webp
from tests.support.malformed import boastful, flipped, nothing, truncated
from tests.support.pictures import encoded, whole
from tests.support.service import TOKEN, Service, processes_below, service
from tests.support.waiting import until
from tests.support.web import web_server

pytestmark = [pytest.mark.ray, pytest.mark.slow]

#: Low, so that tests reach them.
LIMITS = {
    "SPARC_MAX_BYTES": "2000000",
    "SPARC_MAX_IMAGES": "3",
    "SPARC_MAX_PIXELS": "1000000",
    "SPARC_MAX_ONGOING": "4",
    "SPARC_MAX_WAITING": "4",
}


@pytest.fixture(scope="module")
def running(labeler_file: Path) -> Iterator[Service]:
    with service(labeler_file, **LIMITS) as found:
        yield found


@pytest.fixture(scope="module")
def photos(scenes: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(scenes.iterdir())[:3]]


def test_it_says_where_it_is(running: Service, labeler_file: Path) -> None:
    assert running.lines[0] == f"Starting the service of {labeler_file} …\n"
    assert f"answers at http://127.0.0.1:{running.port}/v1/label" in running.lines[1]


def test_it_labels_as_the_labeler_does(
    running: Service, photos: list[bytes], labeler_file: Path
) -> None:
    expected = Labeler.load(labeler_file)(photos[0])
    answer = running.label(photos[0])
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    (image,) = answer.json["images"]
    assert (image["name"], image["labels"], image["error"]) == ("image", expected.labels, None)
    # Another number of threads may sum in another order.
    for name in ("scores", "probabilities"):
        assert image[name] == pytest.approx(vars(expected)[name], abs=1e-5)
    assert [[text for text, _ in reasons] for reasons in image["because"].values()] == [
        [text for text, _ in reasons] for reasons in expected.because.values()
    ]


def test_it_labels_several_in_order(running: Service, photos: list[bytes]) -> None:
    alone = [running.label(photo).json["images"][0] for photo in photos]
    images = running.label(*photos).json["images"]
    assert [image["name"] for image in images] == ["0.jpg", "1.jpg", "2.jpg"]
    assert [image["labels"] for image in images] == [image["labels"] for image in alone]


def test_among_several_a_bad_one_has_its_reason(running: Service, photos: list[bytes]) -> None:
    answer = running.label(photos[0], b"no image")
    first, second = answer.json["images"]
    assert (answer.status, first["error"]) == (200, None)
    assert second["error"] == "not an image in a known format"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "image: the file is empty"),
        (b"http://example.org/cat.jpg", "image: not an image in a known format"),
        (encoded(Image.new("RGB", (64, 64)), "JPEG")[:300], "image: cannot be decoded: "),
        (encoded(Image.new("1", (2000, 501)), "PNG"), "more than 1,000,000"),
    ],
)
def test_what_is_no_image_is_answered_with_422(running: Service, body: bytes, reason: str) -> None:
    answer = running.label(body)
    assert answer.status == 422
    assert reason in answer.json["detail"]


def test_what_is_too_much_is_refused(running: Service, photos: list[bytes]) -> None:
    assert running.label(bytes(2_000_001)).status == 413
    assert running.ask("/v1/label", iter([bytes(1_000_000)] * 3)).status == 413  # no length given
    assert running.label(*photos, photos[0]).status == 400
    assert "Maximum number of files is 3" in running.label(*photos, photos[0]).json["detail"]
    broken = {"Content-Type": "multipart/form-data; boundary=edge"}
    assert running.ask("/v1/label", b"--edge\r\nx", broken).status in (400, 422)
    assert running.form({}).status == 422


def test_the_token_is_needed(running: Service, photos: list[bytes]) -> None:
    for token in (None, "", "wrong", TOKEN[:-1], f"{TOKEN}x", "ü"):
        for path, body in (("/v1/label", photos[0]), ("/v1/classes", None), ("/metrics", None)):
            answer = running.ask(path, body, token=token and token.encode().decode("latin-1"))
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert TOKEN not in str(answer)
    assert running.ask("/healthz", token=None).json == {"status": "ok"}


def test_it_tells_its_classes_its_counters_and_its_form(running: Service) -> None:
    classes = running.ask("/v1/classes").json
    assert classes == {"classes": FEW, "method": "duo", "fitted_on": 60}
    metrics = running.ask("/metrics").body.decode()
    for name in ('requests_total{code="200"}', 'images_total{outcome="labelled"}', "seconds_sum"):
        assert f"\nsparc_{name} " in metrics
    page = running.ask("/docs", token=None).body.decode()
    assert "POST /v1/label" in page
    assert "503: the service is full; try again after Retry-After" in page
    assert "http" not in page  # nothing comes from elsewhere
    paths = running.ask("/openapi.json", token=None).json["paths"]
    assert {*paths} == {"/v1/label", "/v1/classes", "/healthz", "/metrics"}
    assert {*paths["/v1/label"]["post"]["responses"]} >= {"200", "401", "413", "422", "503"}


def test_no_url_is_ever_fetched(running: Service, photos: list[bytes]) -> None:
    with web_server() as web:
        web.files["/cat.jpg"] = photos[0]
        url = f"{web.place}/cat.jpg"
        kind = {"Content-Type": "application/json"}
        answers = [
            running.label(url.encode()),
            running.ask("/v1/label", json.dumps({"url": url}).encode(), kind),
            running.ask(f"/v1/label?url={url}", b"{}", kind),
            running.form({url: url.encode()}),
            running.form({}, {"url": url}),
            running.label(f'<svg><image href="{url}"/></svg>'.encode()),
        ]
        assert {answer.status for answer in answers} <= {400, 422}
        assert not web.asked


def test_an_overfull_queue_is_answered_with_503(running: Service, photos: list[bytes]) -> None:
    with ThreadPoolExecutor(64) as clients:
        answers = [*clients.map(lambda _: running.label(*photos), range(192))]
    found = Counter(answer.status for answer in answers)
    assert {*found} == {200, 503}, found
    refused = next(answer for answer in answers if answer.status == 503)
    assert refused.headers["retry-after"] == "1"
    assert running.label(photos[0]).status == 200


def test_malformed_bodies_change_nothing(running: Service, photos: list[bytes]) -> None:
    goods = whole()
    groups = (truncated, flipped, nothing, boastful)
    bodies = [content for group in groups for _, content in group(goods)]
    assert len(bodies) > 400
    before = running.label(*photos).json
    with ThreadPoolExecutor(4) as clients:
        found = Counter(answer.status for answer in clients.map(running.label, bodies))
    assert {*found} <= {200, 413, 422}, found
    assert found[422] > len(bodies) / 2
    assert running.label(*photos).json == before


def test_bombs_keep_nobody_waiting(running: Service, photos: list[bytes]) -> None:
    bombs = [scans(3000, 1000), webp(), jpeg_2000(), blank("TIFF", "L", 1000) + bytes(1_000_000)]
    with ThreadPoolExecutor(4) as clients:
        answers = clients.map(running.label, bombs * 3)
        start = time.monotonic()
        assert running.label(photos[0]).status == 200
        assert time.monotonic() - start < 10  # while all others are at work
        found = [answer.status for answer in answers]
    assert {*found} <= {200, 422, 503}
    assert "has more than 100 scans" in running.label(bombs[0]).json["detail"]


def test_a_killed_replica_costs_its_requests_only(running: Service, photos: list[bytes]) -> None:
    (killed,) = running.replicas()
    before = running.label(*photos).json
    outcomes: list[Any] = []

    def client(_: int) -> None:
        for _ in range(30):
            try:
                outcomes.append(running.label(photos[0]).status)
            except (OSError, HTTPException) as error:
                outcomes.append(type(error).__name__)
            if len(outcomes) == 40:
                os.kill(killed, signal.SIGKILL)

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(client, range(4)))
    lost = [outcome for outcome in outcomes if outcome not in (200, 503)]
    assert len(lost) <= int(LIMITS["SPARC_MAX_ONGOING"]), Counter(outcomes)
    assert until(lambda: running.label(*photos).status == 200, 120)
    assert running.label(*photos).json == before
    assert running.replicas() != [killed]


def test_its_ray_listens_on_loopback_only(running: Service) -> None:
    """What /proc says about the sockets of all its processes."""
    inodes = set()
    for pid in (running.process.pid, *processes_below(running.process.pid)):
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):  # it has been closed
                inodes.add(os.readlink(link))
    listening = [
        row[1]
        for table in ("tcp", "tcp6")
        for row in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if row[3] == "0A" and f"socket:[{row[9]}]" in inodes
    ]
    assert listening
    # 127.0.0.1, also as an address of IPv6
    assert {address.partition(":")[0][-8:] for address in listening} == {"0100007F"}, listening
