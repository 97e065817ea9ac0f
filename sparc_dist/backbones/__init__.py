"""Backbones: CLIP-type models as black boxes that return embeddings and similarities.

Belongs here: models, patches, checkpoints, weights, the hub, the cost of a model, trying a model;
the bundled model is ``tiny``. Does not: Ray. Uses: ``prompts``, ``config``, ``storage``, ``core``,
``errors``. Exports only what needs no torch; import the other modules by name.
"""

from sparc_dist.backbones.class_names import embed_names
from sparc_dist.backbones.cost import Cost, Costs, cost_of, known_cost
from sparc_dist.backbones.vocabulary import vocabulary_for

__all__ = ["Cost", "Costs", "cost_of", "embed_names", "known_cost", "vocabulary_for"]
