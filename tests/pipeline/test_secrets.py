"""Keys reach the store and the language model, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import sparc_dist
from tests.support.s3 import S3Server

LLM_KEY = "sk-nobody-may-read-this"


def test_keys_are_not_in_what_a_refused_command_says(
    write_config: Callable[..., str], s3: S3Server
) -> None:
    # Nobody listens there, so that this client's complaints are heard as well.
    llm = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    dataset = {"classes": ["cat", "dog"], "prompts": {"source": "llm", "llm": llm}}
    config = write_config(dataset, output="s3://runs/secret")
    secret = "wrong-" + s3.secret
    env = s3.environment() | {"OPENAI_API_KEY": LLM_KEY, "AWS_SECRET_ACCESS_KEY": secret}
    for command in ("run", "prompts"):
        done = sparc_dist("--verbose", command, config, env=env)
        assert done.returncode == 2, done.stderr
        for key in (secret, s3.key, LLM_KEY):
            assert key not in done.stdout + done.stderr, command


PROGRAM = """
from sparc_dist.config import ResourcesConfig
from sparc_dist.pipeline.cluster import cluster
import ray, os

with cluster(ResourcesConfig(cpus=1)):
    print(ray.get(ray.remote(os.getenv).remote("RAY_AUTH_MODE")))
    input()
"""


@pytest.mark.ray
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
