"""Pages of the viewer: Jinja templates with everything escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment

from sparc_dist.report.templating import environment
from sparc_dist.report.view.response import Response


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Returns a template filled in."""
    return Response(part(template, **values), status=status)


def part(template: str, **values: Any) -> bytes:
    """Returns a template filled in, for a page that has been made already."""
    return _environment().get_template(f"{template}.html").render(**values).encode()


@cache
def _environment() -> Environment:
    """The viewer's own templates, and the parts of the report's pages."""
    return environment("sparc_dist.report.view", "sparc_dist.report")
