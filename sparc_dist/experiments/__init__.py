"""Experiments: every table and figure of the paper, from the files of a finished run.

Belongs here: one module per experiment with its passes, table and figure; the paper's numbers. Does
not: starting Ray tasks directly (use ``pipeline.passes``). Uses: ``pipeline`` and all below it,
``report``, ``simulation``.
"""

from sparc_dist.experiments.catalogue import EXPERIMENTS, Experiment

__all__ = ["EXPERIMENTS", "Experiment"]
