"""The command line: parse, build a config, call."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Any

from sparc_dist import __version__
from sparc_dist.config import load_config
from sparc_dist.errors import UserError

EPILOG = """\
exit codes: 0 all done; 1 a unit failed, the others are done; 2 the input was refused and nothing
was written; 130 stopped by Ctrl-C, the same command goes on from there.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING)
    try:
        code: int = options.command(options)
        return code
    except UserError as error:
        print(f"sparc-dist: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"sparc-dist: {where}{error.strerror or error}.", file=sys.stderr)
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
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_demo_parser, _run_parser, _fuse_parser, _bench_parser):
        add(commands)
    return top


def _command(commands: Any, name: str, does: Any, summary: str, text: str) -> Any:
    command = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{text}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=does)
    return command


def _demo_parser(commands: Any) -> None:
    text = """\
Draws some 2,000 scenes with a fixed seed, takes compound prompts from the labels of other
scenes, and runs the whole pipeline on them with the small CLIP that this package carries.
Needs neither weights nor internet; takes about a minute or two on two cores.

example:
  sparc-dist demo --out demo
"""
    command = _command(commands, "demo", _demo, "see the whole of SPARC work on drawn scenes", text)
    command.add_argument(
        "--out", default="sparc-demo", metavar="DIR", help="where all goes (default: %(default)s)"
    )
    command.add_argument(
        "--images",
        type=_positive,
        default=2000,
        metavar="N",
        help="how many scenes to draw (default: %(default)s)",
    )


def _run_parser(commands: Any) -> None:
    text = """\
Scores every data set of CONFIG under every backbone, fuses, and writes final scores, metrics
and a report below the config's `output`. Started again, it does only what is missing.

a config:
  output: runs/pets
  datasets:
    - name: pets
      kind: folder              # or manifest: a .parquet or .csv with uri and labels
      images: photos
      classes: [cat, dog, sofa]
      prompts: {source: all-pairs}
  backbones:
    - {name: ViT-B-32, model: ViT-B-32-quickgelu, weights: openai}

Relative paths are relative to the config file. RAY_ADDRESS names a cluster to run on; without
it a small Ray is started here.
"""
    command = _command(commands, "run", _run, "run a config: images in, final scores out", text)
    command.add_argument("config", metavar="CONFIG", help="a YAML file")
    command.add_argument("--output", metavar="URL", help="instead of the config's `output`")


def _fuse_parser(commands: Any) -> None:
    text = """\
Takes singleton, auxiliary and compound scores and writes DIR/final.parquet, DIR/fusion.json
and, when there are labels, DIR/metrics.json. Two forms:

  sparc-dist fuse --scores FILE.npz --prompts FILE.json --out DIR
      FILE.npz: arrays singleton (M × N), auxiliary (M × N), compound (M × P), and optionally
      labels (M × N) and image_ids (M). FILE.json: {"classes": […], "prompts": […]}.

  sparc-dist fuse --authors-dir DIR --dataset VOC2007 --backbone ViT-B16 --out DIR
      the two pickles that the paper's authors publish; nothing in them is run.
"""
    command = _command(commands, "fuse", _fuse, "fuse score matrices that already exist", text)
    command.add_argument("--scores", metavar="FILE.npz")
    command.add_argument("--prompts", metavar="FILE.json")
    command.add_argument("--authors-dir", metavar="DIR")
    command.add_argument("--dataset", metavar="NAME", help="as in the pickles' names")
    command.add_argument("--backbone", metavar="NAME", help="as in the pickles' names")
    command.add_argument("--out", required=True, metavar="DIR", help="where the results go")
    command.add_argument(
        "--empty-class",
        choices=("skip", "zero"),
        default="skip",
        help="a class without a positive: left out of the mAP, or 0 (default: %(default)s)",
    )


def _bench_parser(commands: Any) -> None:
    text = """\
Makes up the scores of 2,000 images for 80 classes and 1,500 compound prompts, reduces them with
the pipeline on Ray and with straightforward NumPy in memory, checks that both agree, and prints
the two times with their ratio. Machines differ and are shared: compare ratios, not times.
"""
    command = _command(commands, "bench", _bench, "time the reduce beside plain NumPy", text)
    for name, default in (("images", 2000), ("classes", 80), ("prompts", 1500)):
        command.add_argument(
            f"--{name}", type=_positive, default=default, metavar="N", help="(default: %(default)s)"
        )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _demo(options: argparse.Namespace) -> int:
    from sparc_dist.demo.run import write_demo

    return _run_config(write_demo(options.out, options.images), None)


def _run(options: argparse.Namespace) -> int:
    return _run_config(options.config, options.output)


def _run_config(path: str, output: str | None) -> int:
    # Ray and torch take seconds to import; a config with a typo should not wait for them.
    config = load_config(path, output)
    from sparc_dist.pipeline.run import run
    from sparc_dist.report import write_report

    outcome = run(config)
    if outcome.nothing_to_do:
        print("The run was finished before; nothing was missing.", file=sys.stderr)
    results = write_report(outcome.layout.root)
    from sparc_dist.report.tables import to_markdown

    print(to_markdown(results))
    print(f"Scores, metrics and report are in {outcome.layout.root}")
    print(f"Open {outcome.layout.report}/index.html")
    return 1 if outcome.failures else 0


def _fuse(options: argparse.Namespace) -> int:
    from sparc_dist.core.fusion import Method
    from sparc_dist.fuse import fuse
    from sparc_dist.matrices import read_authors, read_npz

    npz = (options.scores, options.prompts)
    authors = (options.authors_dir, options.dataset, options.backbone)
    if all(npz) and not any(authors):
        matrices = read_npz(*npz)
    elif all(authors) and not any(npz):
        matrices = read_authors(*authors)
    else:
        raise UserError(
            "Give either --scores and --prompts, or --authors-dir, --dataset and --backbone."
        )
    metrics = fuse(matrices, Method(), options.out, options.empty_class)
    if metrics is None:
        print("There are no labels, so no mAP can be had.")
    else:
        for name in ("zsclip", "debiased", "sparc"):
            value = metrics[name]["mAP"]
            print(f"{name:>8}  mAP {'–' if value is None else f'{value:.4f}'}")
    print(f"Final scores are in {options.out}/final.parquet")
    return 0


def _bench(options: argparse.Namespace) -> int:
    from sparc_dist.pipeline.bench import bench_reduce

    print(bench_reduce(options.images, options.classes, options.prompts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
