"""What the commands do, once their options are read."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from sparc_dist import storage
from sparc_dist.config import TINY, Config
from sparc_dist.config_file import find_config, load_config, parse, resolve
from sparc_dist.errors import UserError
from sparc_dist.labelling import top_classes, write_labels
from sparc_dist.layout import RunLayout

if TYPE_CHECKING:
    from sparc_dist.outcome import Outcome, Part
    from sparc_dist.report.tables import Results

SHOWN = 20  # images whose classes are printed


def demo(options: Namespace) -> int:
    """sparc-dist demo."""
    from sparc_dist.demo.run import write_demo

    config = load_config(write_demo(options.out, options.images))
    return _run_config(config, options.overwrite)


def run(options: Namespace) -> int:
    """sparc-dist run."""
    config = load_config(find_config(options.config), options.to)
    return _run_config(config, options.overwrite, options.only or "all")


def report(options: Namespace) -> int:
    """sparc-dist report."""
    from sparc_dist.report import write_report

    config = load_config(find_config(options.config))
    return _show(config.output, write_report(config.output))


def label(options: Namespace) -> int:
    """sparc-dist label."""
    names = [name.strip() for name in options.classes.split(",") if name.strip()]
    weights = options.weights
    if weights is None and options.model != TINY:
        weights = "openai"
    raw = {
        "output": options.out,
        "datasets": [
            {"name": "images", "kind": "folder", "images": options.folder, "classes": names}
        ],
        "backbones": [{"name": "model", "model": options.model, "weights": weights}],
    }
    config = resolve(parse(raw, "sparc-dist label"), os.getcwd())
    outcome, results = _finish(config, options.overwrite)
    if not outcome.metrics:
        print("\n".join(results.remarks()), file=sys.stderr)
        return 1
    from sparc_dist.report.tables import NO_LABELS

    url = storage.join(outcome.layout.root, "labels.csv")
    rows = top_classes(outcome.layout.root, "images", "model", options.top)
    first, count = write_labels(rows, url, SHOWN)
    for image_id, best in first:
        print(f"{image_id}: " + ", ".join(f"{name} {score:+.1f}" for name, score in best))
    if count > SHOWN:
        print(f"… and {count - SHOWN:,} more")
    for remark in results.remarks():
        if NO_LABELS not in remark:  # nobody who asks for labels expects to have any
            print(remark)
    print(f"The classes of all {count:,} images are in {url}")
    return 1 if outcome.failures else 0


def datasets(options: Namespace) -> int:
    """sparc-dist datasets."""
    from sparc_dist.datasets import KINDS

    for name, kind in KINDS.items():
        print(f"{name}\n    {kind.summary}\n    needs  {kind.needs}\n    from   {kind.origin}")
    return 0


def prompts(options: Namespace) -> int:
    """sparc-dist prompts."""
    from sparc_dist.datasets.bank import dataset_bank
    from sparc_dist.prompts.summary import summary

    config = load_config(find_config(options.config))
    for dataset in config.datasets:
        layout = RunLayout(config.output).dataset(dataset.name)
        bank, notes = dataset_bank(dataset, layout)
        told = f"written to {layout.prompts}"
        if storage.read_own(layout.marker) is not None:
            told = f"not written: {layout.prompts} belongs to a run that has begun"
        else:
            storage.write_table(layout.prompts, bank.to_table())
        print(f"{dataset.name}\n{summary(bank)}")
        if options.show:
            print("\n".join(f"  {prompt.text}" for prompt in bank.compound))
        print("\n".join([*notes, told, ""]))
    return 0


def _run_config(config: Config, overwrite: bool, part: Part = "all") -> int:
    outcome, results = _finish(config, overwrite, part)
    if part == "score":
        for (dataset, backbone), told in outcome.failures.items():
            print(f"{dataset} × {backbone} failed: {told}")
        print(f"Scores are in {outcome.layout.root}; --only reduce goes on from them")
    else:
        _show(outcome.layout.root, results)
    return 1 if outcome.failures else 0


def _show(root: str, results: Results) -> int:
    from sparc_dist.report.tables import to_markdown

    print(to_markdown(results))
    print(f"Scores, metrics and report are in {root}")
    print(f"Open {RunLayout(root).report}/index.html")
    return 0


def _finish(config: Config, overwrite: bool, part: Part = "all") -> tuple[Outcome, Results]:
    from sparc_dist.report import write_report
    from sparc_dist.run import run

    outcome = run(config, overwrite, part)
    if outcome.nothing_to_do:
        print("The run was finished before; nothing was missing.", file=sys.stderr)
    return outcome, write_report(outcome.layout.root)


def fuse(options: Namespace) -> int:
    """sparc-dist fuse."""
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


def bench(options: Namespace) -> int:
    """sparc-dist bench."""
    from sparc_dist.pipeline.bench import bench_reduce

    print(bench_reduce(options.images, options.classes, options.prompts))
    return 0
