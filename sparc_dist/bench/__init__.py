"""Benchmarks of the pipeline: ratios within one run, for machines differ and are shared."""

import sparc_dist.pipeline  # noqa: F401  # its settings must stand before Ray is imported
