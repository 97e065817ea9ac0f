"""What the commands of researchers do, once their options are read."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import fields

from sparc_dist import storage
from sparc_dist.config import KEYS_IN_URL
from sparc_dist.core.simulation import Noise
from sparc_dist.errors import UserError, quoted
from sparc_dist.filesystems import without_secrets
from sparc_dist.layout import EXPERIMENTS, RunLayout

#: Which experiments an option is for.
OPTIONS = {
    "dataset": ("plug-in", "histograms", "examples"),
    "backbone": ("plug-in", "histograms", "examples"),
    "class": ("histograms", "examples"),
    "scores": ("plug-in",),
}
#: Images and classes of the paper's test sets.
SIZES = {"voc2007": (4952, 20), "coco2014": (40504, 80), "nuswide": (107859, 81)}


def simulate(options: Namespace) -> int:
    """sparc-dist simulate."""
    from sparc_dist.commands import show_outcome
    from sparc_dist.simulate import simulate
    from sparc_dist.simulation_inputs import Settings

    images, classes = SIZES.get(options.like, (5000, 20))
    named: int | tuple[str, ...] = classes
    if options.classes is not None:
        names = tuple(name.strip() for name in options.classes.split(",") if name.strip())
        named = int(names[0]) if len(names) == 1 and names[0].isdecimal() else names
    labels = None if options.labels is None else _url("--labels", options.labels)
    settings = Settings(
        options.images or images, named, options.seed, labels, _noise(options.noise)
    )
    return show_outcome(simulate(_url("--out", options.out), settings, options.overwrite))


def _noise(rates: list[str]) -> Noise:
    """The rates of the noise model with the user's changes."""
    known = {field.name for field in fields(Noise)}
    given = {}
    for rate in rates:
        name, _, value = rate.partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            raise UserError(f"--noise {rate}: write a rate as NAME=X, X a number.") from None
        if name not in known:
            raise UserError(f"--noise {rate}: there is no rate {quoted(name)}; see --help.")
    try:
        return Noise(**given)
    except ValueError as error:
        raise UserError(f"--noise: {error}.") from None


def experiment(options: Namespace) -> int:
    """sparc-dist experiment."""
    from sparc_dist.experiments import Options, run_experiments

    names = EXPERIMENTS if options.name == "all" else (options.name,)
    for option, of in OPTIONS.items():
        if getattr(options, option.replace("class", "label")) is not None and not {*of} & {*names}:
            raise UserError(f"--{option} is of no use to {options.name}; leave it out.")
    run = _url("--run", options.run)
    scores = None if options.scores is None else _url("--scores", options.scores)
    chosen = Options(options.dataset, options.backbone, options.label, scores, options.method)
    failed = False
    for name, found in run_experiments(names, run, chosen):
        if isinstance(found, str):
            print(f"sparc-dist: {name}: {found}", file=sys.stderr, flush=True)
            failed = True
        else:
            print(found.to_markdown(), flush=True)
    if failed and len(names) == 1:
        return 2
    print(f"Tables and figures are in {RunLayout(run).experiments_index}")
    return 1 if failed else 0


def _url(option: str, url: str) -> str:
    """A URL as workers know it, wherever they are; it will be told, so it must hold no key."""
    if without_secrets(url) != url:
        raise UserError(f"{option} {KEYS_IN_URL}.")
    return storage.absolute(url, os.getcwd())
