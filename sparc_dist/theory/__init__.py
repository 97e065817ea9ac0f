"""The paper's noise model and theorems: fitted, enumerated and simulated.

Belongs here: mathematics about SPARC that a run does not need. Does not: drawing simulated runs
(``simulation``). Uses: ``core``.
"""

from sparc_dist.theory.noise_cells import Balance, CellCounts, CellSums, Pairs
from sparc_dist.theory.noise_model import NoiseFit, fit

__all__ = ["Balance", "CellCounts", "CellSums", "NoiseFit", "Pairs", "fit"]
