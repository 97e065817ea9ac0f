"""The service on this machine: a small Ray with Ray Serve, both on loopback."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ray import serve

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.serving.service import application
from sparc_dist.serving.settings import ServiceSettings

NAME = "sparc"


@contextmanager
def served(settings: ServiceSettings, host: str, port: int) -> Iterator[str]:
    """Provides the URL of a service that answers; it ends with the block.

    Raises UserError if a replica cannot load the labeler. Call ``configure_serve`` before this
    module is imported.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    cpus = max(os.cpu_count() or 1, settings.replicas * settings.threads_each)
    with cluster(ResourcesConfig(cpus=cpus)):
        quiet = {"log_level": "ERROR"}
        serve.start(http_options={"host": host, "port": port}, logging_config=quiet)
        try:
            _run(settings)
            yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        finally:
            serve.shutdown()


def _run(settings: ServiceSettings) -> None:
    try:
        serve.run(application(settings), name=NAME)
    except RuntimeError as error:
        # Serve has put what a replica raised, with its traceback, into a message.
        states = serve.status().applications[NAME].deployments.values()
        found = re.findall(r"UserError: (.+)", "\n".join(state.message for state in states))
        if found:
            raise UserError(found[-1]) from None
        raise UserError(
            f"The service did not start ({error}); Ray's session folder has its logs."
        ) from None
