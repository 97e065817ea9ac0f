"""sparc-dist bench."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from sparc_dist.cli.options import new_command

#: Every benchmark, and the module that measures it.
BENCHMARKS = {
    "reduce": "reduce_phase",
    "decode": "decode",
    "map": "map_phase",
    "features": "features",
    "accelerator": "accelerator",
    "store": "store",
    "units": "units",
    "serve": "serve",
    "start": "start",
    "scale": "scale",
}
#: Takes as long as all others together, so only if it is named.
ON_REQUEST = {"scale"}
TEXT = """\
Times parts of the pipeline beside something to compare them with, on this machine's CPUs, and
prints ratios: machines differ and are shared, so a time alone says little. All except scale, or
those named:

  reduce    the reduce on Ray, from and to storage, beside plain NumPy in memory
  decode    decoding once for the paper's nine backbones, beside once for each; large JPEGs at a
            smaller scale, beside in full and beside djpeg -scale where that is installed
  map       the map phase, JPEG files to stored scores, beside a bare loop of ViT-B/32 over pixels
  features  local features beside global ones: time and memory of ViT-B/32 at 3,200 prompts
  accelerator  how busy a scorer keeps a simulated device of a fixed speed, pixels prepared
            beforehand: with one and with two shards at a time
  store     bytes, time and rounding of each choice of what a run keeps, beside the default
  units     nine small units together, beside one after the other
  serve     the service under load, with a replica killed, beside bare loops of the bundled model
  start     from ray job submit to the first scored shard with one and nine backbones, and a small
            job in one process, beside a bare open_clip script
  scale     a run on a million images that do not exist: driver, objects, restart, reduce

The others took half an hour on two busy cores. Two figures are for sparc-dist plan.
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "bench", bench, "measure the pipeline's performance", TEXT)
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        type=_benchmark,
        help=f"{', '.join(BENCHMARKS)} (default: all but scale)",
    )
    parser.add_argument(
        "--images", metavar="DIR", help="your own photos for decode, map, units and serve"
    )
    parser.add_argument(
        "--millions", metavar="N", type=float, default=1, help="of images, for scale (default: 1)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to check that all works; not for figures"
    )


def bench(options: argparse.Namespace) -> int:
    """Measures and prints benchmarks."""
    from sparc_dist.bench.setting import BenchSetting
    from sparc_dist.pipeline import configure_ray

    configure_ray()
    setting = BenchSetting(options.quick, options.images, options.millions)
    for name in options.names or [name for name in BENCHMARKS if name not in ON_REQUEST]:
        module = import_module(f"sparc_dist.bench.{BENCHMARKS[name]}")
        print(module.measure(setting), end="\n\n", flush=True)
    return 0


def _benchmark(text: str) -> str:
    # Not by `choices`, which argparse would also check when no name is given.
    if text not in BENCHMARKS:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(BENCHMARKS)}")
    return text
