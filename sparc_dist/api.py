"""The functions of the Python interface that start a run: each does what its command does.

``sparc_dist`` exports them beside the others; docs/python.md shows all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any, get_args

from sparc_dist import runner
from sparc_dist.config import (
    LABEL_MODEL,
    Config,
    label_config,
    label_terms,
    load_config,
    parse,
    resolve,
)
from sparc_dist.errors import NEW_OUTPUT, OR_WAIT, OVERWRITE, UserError, in_terms, quoted
from sparc_dist.pipeline.executor import kept
from sparc_dist.report import write_report
from sparc_dist.report.labels import ImageLabels, image_labels, write_labels
from sparc_dist.runs import Growing, Retry
from sparc_dist.runs.run import Run, open_run, open_unit

#: A file, a folder, a pattern or a URL.
Place = str | os.PathLike[str]
#: What messages call the options of a run.
RUN_TERMS = {
    NEW_OUTPUT: "a new output",
    OVERWRITE: "overwrite=True",
    OR_WAIT: ", or wait for that with wait=True",
}
LABEL_TERMS = {
    **label_terms("images", "classes", "model", "weights", "out"),
    NEW_OUTPUT: "a new out",
    OVERWRITE: "overwrite=True",
    OR_WAIT: "",
}


def label(
    images: Place | Sequence[Place],
    classes: Sequence[str],
    model: str = LABEL_MODEL,
    weights: str | None = None,
    out: Place | None = None,
    overwrite: bool = False,
) -> list[ImageLabels]:
    """Returns which of the classes each image contains, as ``sparc-dist label`` does.

    images: photos, folders with their subfolders, patterns or URLs. model, weights: an open_clip
    model, and a tag or a checkpoint file; OpenAI's by default. out: a folder or URL that keeps the
    run, so that the next call reads only new images; a temporary one by default. overwrite: first
    delete what an earlier run left there.

    An image that cannot be read has an ``error``. Raises UserError if no image can be labelled.
    """
    if isinstance(classes, str):
        raise UserError("classes: it is one text; list the names, as in ['cat', 'dog'].")
    places = [images] if isinstance(images, str | os.PathLike) else images
    urls = [os.fspath(place) for place in places]
    with TemporaryDirectory(prefix="sparc-label-") as temporary, in_terms(LABEL_TERMS), kept():
        place = os.path.join(temporary, "run") if out is None else os.fspath(out)
        config = label_config(urls, list(classes), place, model, weights)
        done = runner.run(config, overwrite, growing="label")
        if not done.metrics:
            reason = " ".join(done.failures.values())
            raise UserError(reason.partition(f"; {temporary}")[0])  # which is gone then
        found = _in_order(done.layout.root)
        if out is not None:
            write_report(done.layout.root)
            write_labels(found, done.layout.labels_csv)
        return found


def run(
    config: Mapping[str, Any] | Config | Place,
    overwrite: bool = False,
    extend: bool = False,
    wait: bool = False,
    retry_errors: Retry = "passing",
) -> Run:
    """Runs a config and writes its report, as ``sparc-dist run`` does; returns the run.

    config: a dict with the keys of a config file, a ``Config``, or the path of a YAML file.
    Relative paths are relative to the file's folder, or else to the current one. overwrite: first
    delete what an earlier run left there. extend: add images that are new since, and fit again.
    wait: wait while another process writes to the run.
    retry_errors: which images that could not be read are tried again: "all", "none", or "passing",
    those that were absent or refused.

    Run it again to resume: only what is missing is done. Raises UserError if no unit can start; a
    unit that fails is in ``failures``.
    """
    if retry_errors not in get_args(Retry):
        names = ", ".join(get_args(Retry))
        raise UserError(f"retry_errors: {quoted(retry_errors)} is unknown; use one of {names}.")
    growing: Growing | None = "extend" if extend else None
    with in_terms(RUN_TERMS), kept(wait):
        checked = _as_config(config)
        done = runner.run(checked, overwrite, growing=growing, retry_errors=retry_errors)
        write_report(done.layout.root, resources=checked.resources)
    return open_run(done.layout.root)


def _as_config(config: Mapping[str, Any] | Config | Place) -> Config:
    if isinstance(config, str | os.PathLike):
        return load_config(os.fspath(config))
    checked = config if isinstance(config, Config) else parse(dict(config), "config")
    return resolve(checked, os.getcwd())


def _in_order(root: str) -> list[ImageLabels]:
    """Returns the labels of a run with one unit, in the order of its images."""
    unit = open_unit(root)
    found = {image.image_id: image for image in image_labels(unit)}
    return [found[name] for shard in range(len(unit.sizes)) for name in unit.ids(shard)]
