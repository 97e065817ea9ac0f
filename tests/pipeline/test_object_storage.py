"""Whole runs from and to a real S3 server, as users type them, through a network that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray

from sparc_dist.config import load_config
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.runner import run
from sparc_dist.storage.filesystems import ATTEMPTS
from tests.support.command import outcome_hashes, sparc_dist, sparc_dist_process
from tests.support.s3 import (
    FaultProxy,
    Faults,
    Request,
    S3Server,
    fault_proxy,
    prefix_only,
    read_only,
)

pytestmark = pytest.mark.slow  # each starts models or Ray several times

WriteConfig = Callable[..., str]
#: Few classes, so that there are few bytes and many requests.
SCENES: dict[str, Any] = {
    "kind": "manifest",
    "images": "s3://photos/manifest.csv",
    "classes": ["cat", "dog", "car", "pizza", "sofa"],
}


def test_a_run_needs_to_get_and_put_below_its_prefix_and_no_more(
    write_config: WriteConfig,
    s3: S3Server,
    on_s3: FaultProxy,
    original: Path,
    cluster: str,
) -> None:
    """As a user types it; and what it leaves is searched for the keys."""
    allowed = prefix_only("runs", "team/")

    def policy(request: Request) -> tuple[int, str] | None:
        if request.method == "DELETE":
            return 403, "AccessDenied"
        return None if request.bucket == "photos" and request.key else allowed(request)

    on_s3.behave(policy=policy, hide_missing=True)
    config = write_config(SCENES, output="s3://runs/team/a", shard_size=10)
    done = sparc_dist_process("--verbose", "run", config, ray=cluster)
    assert done.returncode == 0, done.stderr
    assert "report are in s3://runs/team/a" in done.stdout
    run = s3.folder / "runs" / "team" / "a"
    assert outcome_hashes(run) == outcome_hashes(original / "run")
    assert (run / "report" / "index.html").exists()

    before = len(on_s3.log)
    again = sparc_dist("run", config)
    assert again.returncode == 0
    assert "nothing was missing" in again.stderr
    asked = on_s3.log[before:]
    written = {request.key for request in asked if request.method in ("PUT", "POST", "DELETE")}
    assert written <= {"team/a/lease.json", "team/a/.access-check"}
    assert not [request for request in asked if request.key.endswith(".jpg")]
    # What a run wrote is found by name: no bucket is ever listed.
    assert all(request.key for request in on_s3.log)

    # Its labeler needs no more than that either.
    source, out = "s3://photos/manifest.csv", "s3://runs/team/labels"
    applied = sparc_dist("apply", "s3://runs/team/a", source, "--out", out)
    assert applied.returncode == 0, applied.stderr
    for path in (run / "scenes" / "tiny" / "final").iterdir():
        same = s3.folder / "runs" / "team" / "labels" / "images" / "tiny" / "final" / path.name
        assert same.read_bytes() == path.read_bytes()

    outside = sparc_dist("run", write_config(SCENES, output="s3://runs/b"))
    assert outside.returncode == 2
    assert outside.stderr.startswith("sparc-dist: Writing s3://runs/b/")
    assert outside.stderr.endswith(
        ".access-check was refused (AccessDenied); allow s3:PutObject there, or correct the URL.\n"
    )
    _no_keys_in(done.stdout, done.stderr, run, s3)
    # The workers were told where the store is, and nothing more.
    jobs = str(ray._private.worker.global_worker.gcs_client.get_all_job_info())
    assert on_s3.endpoint in jobs
    assert s3.key not in jobs
    assert s3.secret not in jobs


def _no_keys_in(stdout: str, stderr: str, run: Path, s3: S3Server) -> None:
    """Neither in what a run says nor in what it leaves, in storage and in Ray's logs."""
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    texts = {"stdout": stdout, "stderr": stderr}
    for path in [*run.rglob("*"), *(session / "logs").rglob("*")]:
        if path.suffix == ".parquet":  # compressed
            texts[str(path)] = str(pq.read_table(path).to_pylist())
        elif path.is_file():
            texts[str(path)] = path.read_bytes().decode(errors="replace")
    assert str(run / "run.json") in texts
    for place, text in texts.items():
        assert s3.key not in text, place
        assert s3.secret not in text, place


