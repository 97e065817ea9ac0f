"""The service under load, compared with bare loops of its model in the same run."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import aiohttp
import numpy as np

from sparc_dist.backbones.devices import pick_device
from sparc_dist.bench.inputs import photos
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import TINY, Config
from sparc_dist.demo.objects import CLASSES
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.runner import run
from sparc_dist.serving import Labeler
from sparc_dist.serving.environment import configure_serve
from sparc_dist.serving.settings import ServiceSettings

SCENES = 64  # on which the labeler is fitted, and which are sent
BATCH = 32  # images of the bare loop, as of the service
SEVERAL = 32  # images of a request with several
WELL_SECONDS = 120.0  # the longest that a killed replica may take to come back
OVERLOADED = 503


@dataclass(frozen=True)
class Sizes:
    """concurrencies: of the client, the last of them the highest. seconds: of each load."""

    concurrencies: Sequence[int]
    seconds: float
    repeats: int


FULL = Sizes((1, 8, 32), 8.0, 50)
QUICK = Sizes((1, 4), 0.5, 2)


@dataclass
class Load:
    """What became of the requests of a load. times: seconds of each that was answered with 200."""

    times: list[float] = field(default_factory=list)
    statuses: Counter[int | str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.times) / self.seconds

    def percentile(self, percent: int) -> float:
        """Returns a percentile of the times, in milliseconds."""
        return 1e3 * quantiles(self.times, n=100, method="inclusive")[percent - 1]

    @property
    def lost(self) -> int:
        """The requests that were neither answered nor refused because the queue was full."""
        return sum(n for status, n in self.statuses.items() if status not in (200, OVERLOADED))


def measure(setting: BenchSetting) -> str:
    """Measures the bare loops, then the service under load, then with a replica killed."""
    sizes = QUICK if setting.quick else FULL
    configure_serve()
    from sparc_dist.serving.local import served

    with TemporaryDirectory() as folder:
        settings = ServiceSettings(_fit(Path(folder)))
        files = photos(setting, BATCH, folder) if setting.photos else _scenes(Path(folder))
        bodies = [Path(file).read_bytes() for file in islice(cycle(files), BATCH)]
        pick_device(0, settings.threads_each)
        bare = _bare_loops(Labeler.load(settings.labeler), bodies, sizes.repeats)
        with served(settings, "127.0.0.1", _free_port()) as url:
            _load(url, bodies, 4, sizes.seconds / 4)  # warm-up
            loads = {n: _load(url, bodies, n, sizes.seconds) for n in sizes.concurrencies}
            most = sizes.concurrencies[-1]
            several = _load(url, bodies, most, sizes.seconds, SEVERAL)
            killed, well = _killed(url, bodies, most, sizes.seconds)
    ends = {
        f"requests lost with a killed replica (goal: at most {most})": str(killed.lost),
        "seconds until it is well again": f"{well:.1f}",
    }
    return block(_title(settings, sizes, bodies), _figures(bare, loads, several) | ends)


def _figures(bare: dict[str, float], loads: dict[int, Load], several: Load) -> dict[str, str]:
    """Returns the figures of all loads, and their ratios to the bare loops."""
    (first, *_, last), most = loads.values(), max(loads)
    rates = {"one image": last.rate, f"{SEVERAL} images": SEVERAL * several.rate}
    figures = {
        "ms, bare forward of one image": f"{1e3 * bare['one']:.2f}",
        "ms, p50 at concurrency 1 beyond it (goal: 15)": (
            f"{first.percentile(50) - 1e3 * bare['one']:.2f}"
        ),
        "images/s, bare forward in batches": f"{bare['forward']:.0f}",
        "images/s, bare decode and label in batches": f"{bare['whole']:.0f}",
        **dict(_of_loads(loads)),
        f"images/s at concurrency {most}, {SEVERAL} images each": f"{SEVERAL * several.rate:.0f}",
    }
    for words, rate in rates.items():
        figures |= {
            f"images/s, {words} each / bare forward (goal: 0.8)": f"{rate / bare['forward']:.2f}",
            f"images/s, {words} each / bare decode and label": f"{rate / bare['whole']:.2f}",
        }
    return figures


def _title(settings: ServiceSettings, sizes: Sizes, bodies: Sequence[bytes]) -> str:
    kilobytes = sum(map(len, bodies)) / len(bodies) / 1e3
    return (
        f"service of {TINY} with {len(CLASSES)} classes and JPEGs of {kilobytes:.1f} KB, one "
        f"replica with {settings.threads_each} thread(s) on {os.cpu_count()} CPUs that the client "
        f"shares, {sizes.seconds:g} s each, compared with bare loops of its model"
    )


def _of_loads(loads: dict[int, Load]) -> Iterator[tuple[str, str]]:
    for concurrency, load in loads.items():
        yield f"requests/s at concurrency {concurrency}", f"{load.rate:.0f}"
        for percent in (50, 95, 99):
            name = f"ms, p{percent} at concurrency {concurrency}"
            yield name, f"{load.percentile(percent):.1f}"


def _scenes(folder: Path) -> list[str]:
    """Draws the scenes; returns their paths."""
    (folder / "scenes").mkdir(exist_ok=True)
    paths = [folder / "scenes" / f"{seed}.jpg" for seed in SPLITS["validation"][:SCENES]]
    for path in paths:
        if not path.exists():
            draw_scene(int(path.stem)).image.save(path, quality=90)
    return list(map(str, paths))


def _fit(folder: Path) -> str:
    """Fits a labeler on the scenes, in this process; returns its run."""
    _scenes(folder)
    dataset = {"name": "scenes", "kind": "folder", "images": str(folder / "scenes")}
    config = Config.model_validate(
        {
            "output": str(folder / "run"),
            "datasets": [{**dataset, "classes": CLASSES}],
            "backbones": [{"name": "tiny", "model": TINY}],
            "resources": {"executor": "process"},
        }
    )
    run(config)
    return config.output


def _bare_loops(labeler: Labeler, bodies: Sequence[bytes], repeats: int) -> dict[str, float]:
    """Returns seconds of a forward of one image, and images/s of both loops in batches."""
    squares = np.stack([labeler.square(body) for body in bodies])
    batch = len(bodies)

    def whole() -> None:
        labeler.label(np.stack([labeler.square(body) for body in bodies]))

    return {
        "one": _seconds(lambda: labeler.embed(squares[:1]), 4 * repeats),
        "forward": batch / _seconds(lambda: labeler.embed(squares), repeats),
        "whole": batch / _seconds(whole, repeats),
    }


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
    return asyncio.run(_send(url, bodies, concurrency, time.perf_counter() + seconds, images))


async def _send(
    url: str, bodies: Sequence[bytes], concurrency: int, end: float, images: int = 1
) -> Load:
    load, start = Load(), time.perf_counter()
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def client(number: int) -> None:
            sent = islice(cycle(bodies), number, None)
            while time.perf_counter() < end:
                await _ask(session, f"{url}/v1/label", list(islice(sent, images)), load)

        await asyncio.gather(*map(client, range(concurrency)))
    load.seconds = time.perf_counter() - start
    return load


async def _ask(
    session: aiohttp.ClientSession, url: str, contents: Sequence[bytes], load: Load
) -> None:
    data: bytes | aiohttp.FormData = contents[0]
    if len(contents) > 1:
        data = aiohttp.FormData()
        for content in contents:
            data.add_field("images", content, filename="image.jpg")
    start, status = time.perf_counter(), "closed"
    try:
        async with session.post(url, data=data) as response:
            await response.read()
            load.statuses[response.status] += 1
            if response.status == OVERLOADED:
                await asyncio.sleep(float(response.headers["Retry-After"]))
            elif response.status == 200:
                load.times.append(time.perf_counter() - start)
    except aiohttp.ClientError:
        load.statuses[status] += 1


def _killed(
    url: str, bodies: Sequence[bytes], concurrency: int, seconds: float
) -> tuple[Load, float]:
    """Kills the replica under load; returns the load, and seconds until the next answer."""

    async def work() -> tuple[Load, float]:
        loads = asyncio.create_task(_send(url, bodies, concurrency, time.perf_counter() + seconds))
        await asyncio.sleep(seconds / 2)
        for pid in replicas(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        start = time.perf_counter()
        await asyncio.sleep(0.1)  # those that it was working on have ended
        async with aiohttp.ClientSession() as session:
            again = Load()
            while not again.times and time.perf_counter() - start < WELL_SECONDS:
                await _ask(session, f"{url}/v1/label", bodies[:1], again)
        return await loads, time.perf_counter() - start

    load, well = asyncio.run(work())
    return load, well


def replicas(root: int) -> list[int]:
    """Returns the replicas of Ray Serve among the processes below one."""
    return [pid for pid in processes_below(root) if b"ServeReplica" in _read(pid, "cmdline")]


def processes_below(root: int) -> Iterator[int]:
    """Yields the processes that a process has started, and those that they have."""
    for thread in os.listdir(f"/proc/{root}/task") if os.path.exists(f"/proc/{root}") else ():
        for child in map(int, _read(root, f"task/{thread}/children").split()):
            yield child
            yield from processes_below(child)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
