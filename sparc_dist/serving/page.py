"""The description of the service as a page, without scripts and without requests to anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
code { font-size: 1.05em; }
"""


def page_of(schema: Mapping[str, Any]) -> str:
    """Returns the page of an OpenAPI schema."""
    info = schema["info"]
    title = escape(f"{info['title']} {info['version']}")
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n"
        f"<p>{escape(info['description'])} The schema is "
        '<a href="openapi.json">openapi.json</a>.</p>\n' + "\n".join(_paths(schema)) + "\n</html>\n"
    )


def _paths(schema: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description', ''))}</p>"
            kinds = operation.get("requestBody", {}).get("content", {})
            if kinds:
                yield f"<p>Body: <code>{escape(', '.join(kinds))}</code></p>"
            answers = operation.get("responses", {}).items()
            rows = (f"<li>{code}: {escape(answer['description'])}</li>" for code, answer in answers)
            yield f"<ul>{''.join(rows)}</ul>"
