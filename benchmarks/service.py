"""What the service costs beside the model that it serves.

Starts the service with the bundled model on loopback and sends it requests, some at a time.
Compares latency and images/s with bare loops of the same labeler in this process: a forward alone,
and decoding and labelling. The client shares the cores with the service.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import aiohttp
import numpy as np

from made_up import write_config
from measuring import free_port, option, options_of, report
from sparc_dist.backbones.devices import pick_device
from sparc_dist.config import load_config
from sparc_dist.demo.objects import CLASSES
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.runner import run
from sparc_dist.serving import Labeler
from sparc_dist.serving.settings import ServiceSettings, configure_serve

SCENES = 64  # on which the labeler is fitted
BATCH = 32  # images of the bare loops, and of a request with several
CONCURRENCIES = (1, 8, 32)
OVERLOADED = 503


@dataclass(frozen=True)
class Options:
    """The options."""

    seconds: float = option(8.0, "of each load")
    repeats: int = option(50, "of the bare loops; medians count")


@dataclass
class Load:
    """What became of the requests of a load. times: seconds of each that was answered with 200."""

    times: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.times) / self.seconds

    def percentile(self, percent: int) -> float:
        """Returns a percentile of the times, in milliseconds."""
        return 1e3 * quantiles(self.times, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True)
class BareLoops:
    """one: milliseconds of a forward of one image. forward, label: images/s in batches."""

    one: float
    forward: float
    label: float

    @classmethod
    def of(cls, labeler: Labeler, bodies: Sequence[bytes], repeats: int) -> BareLoops:
        """Measures the loops."""
        squares = np.stack([labeler.square(body) for body in bodies])

        def label() -> None:
            labeler.label(np.stack([labeler.square(body) for body in bodies]))

        return cls(
            1e3 * _seconds(lambda: labeler.embed(squares[:1]), 4 * repeats),
            len(bodies) / _seconds(lambda: labeler.embed(squares), repeats),
            len(bodies) / _seconds(label, repeats),
        )


def main() -> None:
    """Measures the bare loops, and then the service under load."""
    options = options_of(Options, __doc__)
    configure_serve()
    from sparc_dist.serving.service import served  # reads what was configured

    with TemporaryDirectory() as folder:
        scenes = _scenes(Path(folder, "scenes"))
        settings = ServiceSettings(labeler=_fit(Path(folder)))
        bodies = [path.read_bytes() for path in scenes[:BATCH]]
        pick_device(0, settings.threads_each)
        bare = BareLoops.of(Labeler.load(settings.labeler), bodies, options.repeats)
        with served(settings, "127.0.0.1", free_port()) as url:
            _load(url, bodies, 4, options.seconds / 4)  # warm-up
            loads = {n: _load(url, bodies, n, options.seconds) for n in CONCURRENCIES}
            several = _load(url, bodies, CONCURRENCIES[-1], options.seconds, BATCH)
    report(
        f"service of the bundled model with {len(CLASSES)} classes, one replica with "
        f"{settings.threads_each} thread(s) on {os.cpu_count()} CPUs that the client shares",
        _figures(bare, loads, several),
    )


def _figures(bare: BareLoops, loads: dict[int, Load], several: Load) -> dict[str, str]:
    """Returns the ratios to the bare loops, and the figures of all loads."""
    alone, most = loads[CONCURRENCIES[0]], loads[CONCURRENCIES[-1]]
    rates = {"one image": most.rate, f"{BATCH} images": BATCH * several.rate}
    figures = {"p50 of a request alone / bare forward": f"{alone.percentile(50) / bare.one:.3g}"}
    for words, rate in rates.items():
        figures |= {
            f"images/s, {words} each / bare forward": f"{rate / bare.forward:.3g}",
            f"images/s, {words} each / bare decode and label": f"{rate / bare.label:.3g}",
        }
    figures |= {
        "ms, bare forward of one image": f"{bare.one:.2f}",
        "images/s, bare forward in batches": f"{bare.forward:.0f}",
        "images/s, bare decode and label in batches": f"{bare.label:.0f}",
    }
    for concurrency, load in loads.items():
        figures[f"requests/s at concurrency {concurrency}"] = f"{load.rate:.0f}"
        for percent in (50, 95, 99):
            name = f"ms, p{percent} at concurrency {concurrency}"
            figures[name] = f"{load.percentile(percent):.1f}"
    return figures


def _scenes(folder: Path) -> list[Path]:
    """Draws the scenes; returns their paths."""
    folder.mkdir()
    paths = [folder / f"{seed}.jpg" for seed in SPLITS["validation"][:SCENES]]
    for path in paths:
        draw_scene(int(path.stem)).image.save(path, quality=90)
    return paths


def _fit(folder: Path) -> str:
    """Fits a labeler on the scenes, in this process; returns its run."""
    dataset = {"kind": "folder", "images": str(folder / "scenes"), "classes": CLASSES}
    light = {"executor": "process"}
    config = load_config(str(write_config(folder / "run.yaml", dataset, resources=light)))
    run(config)
    return config.output


def _seconds(work: Callable[[], object], repeats: int) -> float:
    """Returns the median of the seconds that work takes, after a warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def _load(
    url: str, bodies: Sequence[bytes], concurrency: int, seconds: float, images: int = 1
) -> Load:
    """Sends requests for some seconds, so many at once and with so many images each."""
    return asyncio.run(_send(f"{url}/v1/label", bodies, concurrency, seconds, images))


async def _send(
    url: str, bodies: Sequence[bytes], concurrency: int, seconds: float, images: int
) -> Load:
    load, start = Load(), time.perf_counter()
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def client(number: int) -> None:
            sent = islice(cycle(bodies), number, None)
            while time.perf_counter() < start + seconds:
                await _ask(session, url, list(islice(sent, images)), load)

        await asyncio.gather(*map(client, range(concurrency)))
    load.seconds = time.perf_counter() - start
    return load


async def _ask(
    session: aiohttp.ClientSession, url: str, contents: Sequence[bytes], load: Load
) -> None:
    """Sends one request; notes its time if it is answered, and waits if the queue is full."""
    data: bytes | aiohttp.FormData = contents[0]
    if len(contents) > 1:
        data = aiohttp.FormData()
        for content in contents:
            data.add_field("images", content, filename="image.jpg")
    start = time.perf_counter()
    async with session.post(url, data=data) as response:
        await response.read()
        if response.status == OVERLOADED:
            await asyncio.sleep(float(response.headers["Retry-After"]))
        else:
            response.raise_for_status()
            load.times.append(time.perf_counter() - start)


if __name__ == "__main__":
    main()
