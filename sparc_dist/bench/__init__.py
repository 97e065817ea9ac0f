"""Benchmarks: ratios measured within one run, because machines differ and are shared.

Belongs here: one module per benchmark, with ``measure``. Does not: assertions on time. Uses: all
rooms below it, and ``demo`` for images.
"""
