"""The paper's noise model and theorems: fitted, enumerated and simulated.

Belongs here: mathematics about SPARC that a run does not need. Does not: drawing simulated runs
(``simulation``). Uses: ``core``.
"""
