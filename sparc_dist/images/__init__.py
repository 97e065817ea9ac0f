"""Images: bytes from storage, decoded to squares of uint8 RGB; a bad file is a reason, not a crash.

Belongs here: which files are images, reading a shard's files, decoding. Does not: which images a
data set has (``datasets``). Uses: ``storage``, ``errors``. Import ``decoding`` and ``reading`` by
name: they load Pillow.
"""

from sparc_dist.images.formats import SUFFIXES

__all__ = ["SUFFIXES"]
