"""What the commands do, once their options are read."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from sparc_dist import storage
from sparc_dist.config import TINY, Config
from sparc_dist.config_file import find_config, load_config, parse, resolve
from sparc_dist.errors import UserError
from sparc_dist.labelling import top_classes, write_labels
from sparc_dist.layout import RunLayout

if TYPE_CHECKING:
    from sparc_dist.outcome import Outcome, Part
    from sparc_dist.plan import Capacity
    from sparc_dist.report.tables import Results

SHOWN = 20  # images whose classes are printed
BENCHMARKS = ("reduce", "decode", "map", "units", "growth")


def demo(options: Namespace) -> int:
    """sparc-dist demo."""
    from sparc_dist.demo.run import write_demo

    config = load_config(write_demo(options.out, options.images))
    return _run_config(config, options.overwrite)


def run(options: Namespace) -> int:
    """sparc-dist run."""
    config = load_config(find_config(options.config), options.to)
    return _run_config(config, options.overwrite, options.only or "all")


def status(options: Namespace) -> int:
    """sparc-dist status."""
    from sparc_dist.status import status, to_text

    print(to_text(status(options.run)))
    return 0


def report(options: Namespace) -> int:
    """sparc-dist report."""
    from sparc_dist.report import write_report

    config = load_config(find_config(options.config))
    return _show(config.output, write_report(config.output))


def plan(options: Namespace) -> int:
    """sparc-dist plan."""
    from sparc_dist.costs import cost_of
    from sparc_dist.datasets.extent import extent_of
    from sparc_dist.estimate import Speeds, estimate, estimate_text, extents_text
    from sparc_dist.plan import plan

    config = load_config(find_config(options.config))
    has = _capacity(options, config)
    costs = {
        (data.name, backbone.name): cost_of(backbone.sized(data.resnet_size))
        for data in config.datasets
        for backbone in config.backbones
    }
    groups = plan(config, costs, has)
    layout = RunLayout(config.output)
    extents = {data.name: extent_of(data, layout.dataset(data.name)) for data in config.datasets}
    speeds = Speeds(options.tflops, options.half_tflops, options.core_gflops, options.decodes)
    print(extents_text(extents))
    estimates = [estimate(group, extents[group.dataset], has, speeds) for group in groups]
    print(estimate_text(estimates, has, options.price))
    return 0


def _capacity(options: Namespace, config: Config) -> Capacity:
    """What to plan for: what the options say, what the cluster has, or what this machine has."""
    from sparc_dist.plan import Capacity, this_machine

    given = {"cpus": options.cpus, "gpus": options.gpus, "nodes": options.nodes}
    given = {name: value for name, value in given.items() if value is not None}
    if os.environ.get("RAY_ADDRESS") and not given and options.memory_gb is None:
        from sparc_dist.pipeline.cluster import capacity, cluster, grown

        with cluster(config.resources):
            asked = config.resources
            return grown(capacity(), Capacity(asked.cpus or 0, asked.gpus or 0, 0, 0))
    if config.resources.cpus:  # as a Ray that is started here would have
        given = {"cpus": config.resources.cpus, **given}
    return replace(this_machine(options.memory_gb), **given)


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


def backbones(options: Namespace) -> int:
    """sparc-dist backbones."""
    from sparc_dist.trial import TITLE, trials

    config = load_config(options.config) if options.config else None
    print(TITLE, flush=True)
    failed = False
    for found in trials(config):
        print(found, flush=True)
        failed = failed or isinstance(found, UserError)
    return 1 if failed else 0


def show_outcome(outcome: Outcome) -> int:
    """Report what became of a run; gives the exit code."""
    from sparc_dist.report import write_report

    for (dataset, backbone), told in outcome.failures.items():
        print(f"{dataset} × {backbone} failed: {told}", file=sys.stderr)
    _show(outcome.layout.root, write_report(outcome.layout.root))
    return 1 if outcome.failures else 0


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
    from sparc_dist.bench import decode, growth, map_phase, reduce_phase, units
    from sparc_dist.bench.setting import Setting

    modules = dict(zip(BENCHMARKS, (reduce_phase, decode, map_phase, units, growth), strict=True))
    setting = Setting(options.quick, options.images)
    for name in options.names or BENCHMARKS:
        print(modules[name].measure(setting), end="\n\n", flush=True)
    return 0
