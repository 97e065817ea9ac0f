"""The mathematics of SPARC in pure NumPy, shard by shard: moments, debias, ranks, fusion, AP.

Belongs here: kernels that work on one shard; every step that looks across images is a *state* with
``+``, so the same lines serve one matrix and a thousand shards. Does not: files, Ray, messages for
people. Uses no other room.
"""
