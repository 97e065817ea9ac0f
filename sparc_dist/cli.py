"""The command line: parse, build a config, call."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from sparc_dist import __version__, commands
from sparc_dist.cli_research import bench_parser, experiment_parser, fuse_parser, simulate_parser
from sparc_dist.errors import UserError
from sparc_dist.estimate import Speeds
from sparc_dist.options import EPILOG, add_config, add_overwrite, amount, count, positive
from sparc_dist.options import command as new_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if options.verbose:  # of ours only: other libraries log what they send, with its signatures
        logging.getLogger("sparc_dist").setLevel(logging.DEBUG)
    try:
        code: int = options.command(options)
        return code
    except UserError as error:
        print(f"sparc-dist: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as head, has seen enough; Python must not try to tell it more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"sparc-dist: {where}{error.strerror or error}.", file=sys.stderr)
        return 2
    except Exception as error:  # of a storage's library or a mistake of ours
        if options.verbose:
            raise
        lines = str(error).strip().splitlines() or [""]
        told = f"{type(error).__name__}: {lines[0]}"
        print(f"sparc-dist: {told}; --verbose shows more.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sparc-dist: stopped; the same command goes on from here.", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="sparc-dist",
        description="Zero-shot multi-label recognition: say which of a list of classes each image "
        "contains, with a CLIP-type model and no labels.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sparc-dist {__version__}")
    top.add_argument("--verbose", action="store_true", help="log what goes on inside")
    group = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _demo_parser,
        _label_parser,
        _run_parser,
        _plan_parser,
        _status_parser,
        _report_parser,
        _datasets_parser,
        _prompts_parser,
        _backbones_parser,
        fuse_parser,
        experiment_parser,
        simulate_parser,
        bench_parser,
    ):
        add(group)
    return top


def _demo_parser(group: Any) -> None:
    text = """\
Draws some 2,000 scenes with a fixed seed, takes compound prompts from the labels of other
scenes, and runs the whole pipeline on them with the small CLIP that this package carries.
Needs neither weights nor internet; takes about a minute or two on two cores.

example:
  sparc-dist demo --out demo
"""
    command = new_command(
        group, "demo", commands.demo, "see the whole of SPARC work on drawn scenes", text
    )
    command.add_argument(
        "--out", default="sparc-demo", metavar="DIR", help="where all goes (default: %(default)s)"
    )
    command.add_argument(
        "--images",
        type=positive,
        default=2000,
        metavar="N",
        help="how many scenes to draw (default: %(default)s)",
    )
    add_overwrite(command)


def _run_parser(group: Any) -> None:
    text = """\
Scores every data set of CONFIG under every backbone, fuses, and writes final scores, metrics
and a report below the config's `output`. Started again, it does only what is missing.

a config:
  output: runs/pets
  datasets:
    - name: pets
      kind: folder              # see sparc-dist datasets for the others
      images: photos
      classes: [cat, dog, sofa]
      prompts: {source: all-pairs}
  backbones:
    - {name: ViT-B-32, model: ViT-B-32-quickgelu, weights: openai}

Relative paths are relative to the config file. RAY_ADDRESS names a cluster to run on; without
it a small Ray is started here.
"""
    command = new_command(
        group, "run", commands.run, "run a config: images in, final scores out", text
    )
    add_config(command)
    command.add_argument("--to", metavar="URL", help="instead of the config's `output`")
    command.add_argument(
        "--only", choices=("score", "reduce"), help="one of the two stages that need Ray"
    )
    add_overwrite(command)


def _plan_parser(group: Any) -> None:
    text = """\
Lays the units of CONFIG on what there is, without starting anything, and estimates images a second,
hours, bytes and money. What there is: the cluster at RAY_ADDRESS, or this machine, or what you say:

  sparc-dist plan --cpus 64 --gpus 8 --memory-gb 512 --nodes 9 --price 1.2

