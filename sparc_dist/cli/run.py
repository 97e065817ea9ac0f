"""sparc-dist run."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from sparc_dist.cli.options import RUN, add_common, new_command, run_root
from sparc_dist.cli.output import run_config
from sparc_dist.errors import UserError

if TYPE_CHECKING:
    from sparc_dist.runs import Growing, Phase

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

New classes, prompts or templates on images that another run has embedded need no images:
  sparc-dist run new.yaml --embeddings-from RUN
takes the images and their embeddings from RUN and embeds only the texts. Data set and backbone are
those of the same name in RUN, or its only ones; the weights must be the same.
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "run", run, "run a config: images in, final scores out", TEXT)
    add_common(parser, "config")
    parser.add_argument("--to", metavar="URL", help="output URL, instead of the config's `output`")
    parser.add_argument(
        "--only", choices=("score", "reduce"), help="do only one of the two phases that need Ray"
    )
    parser.add_argument(
        "--extend",
        action="store_true",
        help="add images that are new since the run, and fit again over all",
    )
    parser.add_argument(
        "--embeddings-from",
        metavar="RUN",
        help=f"score stored embeddings instead of images; {RUN}",
    )
    add_common(parser, "--retry-errors", "--overwrite", "--wait")


def run(options: Namespace) -> int:
    """Runs a config."""
    from sparc_dist.config import find_config, load_config
    from sparc_dist.runs import lease

    config = load_config(find_config(options.config), options.to)
    source = options.embeddings_from and run_root(options.embeddings_from, "--embeddings-from")
    if options.extend and options.overwrite:
        raise UserError("--extend adds to a run and --overwrite deletes it; choose one of them.")
    if options.extend and source:
        raise UserError("--extend reads new images and --embeddings-from none; choose one of them.")
    growing: Growing | None = "extend" if options.extend else None
    phase: Phase = options.only or "all"
    with lease.kept(options.wait):
        return run_config(config, options.overwrite, phase, growing, source, options.retry_errors)
