"""What Ray Serve reads from the environment, set before it is imported."""

from __future__ import annotations

import os

from sparc_dist.pipeline.environment import LOOPBACK_VARIABLE, configure_ray

#: jobs/rayservice.yaml has the same.
SETTINGS = {
    # Ray gives its workers the lowest priority; who waits for an answer needs a higher one.
    "RAY_worker_niceness": "0",
    # Nothing here blocks an event loop, so that Serve needs no second one, whose threads would
    # only compete for Python's lock.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
}


def configure_serve() -> None:
    """Sets Ray's and Ray Serve's environment variables, unless the user has set them.

    Call it before the first import of ``ray.serve``, which reads them then.
    """
    configure_ray()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def listen_on_loopback() -> None:
    """Keeps a replica of a Ray on loopback from listening elsewhere; call it in its constructor.

    A replica of Ray 2.60 starts a gRPC server on all interfaces after its constructor, also where
    no other node exists. It unpickles what it is sent.
    """
    if os.environ.get(LOOPBACK_VARIABLE) != "0":
        return
    from ray.serve._private import replica

    add_port = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, _: add_port(server, "127.0.0.1:0")
