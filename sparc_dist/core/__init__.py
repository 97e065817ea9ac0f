"""SPARC's mathematics: pure NumPy, shard by shard. No Ray, no files.

Every step that looks across images is a *state* of one shard with ``+`` to merge two of them, so
the same lines serve one matrix in memory and a thousand shards on a cluster.
"""