@pytest.mark.usefixtures("cluster")
def test_a_store_that_fails_changes_no_byte_and_is_counted(
    write_config: WriteConfig, s3: S3Server, on_s3: FaultProxy, original: Path
) -> None:
    config = load_config(write_config(SCENES, output="s3://runs/faults", shard_size=10))
    unit = s3.folder / "runs" / "faults" / "scenes" / "tiny"
    last = sorted(path.name for path in (s3.folder / "photos" / "scenes").iterdir())[-1]

    def gone(request: Request) -> tuple[int, str] | None:
        return (503, "SlowDown") if request.key.endswith(last) else None

    on_s3.behave(policy=gone)
    with using(InProcess()):
        told = run(config).failures["scenes", "tiny"]
    assert f"did not answer as it should in {ATTEMPTS} attempts at reading s3://photos/" in told
    asked = [request for request in on_s3.log if request.key.endswith(last)]
    assert len(asked) == ATTEMPTS
    assert not (unit / "metrics.json").exists()

    connections = Faults(drop=0.03, reset=0.03, stall=0.01, truncate=0.05, stall_seconds=8)
    on_s3.behave(replace(connections, error_500=0.04, slow_down=0.04))
    outcome = run(config)
    assert not outcome.failures
    assert outcome_hashes(s3.folder / "runs" / "faults") == outcome_hashes(original / "run")
    retries = outcome.metrics["scenes", "tiny"]["recovery"]["storage_retries"]
    # The claim of the run has its requests too, which no unit counts.
    assert 0 < retries <= on_s3.injected.total()


@pytest.mark.parametrize(
    ("output", "changes", "told"),
    [
        (
            "s3://runs/x",
            {"AWS_ACCESS_KEY_ID": "AKIASOMEBODY"},
            "s3://runs does not accept the credentials (InvalidAccessKeyId); check "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile or the role.",
        ),
        (
            "s3://runs/x",
            {"AWS_SECRET_ACCESS_KEY": "another-secret"},
            "s3://runs does not accept the credentials (SignatureDoesNotMatch); check "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile or the role.",
        ),
        (
            "s3://nothing-there/x",
            {},
            "There is no bucket s3://nothing-there; create it, or correct the URL.",
        ),
        (
            "s3://runs/x",
            {"SPARC_STORAGE_TIMEOUT": "soon"},
            "SPARC_STORAGE_TIMEOUT is 'soon'; set it to a number of seconds, or unset it.",
        ),
        (
            "s3://runs/x",
            {"AWS_PROFILE": "nobody"},
            "s3://runs cannot be used: The config profile (nobody) could not be found",
        ),
    ],
    ids=["key", "secret", "bucket", "timeout", "profile"],
)
def test_what_s3_refuses_is_a_sentence_before_any_image_is_read(
    write_config: WriteConfig,
    s3: S3Server,
    output: str,
    changes: dict[str, str],
    told: str,
) -> None:
    local = {**SCENES, "images": f"{s3.folder}/photos/manifest.csv"}
    with fault_proxy(s3.endpoint) as proxy:
        env = s3.environment(proxy.endpoint) | changes
        done = sparc_dist("run", write_config(local, output=output), env=env)
        assert not [request for request in proxy.log if request.key.endswith(".jpg")]
    assert done.returncode == 2
    assert done.stderr == f"sparc-dist: {told}\n"


def test_a_bucket_that_may_only_be_read_is_found_out_at_once(
    write_config: WriteConfig, s3: S3Server
) -> None:
    with fault_proxy(s3.endpoint, policy=read_only) as proxy:
        env = s3.environment(proxy.endpoint)
        done = sparc_dist("run", write_config(SCENES, output="s3://runs/ro"), env=env)
        read = [request for request in proxy.log if request.method == "GET"]
        assert not [request for request in read if request.key.endswith(".jpg")]
    assert done.returncode == 2
    assert "Writing s3://runs/ro/.access-check was refused (AccessDenied)" in done.stderr
    assert done.stderr.count("\n") == 1
