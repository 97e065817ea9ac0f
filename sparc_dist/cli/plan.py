"""sparc-dist plan."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparc_dist.cli.options import add_common, new_command, non_negative_int, positive_float

if TYPE_CHECKING:
    from sparc_dist.config import Config
    from sparc_dist.planning import Capacity

TEXT = """\
Assigns the units of CONFIG to the available resources, without starting anything, and estimates
images per second, hours, bytes and money. The resources are those of the cluster at RAY_ADDRESS, of
this machine, or the ones you name:

  sparc-dist plan --cpus 64 --gpus 8 --memory-gb 512 --nodes 9 --price 1.2

Hours follow from speeds; set them to those of your machines.
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "plan", plan, "estimate what a run takes", TEXT)
    add_common(parser, "config")
    for name, of in (("cpus", "CPUs"), ("gpus", "GPUs"), ("nodes", "machines")):
        parser.add_argument(
            f"--{name}", type=non_negative_int, metavar="N", help=f"number of {of} to plan for"
        )
    for name, default, of in (  # the speeds are those of planning.Speeds
        ("memory-gb", None, "memory of all machines together"),
        ("price", None, "price of one machine for an hour"),
        ("tflops", 12.0, "TFLOP/s that a GPU reaches in float32"),
        ("half-tflops", 40.0, "TFLOP/s that a GPU reaches in bf16 or fp16"),
        ("core-gflops", 40.0, "GFLOP/s that a core reaches in float32"),
        ("decodes", 60.0, "photos that a core decodes per second"),
    ):
        shown = "" if default is None else " (default: %(default)s)"
        parser.add_argument(
            f"--{name}", type=positive_float, default=default, metavar="X", help=of + shown
        )


def plan(options: Namespace) -> int:
    """Prints the plan of a config."""
    from sparc_dist.backbones import cost_of, vocabulary_for
    from sparc_dist.config import find_config, load_config
    from sparc_dist.datasets import size_of
    from sparc_dist.planning import Speeds, estimate, estimate_text, plan, sizes_text
    from sparc_dist.runs import RunLayout, Storing
    from sparc_dist.runs.record import stored_record

    config = load_config(find_config(options.config))
    capacity = _capacity(options, config)
    costs = {
        (data.name, backbone.name): cost_of(backbone.sized(data.resnet_size))
        for data in config.datasets
        for backbone in config.backbones
    }
    groups = plan(config, costs, capacity)
    layout = RunLayout(config.output)
    stored_record(layout)  # sizes are read from a run of this version's format only
    vocabulary = vocabulary_for(config.backbones)
    sizes = {
        data.name: size_of(data, layout.dataset(data.name), vocabulary) for data in config.datasets
    }
    speeds = Speeds(options.tflops, options.half_tflops, options.core_gflops, options.decodes)
    print(sizes_text(sizes))
    storing = Storing(config.store, config.stored_precision)
    estimates = [
        estimate(group, sizes[group.dataset], capacity, speeds, storing) for group in groups
    ]
    print(estimate_text(estimates, capacity, options.price))
    return 0


def _capacity(options: Namespace, config: Config) -> Capacity:
    """Returns what to plan for: the options, else the cluster, else this machine."""
    from sparc_dist.planning import Capacity, this_machine

    given = {"cpus": options.cpus, "gpus": options.gpus, "nodes": options.nodes}
    given = {name: value for name, value in given.items() if value is not None}
    if os.environ.get("RAY_ADDRESS") and not given and options.memory_gb is None:
        from sparc_dist.pipeline import configure_ray

        configure_ray()
        from sparc_dist.pipeline.cluster import cluster, cluster_capacity, scaled_capacity

        with cluster(config.resources):
            wanted = config.resources
            return scaled_capacity(
                cluster_capacity(), Capacity(wanted.cpus or 0, wanted.gpus or 0, 0, 0)
            )
    if config.resources.cpus:  # as a Ray that is started here would have
        given = {"cpus": config.resources.cpus, **given}
    return replace(this_machine(options.memory_gb), **given)
