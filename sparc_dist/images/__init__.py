"""Images: bytes from storage, decoded to squares of uint8 RGB; a bad file never crashes a run.

Belongs here: formats, reading a shard's files, decoding them. Does not: which images a data set has
(``datasets``). Uses: ``config``, ``storage``, ``errors``. Import ``decoding`` and ``reading`` by
name, because they load Pillow.
"""

from sparc_dist.images.formats import HEIC, SUFFIXES

__all__ = ["HEIC", "SUFFIXES"]