Hours follow from speeds that you should set to those of your machines.
"""
    command = new_command(group, "plan", commands.plan, "say what a run would take", text)
    add_config(command)
    for name, of in (("cpus", "CPUs"), ("gpus", "GPUs"), ("nodes", "machines")):
        command.add_argument(f"--{name}", type=count, metavar="N", help=f"plan for so many {of}")
    for name, default, of in (
        ("memory-gb", None, "memory of all machines together"),
        ("price", None, "price of a machine for an hour"),
        ("tflops", Speeds.gpu_tflops, "what a GPU reaches in float32"),
        ("half-tflops", Speeds.half_tflops, "what a GPU reaches in bf16 or fp16"),
        ("core-gflops", Speeds.core_gflops, "what a core reaches in float32"),
        ("decodes", Speeds.decodes, "photos a core decodes in a second"),
    ):
        shown = "" if default is None else " (default: %(default)s)"
        command.add_argument(
            f"--{name}", type=amount, default=default, metavar="X", help=of + shown
        )


def _status_parser(group: Any) -> None:
    text = """\
Says of each unit of a run how many of its images and shards are scored, how many images could not
be read, and which stage it is in. It reads what lies in storage and nothing else: no Ray, no
model, from any machine that may read there, while the run goes on or after it.

example:
  sparc-dist status s3://bucket/runs/pets
"""
    command = new_command(group, "status", commands.status, "say how far a run is", text)
    command.add_argument("run", metavar="RUN_URI", help="the run's `output`: a folder or its URL")


def _report_parser(group: Any) -> None:
    text = "Writes tables, page and pictures of what is done so far of CONFIG's run; needs no Ray."
    command = new_command(group, "report", commands.report, "write the report of a run anew", text)
    add_config(command)


def _label_parser(group: Any) -> None:
    text = """\
Scores every image below FOLDER against all pairs of the classes, prints the likeliest classes of
the first images and writes those of all to DIR/labels.csv. A score is in standard deviations over
the images of the folder: it ranks images and classes, and is no probability.

example:
  sparc-dist label photos --classes "cat,dog,sofa"

The model's weights come from the hub on first use; without internet, name a checkpoint file with
--weights, or try the small model of this package with --model sparc-tiny.
"""
    command = new_command(
        group, "label", commands.label, "say which classes your images show", text
    )
    command.add_argument("folder", metavar="FOLDER", help="a folder of images, or its URL")
    command.add_argument(
        "--classes", required=True, metavar="NAMES", help="class names, with commas between them"
    )
    command.add_argument(
        "--model", default="ViT-B-16-quickgelu", metavar="NAME", help="(default: %(default)s)"
    )
    command.add_argument(
        "--weights", metavar="TAG|FILE", help="an open_clip tag or a file (default: openai)"
    )
    command.add_argument(
        "--out", default="sparc-labels", metavar="DIR", help="(default: %(default)s)"
    )
    command.add_argument(
        "--top", type=positive, default=3, metavar="K", help="classes per image (default: 3)"
    )
    add_overwrite(command)


def _datasets_parser(group: Any) -> None:
    text = "Lists every `kind` a config may name, what it needs on disk and where that comes from."
    new_command(group, "datasets", commands.datasets, "list the kinds of data sets", text)


def _prompts_parser(group: Any) -> None:
    text = """\
Makes the prompt bank of every data set of CONFIG, writes it to the run's DATASET/prompts.parquet
and prints how many prompts of each kind and origin there are and how many mention each class.
No image is read and no model is loaded.
"""
    command = new_command(group, "prompts", commands.prompts, "make and show the prompts", text)
    add_config(command)
    command.add_argument("--show", action="store_true", help="print every compound prompt too")


def _backbones_parser(group: Any) -> None:
    text = """\
Loads every backbone of CONFIG, one after the other, at each input size that its data sets ask
for, shows it one image, and prints a line: name, input size, parameters, width of embeddings,
seconds to load, peak memory and the start of the weights' hash. One that fails gets a sentence,
and the others go on. Without CONFIG, or when it names none, these are the paper's nine.
"""
    command = new_command(group, "backbones", commands.backbones, "try every backbone once", text)
    command.add_argument("config", metavar="CONFIG", nargs="?", help="a YAML file")


if __name__ == "__main__":
    sys.exit(main())
