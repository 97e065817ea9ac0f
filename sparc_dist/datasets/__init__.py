"""Data sets: what each kind needs on disk, and how it becomes images.parquet."""

from sparc_dist.datasets.images import write_images
from sparc_dist.datasets.kinds import KINDS, Kind, Source, class_names, open_source

__all__ = ["KINDS", "Kind", "Source", "class_names", "open_source", "write_images"]
