import os
import subprocess
import sys
from typing import Any

import pytest

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import plan_scorers

GPUS = {"CPU": 4.0, "GPU": 2.0}
LAPTOP = {"CPU": 8.0}


@pytest.mark.parametrize(
    ("resources", "shards", "has", "expected"),
    [
        ({}, 100, GPUS, (2, 1.0)),
        ({"gpus_per_scorer": 0.25}, 100, GPUS, (8, 0.25)),
        ({"gpus_per_scorer": 0.6}, 100, GPUS, (2, 0.6)),
        ({"gpus_per_scorer": 0.25}, 3, GPUS, (3, 0.25)),
        ({"gpus_per_scorer": 0}, 100, GPUS, (2, 0.0)),
        ({}, 100, LAPTOP, (4, 0.0)),
        ({"scorers": 3}, 100, LAPTOP, (3, 0.0)),
        ({}, 100, {"CPU": 1.0}, (1, 0.0)),
    ],
)
def test_scorers_use_what_the_cluster_has(
    resources: dict[str, Any], shards: int, has: dict[str, float], expected: tuple[int, float]
) -> None:
    plan = plan_scorers(ResourcesConfig.model_validate(resources), shards, has)
    assert (plan.actors, plan.gpus) == expected


@pytest.mark.parametrize(
    ("resources", "has", "reason"),
    [
        ({"gpus_per_scorer": 0.5}, LAPTOP, "asks for 0.5 GPUs, the cluster has 0"),
        ({"gpus_per_scorer": 0.5, "scorers": 5}, GPUS, "5 actors with 0.5 GPUs each"),
        ({}, {"GPU": 1.0}, "no CPU to decode images"),
    ],
)
def test_what_the_cluster_cannot_hold_is_refused(
    resources: dict[str, Any], has: dict[str, float], reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        plan_scorers(ResourcesConfig.model_validate(resources), 100, has)


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
