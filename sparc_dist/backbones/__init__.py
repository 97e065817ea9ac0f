"""Backbones: CLIP-type models as black boxes that return embeddings and similarities.

Belongs here: models, checkpoints, weights, the hub, what a model costs, trying one; the bundled
model is ``tiny``. Does not: Ray. Uses: ``prompts``, ``config``, ``storage``, ``core``, ``errors``.
Only what needs no torch is exported here; import the other modules by name.
"""

from sparc_dist.backbones.cost import Cost, Costs

__all__ = ["Cost", "Costs"]
