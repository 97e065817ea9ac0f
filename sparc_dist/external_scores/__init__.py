"""Scores from elsewhere: score matrices, the authors' pickles, plug-in methods, and ``fuse``.

Belongs here: reading and checking such files, and fusing them in memory. Does not: runs on
Ray (``pipeline``). Uses: ``prompts``, ``runs``, ``images``, ``config``, ``storage``, ``core``,
``errors``.
"""

from sparc_dist.external_scores.fuse import fuse
from sparc_dist.external_scores.matrices import Matrices, read_authors, read_npz
from sparc_dist.external_scores.plug_in import METHODS as PLUG_IN_METHODS
from sparc_dist.external_scores.plug_in import (
    MethodName,
    PlugIn,
    none_found,
    prepared,
    read_plug_in,
)

__all__ = [
    "PLUG_IN_METHODS",
    "Matrices",
    "MethodName",
    "PlugIn",
    "fuse",
    "none_found",
    "prepared",
    "read_authors",
    "read_npz",
    "read_plug_in",
]
