import os
import subprocess
import sys


def test_a_small_ray_is_started_quietly_where_there_is_none() -> None:
    program = (
        "import ray\n"
        "from sparc_dist.config import ResourcesConfig\n"
        "from sparc_dist.pipeline.cluster import cluster\n"
        "with cluster(ResourcesConfig(cpus=3)):\n"
        "    print(ray.cluster_resources()['CPU'])\n"
        "print(ray.is_initialized())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "RAY_ADDRESS": ""},
        timeout=120,
        check=False,
    )
    assert done.stdout == "3.0\nFalse\n"
    assert "logging.cc" not in done.stderr
    assert "Started a local Ray" not in done.stderr
