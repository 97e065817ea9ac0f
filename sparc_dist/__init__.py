"""Zero-shot multi-label recognition at scale: SPARC (CVPR 2025) as a Ray pipeline."""

from importlib.metadata import version

__version__ = version("sparc-dist")
