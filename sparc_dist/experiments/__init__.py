"""Experiments: every table and figure of the paper, from what a finished run has stored.

Belongs here: one module an experiment with its own passes, its table and figure; the paper's
numbers. Does not: starting Ray tasks by hand (``pipeline.passes`` does). Uses: ``pipeline`` and all
below it, ``report``, ``simulation``.
"""

from sparc_dist.experiments.catalogue import EXPERIMENTS, Experiment

__all__ = ["EXPERIMENTS", "Experiment"]
