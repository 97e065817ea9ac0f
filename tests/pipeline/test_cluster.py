import os
import subprocess
import sys

import pytest
import torch

from sparc_dist.errors import UserError, explain
from sparc_dist.pipeline.cluster import scaled_capacity
from sparc_dist.planning import GB, Capacity


@pytest.mark.ray
def test_a_small_ray_is_started_quietly_where_there_is_none() -> None:
    program = (
        "import os\n"
        "from sparc_dist.pipeline import configure_ray\n"
        "configure_ray()\n"
        "import ray\n"
        "from sparc_dist.config import ResourcesConfig\n"
        "from sparc_dist.errors import UserError\n"
        "from sparc_dist.pipeline.cluster import cluster, request_workers\n"
        "with cluster(ResourcesConfig(cpus=3)):\n"
        "    print(ray.cluster_resources()['CPU'])\n"
        "    os.environ['RAY_ADDRESS'] = 'as if it were a cluster that grows'\n"
        "    try:\n"
        "        with request_workers(ResourcesConfig(gpus=8, no_progress_seconds=1)):\n"
        "            print('without a GPU?')\n"
        "    except UserError as error:\n"
        "        print(error)\n"
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
    cpus, told, running = done.stdout.splitlines()
    assert (cpus, running) == ("3.0", "False")
    assert told.startswith("resources asks for 0 CPUs and 8 GPUs; the cluster has 3 and 0, and no")
    assert "logging.cc" not in done.stderr
    assert "Started a local Ray" not in done.stderr


def test_only_workers_with_models_need_torch() -> None:
    """The driver and others start in a third of the time, with a third of the memory, without."""
    steps = ("decode", "write", "prepare", "reduce_phase", "scheduling")
    imports = "; ".join(f"import sparc_dist.pipeline.{step}" for step in steps)
    program = f"import sys; {imports}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_what_is_asked_for_is_planned_with_as_if_it_were_there() -> None:
    first = Capacity(cpus=8, gpus=1, memory=20 * GB, object_store=10 * GB, nodes=1)
    later = scaled_capacity(first, Capacity(cpus=32, gpus=4, memory=0, object_store=0))
    assert later == Capacity(32, 4, 80 * GB, 40 * GB, nodes=4)
    assert scaled_capacity(first, Capacity(0, 0, 0, 0)) == first


def test_what_one_backbone_fails_at_is_told_in_its_name() -> None:
    assert explain(UserError("What was wrong."), "Backbone b") == "What was wrong."
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    assert explain(full, "Backbone RN50x64").startswith(
        "Backbone RN50x64: the GPU's memory is full; set"
    )
    told = explain(RuntimeError("cuDNN error:\n  not initialised"), "Backbone b")
    assert told == "Backbone b: RuntimeError: cuDNN error: not initialised"
