"""What the viewer answers, and why it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Response:
    """An answer to a request. policy: its Content-Security-Policy."""

    body: bytes
    content_type: str = HTML
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    policy: str = "default-src 'self'"


class Refusal(Exception):
    """A request that is not answered; the text says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def not_found(reason: str) -> Refusal:
    """Returns the refusal of an address that names nothing."""
    return Refusal(404, reason)


def see(location: str) -> Response:
    """Returns a redirect after a form, so that a reload sends nothing again."""
    return Response(b"", status=303, headers={"Location": location})
