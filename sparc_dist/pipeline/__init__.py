"""Ray lives here and nowhere else: cluster, map phase, passes, reduce phase, units, scheduling.

Belongs here: everything that starts tasks or actors, and the progress of a run. Does not: what a
step computes (``core``, ``images``, ``backbones``) or where it is kept (``runs``). Import its
modules by name, after ``configure_ray``: importing Ray takes a second and reads the environment.
"""

from sparc_dist.pipeline.environment import configure_ray

__all__ = ["configure_ray"]
