"""Simulated runs: labels and scores drawn from the noise model, at any size, without images.

Belongs here: the model that draws, the inputs of such a run, and the pass that draws its shards.
Does not: fitting the model (``theory``). Uses: ``runner``, ``pipeline`` and what is below them.
"""

from sparc_dist.simulation.inputs import Settings, score_model
from sparc_dist.simulation.model import Noise, ScoreModel
from sparc_dist.simulation.run import simulate

__all__ = ["Noise", "ScoreModel", "Settings", "score_model", "simulate"]
