"""Scores from elsewhere: score matrices, the authors' pickles, and ``fuse``.

Belongs here: reading and checking such files, and fusing them in memory. Does not: runs on
Ray (``pipeline``), other methods' scores (``research``). Uses: ``prompts``, ``runs``, ``config``,
``storage``, ``core``, ``errors``.
"""

from sparc_dist.external_scores.fuse import fuse
from sparc_dist.external_scores.matrices import Matrices, read_authors, read_npz

__all__ = ["Matrices", "fuse", "read_authors", "read_npz"]
