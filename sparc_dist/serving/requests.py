"""A request to the service: who may ask, and what may be asked."""

from __future__ import annotations

import hmac
import os
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from sparc_dist.serving.settings import TOKEN, ServiceSettings

_BEARER = HTTPBearer(auto_error=False, description=f"only if {TOKEN} is set where it runs")


class Refused(Exception):
    """A request that is answered with an error: an HTTP status and the reason."""

    def __init__(self, code: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.code, self.reason, self.headers = code, reason, headers


async def authorised(
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> None:
    """Raises Refused unless the request has the token, if there is one."""
    token = os.environ.get(TOKEN, "")
    shown = given.credentials if given else ""
    # In constant time: how long it takes must not say how much of it was right.
    if token and not hmac.compare_digest(shown.encode(), token.encode()):
        reason = "The bearer token is missing or wrong."
        raise Refused(401, reason, {"WWW-Authenticate": "Bearer"})


async def pictures_of(request: Request, limits: ServiceSettings) -> list[tuple[str, bytes]]:
    """Returns name and bytes of each image of a request; raises Refused beyond the limits."""
    limited = _limited(request, limits.max_bytes)
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return [("image", await limited.body())]
    # Starlette raises an error with status 400 for a form with more, with other fields or broken.
    async with limited.form(max_files=limits.max_images, max_fields=0) as form:
        found = [
            (upload.filename or "image", await upload.read())
            for _, upload in form.multi_items()
            if not isinstance(upload, str)
        ]
    if not found:
        raise Refused(422, "The form has no file; send each image as one.")
    return found


def _limited(request: Request, most: int) -> Request:
    """Returns the request with a body that raises Refused as soon as it is too long."""
    too_large = Refused(
        413, f"The request has more than {most:,} bytes; send fewer or smaller images."
    )
    if int(request.headers.get("content-length") or 0) > most:
        raise too_large
    seen = 0

    async def receive() -> Any:
        nonlocal seen
        message = await request.receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise too_large
        return message

    return Request(request.scope, receive)
