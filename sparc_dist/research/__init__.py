"""Research: experiments, theorems, noise model, simulated runs, plug-in scores, variants.

Belongs here: whatever compares or explains methods, and no run needs. Does not: importing Ray or
torch (use ``pipeline.passes``). Uses every other room; only its commands in ``cli`` use it.
"""

from sparc_dist.research.catalogue import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
