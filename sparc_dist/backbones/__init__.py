"""Backbones: CLIP-type models as black boxes that return embeddings and similarities.

Belongs here: models, towers, texts, checkpoints, weights, the hub, devices, costs and checks; the
bundled model is ``tiny``. Does not: Ray. Uses: ``prompts``, ``config``, ``storage``, ``core``,
``errors``. Exports only what needs no torch; import the other modules by name.
"""

from sparc_dist.backbones.cost import Cost, Costs, cost_of, known_cost
from sparc_dist.backbones.texts import embed_names, vocabulary_for

__all__ = ["Cost", "Costs", "cost_of", "embed_names", "known_cost", "vocabulary_for"]
