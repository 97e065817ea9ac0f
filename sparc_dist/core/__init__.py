"""The mathematics of SPARC in pure NumPy, shard by shard: moments, debias, ranks, fusion, AP.

Belongs here: kernels that work on one shard. Steps that need all images are *states* with ``+``,
so the same code serves one matrix and a thousand shards. Does not: files, Ray, messages for people.
Uses no other room.
"""
