"""Zero-shot multi-label recognition at scale: SPARC (CVPR 2025) as a Ray pipeline."""

__version__ = "0.1.0"
