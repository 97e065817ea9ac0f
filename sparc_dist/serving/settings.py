"""The settings of the service, and of Ray Serve, from the environment or from the command line."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, ValidationError

from sparc_dist.errors import UserError, quoted
from sparc_dist.pipeline.environment import LOOPBACK_VARIABLE, configure_ray

#: The variable with the bearer token. Each replica reads it itself: it is in no setting, which Ray
#: would store.
TOKEN = "SPARC_TOKEN"
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


class ServiceSettings(BaseModel, frozen=True):
    """What a service serves, and its limits; ``max_bytes`` is SPARC_MAX_BYTES in the environment.

    labeler, dataset, backbone, weights: as in ``Labeler.load``. replicas: processes with a model.
    gpus: of each replica. threads: of its model on the CPU; 0 means half of this machine's CPUs,
    shared by the replicas: the others decode and speak HTTP.

    max_bytes: of a request. max_images: in a request. max_pixels: of an image, as it declares them.
    max_ongoing: requests that a replica works on. max_waiting: requests that wait for a replica;
    the next one is answered with 503. max_batch: images that go through the model together.
    """

    labeler: str
    dataset: str | None = None
    backbone: str | None = None
    weights: str | None = None
    replicas: NonNegativeInt = 1
    gpus: NonNegativeFloat = 0
    threads: NonNegativeInt = 0
    max_bytes: NonNegativeInt = 16 * 2**20
    max_images: NonNegativeInt = 32
    max_pixels: NonNegativeInt = 50_000_000
    max_ongoing: NonNegativeInt = 64
    max_waiting: NonNegativeInt = 128
    max_batch: NonNegativeInt = 32

    @classmethod
    def from_environment(cls, **given: Any) -> ServiceSettings:
        """Returns the settings that are given, and those of the environment for all others."""
        variables = {name: f"SPARC_{name.upper()}" for name in cls.model_fields}
        found: dict[str, Any] = {
            name: text for name, variable in variables.items() if (text := os.environ.get(variable))
        }
        found |= {name: value for name, value in given.items() if value is not None}
        if "labeler" not in found:
            raise UserError("SPARC_LABELER is not set; set it to the file or URL of a labeler.")
        try:
            return cls(**found)
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
            raise UserError(
                f"{variables[name]} is {quoted(found[name])}; set it to a number, 0 or more."
            ) from None

    @property
    def threads_each(self) -> int:
        """The number of threads of each replica's model."""
        return self.threads or max(1, (os.cpu_count() or 1) // 2 // self.replicas)


def check_place(host: str, port: int) -> None:
    """Raises UserError if the service must not, or cannot, listen there."""
    try:
        public = not ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except (OSError, ValueError):
        raise UserError(f"--host {host} is no address of this machine; try 127.0.0.1.") from None
    if public and not os.environ.get(TOKEN):
        raise UserError(
            f"Anyone who reaches {host} could use the service; set {TOKEN} to a secret, or leave "
            "out --host."
        )
    with socket.socket() as probe:
        # Serve's proxies share a port with whoever is there already, and take turns.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            raise UserError(f"--port {port} is taken or not allowed; choose another.") from None


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
