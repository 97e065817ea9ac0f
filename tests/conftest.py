"""One real Ray for each process of the test run, and small inputs of every kind."""

from __future__ import annotations

import os

# Read when NumPy and torch are imported: the tests run in several processes on few cores.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Threads that wait for others do not take a core from the other process meanwhile.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import yaml
from hypothesis import settings

from sparc_dist.demo.objects import CLASSES
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.pipeline import configure_ray
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from tests.support.memory_s3 import MemoryS3, memory_s3
from tests.support.running import go
from tests.support.s3 import FaultProxy, S3Server, fault_proxy, s3_server

# A busy machine must not fail a test: no example has a time limit.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
configure_ray()  # before any test imports Ray
os.environ["SPARC_CACHE"] = mkdtemp(prefix="sparc-cache-")  # the user's own is of no business
# As a backbone sets it: before any test computes with torch.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# In the background of a shell SIGINT is ignored, by the commands that tests start as well; tests of
# Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Few classes, so that a run is quick.
FEW = ["cat", "dog", "car", "pizza", "sofa"]
#: A store that stalls should not hold up the tests for a minute.
QUICK = {"SPARC_STORAGE_TIMEOUT": "4"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests that use the Ray or the S3 server of this file."""
    for fixture, mark in (("started", "ray"), ("s3", "s3"), ("conditional_s3", "s3")):
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker(mark)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts files with slow tests first: none of them is left for one process at the end."""
    weight: Counter[Path] = Counter()
    for item in items:
        weight[item.path] += {"slow": 20, "ray": 4, "s3": 2}.get(next(_marks(item), ""), 0)
    items.sort(key=lambda item: -weight[item.path])


def _marks(item: pytest.Item) -> Iterator[str]:
    return (mark for mark in ("slow", "ray", "s3") if item.get_closest_marker(mark))


@pytest.fixture(scope="session")
def s3(
    tmp_path_factory: pytest.TempPathFactory, scenes: Path, truth: dict[str, list[str]]
) -> Iterator[S3Server]:
    """A real S3 server; in the bucket "photos" the scenes with a manifest, "runs" is empty."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "runs").mkdir()
    shutil.copytree(scenes, folder / "photos" / "scenes")
    rows = [f"scenes/{name},{name},{';'.join(labels)}" for name, labels in truth.items()]
    table = folder / "photos" / "manifest.csv"
    table.write_text("\n".join(["uri,image_id,labels", *rows, ""]))
    with s3_server(folder) as server:
        yield server


@pytest.fixture(scope="session")
def way_to_s3(s3: S3Server) -> Iterator[FaultProxy]:
    """A proxy before that server: rclone alone is not atomic as S3 is."""
    with fault_proxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def on_s3(
    s3: S3Server, way_to_s3: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    """This process reaches S3 as the workers of the tests' Ray do, through what a test spoils."""
    for name, value in {**s3.environment(way_to_s3.endpoint), **QUICK}.items():
        monkeypatch.setenv(name, value)
    way_to_s3.log.clear()
    way_to_s3.injected.clear()
    yield way_to_s3
    way_to_s3.behave()


@pytest.fixture(scope="session")
def conditional_s3() -> Iterator[MemoryS3]:
    """An S3 server that keeps the conditions of conditional writes."""
    with memory_s3() as server:
        yield server


@pytest.fixture
def on_conditional_s3(
    conditional_s3: MemoryS3, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    """This process reaches that server, and those that it starts."""
    for name, value in {**conditional_s3.environment(), **QUICK}.items():
        monkeypatch.setenv(name, value)
    conditional_s3.log.clear()
    yield conditional_s3
    conditional_s3.behave()


@pytest.fixture(scope="session")
def started(s3: S3Server, way_to_s3: FaultProxy) -> Iterator[str]:
    """A small Ray with two logical GPUs, so that the GPU's ways are gone too; its address.

    Its workers have the S3 server and its keys in their environment.
    """
    import ray

    env = {**s3.environment(way_to_s3.endpoint), **QUICK}
    os.environ.update(env)
    context = ray.init(
        "local",
        num_cpus=4,
        num_gpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=512 * 2**20,
    )
    for name in env:  # of no other test's business
        del os.environ[name]
    yield context.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture
def cluster(started: str) -> Iterator[str]:
    """Work is done on that Ray; its address."""
    from sparc_dist.pipeline.on_ray import OnRay

    with using(OnRay()):
        yield started


@pytest.fixture(autouse=True)
def light(request: pytest.FixtureRequest) -> Iterator[None]:
    """Work is done in this process, except in tests that use ``cluster``.

    Otherwise a Ray that an earlier test started would be joined, with a model on each of its CPUs.
    """
    with nullcontext() if "cluster" in request.fixturenames else using(InProcess()):
        yield


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 drawn scenes as JPEGs."""
    folder = tmp_path_factory.mktemp("scenes")
    for seed in SPLITS["validation"][:60]:
        draw_scene(seed).image.save(folder / f"{seed}.jpg", quality=90)
    return folder


@pytest.fixture(scope="session")
def truth() -> dict[str, list[str]]:
    """The names of the classes in each of those scenes."""
    return {
        f"{seed}.jpg": [CLASSES[index] for index in draw_scene(seed).labels]
        for seed in SPLITS["validation"][:60]
    }


@pytest.fixture
def write_config(tmp_path: Path, scenes: Path) -> Callable[..., str]:
    """Writes a config over the scenes, with changes; gives its path."""

    def write(dataset: dict[str, Any] | None = None, **changes: Any) -> str:
        config = {
            "output": "run",
            "shard_size": 16,
            "datasets": [
                {
                    "name": "scenes",
                    "kind": "folder",
                    "images": str(scenes),
                    "classes": list(CLASSES),
                    **(dataset or {}),
                }
            ],
            "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
            # Each scorer takes seconds to start, and so does what follows a task with a GPU; a
            # test that is about several or about GPUs asks for them.
            "resources": {"scorers": 1, "gpus_per_scorer": 0},
            **changes,
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return write


@pytest.fixture(scope="session")
def original(
    tmp_path_factory: pytest.TempPathFactory,
    scenes: Path,
    truth: dict[str, list[str]],
) -> Path:
    """The folder of a finished run with labels, and its config."""
    folder = tmp_path_factory.mktemp("finished")
    rows = [f"{scenes / name},{name},{';'.join(labels)}" for name, labels in truth.items()]
    (folder / "manifest.csv").write_text("\n".join(["uri,image_id,labels", *rows, ""]))
    dataset = {
        "name": "scenes",
        "kind": "manifest",
        "images": str(folder / "manifest.csv"),
        "classes": FEW,
    }
    config = {
        "output": "run",
        "shard_size": 10,
        "datasets": [dataset],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "resources": {"scorers": 1, "gpus_per_scorer": 0},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    with using(InProcess()):
        assert not go(folder).failures
    return folder


@pytest.fixture
def finished(original: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil; ``output`` is no part of what a run is."""
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy"
