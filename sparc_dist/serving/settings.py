"""The settings of the service, from the environment or from the command line."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass, fields
from typing import Any

from sparc_dist.errors import UserError, quoted

#: The variable with the bearer token. Each replica reads it itself: it is in no setting, which Ray
#: would store.
TOKEN = "SPARC_TOKEN"


@dataclass(frozen=True)
class ServiceSettings:
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
    replicas: int = 1
    gpus: float = 0
    threads: int = 0
    max_bytes: int = 16 * 2**20
    max_images: int = 32
    max_pixels: int = 50_000_000
    max_ongoing: int = 64
    max_waiting: int = 128
    max_batch: int = 32

    @classmethod
    def from_environment(cls, **given: Any) -> ServiceSettings:
        """Returns the settings that are given, and those of the environment for all others."""
        found: dict[str, Any] = {}
        for field in fields(cls):
            name = f"SPARC_{field.name.upper()}"
            text = os.environ.get(name)
            if text:
                found[field.name] = _number(name, text) if _is_number(field.default) else text
        found |= {name: value for name, value in given.items() if value is not None}
        if "labeler" not in found:
            raise UserError("SPARC_LABELER is not set; set it to the file or URL of a labeler.")
        return cls(**found)

    @property
    def threads_each(self) -> int:
        """The number of threads of each replica's model."""
        return self.threads or max(1, (os.cpu_count() or 1) // 2 // self.replicas)


def _is_number(default: object) -> bool:
    return isinstance(default, int | float)


def _number(name: str, text: str) -> int | float:
    try:
        value = float(text) if name == "SPARC_GPUS" else int(text)
    except ValueError:
        raise UserError(f"{name} is {quoted(text)}; set it to a number.") from None
    if value < 0:
        raise UserError(f"{name} is {text}; it must not be negative.")
    return value


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
