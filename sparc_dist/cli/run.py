"""sparc-dist run."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.finish import run_config
from sparc_dist.cli.options import add_config, add_overwrite, new_command

TEXT = """\
Scores every data set of CONFIG under every backbone, fuses the scores, and writes final scores,
metrics and a report below the config's `output`. Run it again to resume: only what is missing is
done.

a config:
  output: runs/pets
  datasets:
    - name: pets
      kind: folder              # sparc-dist datasets lists the other kinds
      images: photos
      classes: [cat, dog, sofa]
      prompts: {source: all-pairs}
  backbones:
    - {name: ViT-B-32, model: ViT-B-32-quickgelu, weights: openai}

Relative paths are relative to the config file. RAY_ADDRESS names a cluster to run on; without it a
small Ray is started on this machine.
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "run", run, "run a config: images in, final scores out", TEXT)
    add_config(parser)
    parser.add_argument("--to", metavar="URL", help="output URL, instead of the config's `output`")
    parser.add_argument(
        "--only", choices=("score", "reduce"), help="do only one of the two phases that need Ray"
    )
    add_overwrite(parser)


def run(options: Namespace) -> int:
    """Runs a config."""
    from sparc_dist.config import find_config, load_config

    config = load_config(find_config(options.config), options.to)
    return run_config(config, options.overwrite, options.only or "all")
