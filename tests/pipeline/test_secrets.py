"""Keys reach the store and the language model, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import ray

from tests.command import sparc_dist
from tests.s3 import S3Server, fault_proxy

LLM_KEY = "sk-nobody-may-read-this"


def everything(folder: Path) -> Iterator[tuple[Path, str]]:
    """The text of all files below a folder; tables are unpacked, for they are compressed."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield path, str(pq.read_table(path).to_pylist())
        elif path.is_file():
            yield path, path.read_bytes().decode(errors="replace")


@pytest.mark.parametrize("right", [True, False], ids=["right key", "wrong key"])
def test_keys_are_nowhere_in_what_a_run_leaves(
    write_config: Callable[..., str], s3: S3Server, cluster: str, right: bool
) -> None:
    dataset = {
        "images": "s3://photos/scenes",
        "classes": ["cat", "dog", "car"],
        # Nobody listens there, so that the client's complaints are searched as well.
        "prompts": {"source": "llm", "llm": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}},
    }
    name = f"secret-{right}"
    config = write_config(dataset, output=f"s3://runs/{name}")
    with fault_proxy(s3.endpoint) as proxy:
        env = s3.environment(proxy.endpoint) | {"OPENAI_API_KEY": LLM_KEY}
        if not right:
            env["AWS_SECRET_ACCESS_KEY"] = "wrong-" + s3.secret
        done = sparc_dist("--verbose", "run", config, ray=cluster, env=env)
    assert done.returncode == (0 if right else 2), done.stderr
    texts = {"stdout": done.stdout, "stderr": done.stderr, "config": Path(config).read_text()}
    texts |= {str(path): text for path, text in everything(s3.folder / "runs")}
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    texts |= {str(path): text for path, text in everything(session / "logs")}
    # What the dashboard knows of jobs: their commands and their environments.
    jobs = str(ray._private.worker.global_worker.gcs_client.get_all_job_info())
    assert (proxy.endpoint in jobs) == right  # the driver told its workers where the store is
    assert any(f"{name}/run.json" in path for path in texts) == right
    for place, text in {**texts, "jobs": jobs}.items():
        for secret in (s3.key, s3.secret, LLM_KEY):
            assert secret not in text, place


PROGRAM = """
from sparc_dist.config import ResourcesConfig
from sparc_dist.pipeline.cluster import cluster
import ray, os

with cluster(ResourcesConfig(cpus=1)):
    print(ray.get(ray.remote(os.getenv).remote("RAY_AUTH_MODE")))
    input()
"""


def test_a_ray_of_our_own_asks_for_a_token_and_listens_on_loopback_only() -> None:
    mark = uuid.uuid4().hex
    # Without what the tests' own Ray has set: as a user's shell is.
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=env | {"SPARC_TEST": mark},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        mode = process.stdout.readline()
        addresses = listening(mark)
        process.stdin.write("\n")
    assert mode == "token\n"
    assert len(addresses) >= 3  # at least the driver, the raylet and the control store
    assert {address.endswith("0100007F") for address in addresses} == {True}, addresses


def listening(mark: str) -> list[str]:
    """The local addresses (in hex) on which processes with this mark accept connections."""
    inodes = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() not in (process / "environ").read_bytes():
                continue
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
        except OSError:  # it has ended meanwhile
            continue
        inodes |= {found[1] for link in links if (found := re.match(r"socket:\[(\d+)\]", link))}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    # The fields of interest: local address, state (0A: listening), inode.
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes]
