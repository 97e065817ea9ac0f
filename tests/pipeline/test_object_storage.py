"""Whole runs from and to a real S3 server, as users type them, through a network that fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparc_dist.filesystems import ATTEMPTS
from tests.command import outcome_hashes, sparc_dist
from tests.s3 import Faults, Request, S3Server, fault_proxy, prefix_only, read_only

WriteConfig = Callable[..., str]
#: Few classes, so that there are few bytes and many requests.
SCENES: dict[str, Any] = {
    "kind": "manifest",
    "images": "s3://photos/manifest.csv",
    "classes": ["cat", "dog", "car", "pizza", "sofa"],
}


@pytest.fixture(scope="module")
def expected(
    tmp_path_factory: pytest.TempPathFactory, s3: S3Server, cluster: str
) -> dict[str, str]:
    """What the same run gives on the local disk."""
    folder = tmp_path_factory.mktemp("local")
    config = {
        "output": "run",
        "shard_size": 16,
        "datasets": [{"name": "scenes", **SCENES, "images": f"{s3.folder}/photos/manifest.csv"}],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "resources": {"scorers": 1},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    done = sparc_dist("run", folder / "config.yaml", ray=cluster)
    assert done.returncode == 0, done.stderr
    return outcome_hashes(folder / "run")


def test_a_key_for_one_prefix_is_enough_for_a_run_of_the_same_bytes(
    write_config: WriteConfig, s3: S3Server, cluster: str, expected: dict[str, str]
) -> None:
    allowed = prefix_only("runs", "team/")

    def policy(request: Request) -> tuple[int, str] | None:
        return None if request.bucket == "photos" and request.key else allowed(request)

    config = write_config(SCENES, output="s3://runs/team/a")
    with fault_proxy(s3.endpoint, policy=policy, hide_missing=True) as proxy:
        env = s3.environment(proxy.endpoint)
        done = sparc_dist("run", config, ray=cluster, env=env)
        assert done.returncode == 0, done.stderr
        assert "report are in s3://runs/team/a" in done.stdout
        before = len(proxy.log)
        again = sparc_dist("run", config, env=env)
        outside = sparc_dist("run", write_config(SCENES, output="s3://runs/b"), env=env)
    assert outcome_hashes(s3.folder / "runs" / "team" / "a") == expected
    assert (s3.folder / "runs" / "team" / "a" / "report" / "index.html").exists()

    assert again.returncode == 0
    assert "nothing was missing" in again.stderr
    asked = [request for request in proxy.log[before:] if "team/a" in request.key]
    assert {request.method for request in asked} == {"GET"}
    assert not [request for request in proxy.log[before:] if request.key.endswith(".jpg")]
    # What a run wrote is found by name: no bucket is ever listed.
    assert all(request.key for request in proxy.log)

    assert outside.returncode == 2
    assert outside.stderr == (
        "sparc-dist: Writing s3://runs/b/access-check was refused (AccessDenied); allow "
        "s3:PutObject there, or correct the URL.\n"
    )


def test_a_store_that_fails_changes_no_byte_and_is_counted(
    write_config: WriteConfig, s3: S3Server, cluster: str, expected: dict[str, str]
) -> None:
    config = write_config(SCENES, output="s3://runs/faults")
    unit = s3.folder / "runs" / "faults" / "scenes" / "tiny"
    last = sorted(path.name for path in (s3.folder / "photos" / "scenes").iterdir())[-1]

    def gone(request: Request) -> tuple[int, str] | None:
        return (503, "SlowDown") if request.key.endswith(last) else None

    with fault_proxy(s3.endpoint, policy=gone) as proxy:
        done = sparc_dist("run", config, ray=cluster, env=s3.environment(proxy.endpoint))
        asked = [request for request in proxy.log if request.key.endswith(last)]
    assert done.returncode == 1
    told = f"did not answer as it should in {ATTEMPTS} attempts at reading s3://photos/"
    assert told in done.stdout
    assert len(asked) == ATTEMPTS
    assert not (unit / "metrics.json").exists()

    faults = Faults(
        drop=0.04, error_500=0.04, slow_down=0.04, stall=0.01, truncate=0.06, stall_seconds=6
    )
    with fault_proxy(s3.endpoint, faults) as proxy:
        env = s3.environment(proxy.endpoint) | {"SPARC_STORAGE_TIMEOUT": "3"}
        done = sparc_dist("run", config, ray=cluster, env=env)
        assert done.returncode == 0, done.stderr
        injected = proxy.injected
    assert outcome_hashes(s3.folder / "runs" / "faults") == expected
    retries = json.loads((unit / "metrics.json").read_text())["recovery"]["storage_retries"]
    # The claim of the run and its report have their requests too, which no unit counts.
    assert 0 < retries <= injected.total()


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
        assert not [request for request in proxy.log if request.key.endswith(".jpg")]
    assert done.returncode == 2
    assert "Writing s3://runs/ro/access-check was refused (AccessDenied)" in done.stderr
    assert done.stderr.count("\n") == 1
