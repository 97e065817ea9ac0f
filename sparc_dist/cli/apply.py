"""sparc-dist apply."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from sparc_dist.cli.options import OUT_TERMS, RUN, absolute_url, add_common, new_command, run_root
from sparc_dist.cli.output import print_failures, run_to_end
from sparc_dist.errors import UserError, in_terms

if TYPE_CHECKING:
    from sparc_dist.config import Config

TEXT = """\
Labels new images with a labeler that a finished run has fitted: no prompts are embedded, nothing is
fitted, and each image is read once. LABELER is a labeler.safetensors, or a run that has one. IMAGES
are photos, folders, patterns or URLs, a manifest (.parquet or .csv), or tar files. DIR gets final
scores, labels and errors in the format of a run; run it again to resume.

examples:
  sparc-dist apply runs/pets new-photos --out runs/new
  sparc-dist apply labeler.safetensors s3://my-bucket/images.parquet --out s3://my-bucket/labels
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "apply", apply, "label new images with a fitted labeler", TEXT)
    parser.add_argument("labeler", metavar="LABELER", help=f"a labeler file, or {RUN}")
    parser.add_argument(
        "images", metavar="IMAGES", nargs="+", help="photos, folders, a manifest, tar files or URLs"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="a folder or URL")
    add_common(parser, "--dataset", "--backbone")
    parser.add_argument(
        "--weights", metavar="FILE", help="where the model's checkpoint is, if not where it was"
    )
    add_common(parser, "--retry-errors", "--overwrite", "--wait")


def apply(options: Namespace) -> int:
    """Labels new images."""
    from sparc_dist.config import label_terms
    from sparc_dist.pipeline.executor import kept

    terms = label_terms("IMAGES", "LABELER", "LABELER", "--weights", "--out")
    with in_terms({**terms, **OUT_TERMS}), kept(options.wait):
        retry = options.retry_errors
        done = run_to_end(_config(options), options.overwrite, retry_errors=retry)
        from sparc_dist.report import write_report
        from sparc_dist.runs import NO_LABELS

        results = write_report(done.layout.root)
    for remark in results.remarks():
        if NO_LABELS not in remark:
            print(remark)
    print_failures({key: why for key, why in done.failures.items() if key not in results.failures})
    for metrics in done.metrics.values():
        count = metrics["images"] + metrics["errors"]["images"]
        print(f"The labels of {count:,} images are in {done.layout.root}")
    return 1 if done.failures else 0


def _config(options: Namespace) -> Config:
    """Returns the config of a run that applies a labeler."""
    from sparc_dist.config import parse, resolve
    from sparc_dist.runs.labeler_file import check_single, read_facts

    url = _labeler_url(options)
    facts = read_facts(url)
    check_single(url, facts)
    model = facts["model"]
    if model is None:
        raise UserError(
            f"The labeler {url} was fitted on scores, not on images, and has no model for images; "
            "use one of a run on images."
        )
    backbone = {key: value for key, value in model["backbone"].items() if value is not None}
    if options.weights is not None:
        backbone |= {"weights": options.weights}
        backbone.pop("sha256", None)  # the hash of the weights is compared in any case
    raw = {
        "output": options.out,
        "labeler": url,
        "datasets": [_dataset(options.images, facts["classes"])],
        "backbones": [backbone],
        "shard_size": model["shard_size"],
        "batch_size": model["batch_size"],
        "jpeg_scaling": model["jpeg_scaling"],
        "max_error_share": 1,  # they are counted and listed
    }
    return resolve(parse(raw), os.getcwd())


def _labeler_url(options: Namespace) -> str:
    """Returns where the labeler file is."""
    if options.labeler.endswith(".safetensors"):
        return absolute_url("LABELER", options.labeler)
    from sparc_dist.runs.run import open_unit

    root = run_root(options.labeler, "LABELER")
    unit = open_unit(root, options.dataset, options.backbone).unit
    return absolute_url("LABELER", unit.labeler)


def _dataset(places: list[str], classes: list[str]) -> dict[str, Any]:
    """Returns the data set of new images; the ending of their name says of which kind it is."""
    from sparc_dist.config import DATASET_KINDS

    ending = places[0].lower() if len(places) == 1 else ""
    kinds = (name for name, kind in DATASET_KINDS.items() if ending.endswith(kind.endings))
    images = places[0] if len(places) == 1 else places
    return {
        "name": "images",
        "kind": next(kinds, "folder"),
        "images": images,
        "classes": classes,
    }
