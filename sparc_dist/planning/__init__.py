"""Planning, without starting anything: the resources, and which backbones share scorers.

Belongs here: capacity, the plan of a run, the estimate of its cost. Does not: Ray
(``pipeline``) or counting a model's cost (``backbones``). Uses: ``backbones``, ``datasets``,
``runs``, ``config``, ``errors``.
"""

from sparc_dist.planning.estimate import Speeds, estimate, estimate_text, sizes_text
from sparc_dist.planning.plan import (
    GB,
    PROCESS_BYTES,
    BackboneGroup,
    Capacity,
    Scorers,
    plan,
    plan_scorers,
    this_machine,
)

__all__ = [
    "GB",
    "PROCESS_BYTES",
    "BackboneGroup",
    "Capacity",
    "Scorers",
    "Speeds",
    "estimate",
    "estimate_text",
    "plan",
    "plan_scorers",
    "sizes_text",
    "this_machine",
]
