"""The web server of the viewer: on loopback, for the one person who has its token."""

from __future__ import annotations

import sys
from collections.abc import Callable
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

from sparc_dist.errors import UserError, explain
from sparc_dist.report.view.bar import Bar
from sparc_dist.report.view.pages import page
from sparc_dist.report.view.response import Refusal, Response
from sparc_dist.report.view.site import Site

HOST = "127.0.0.1"
#: The largest form, in bytes; a form has three short fields.
LARGEST_FORM = 2**16
#: The longest name in an address, and what none contains.
LONGEST_NAME, ODD = 200, {*"/\\\0#"}
#: Of every answer. same-origin: without a referrer, browsers would not say where a form is from.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
#: Besides what a response's own policy says of sources.
LIMITS = "; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"


class ViewServer(ThreadingHTTPServer):
    """Serves a site. port: 0 for any that is free."""

    daemon_threads = True

    def __init__(self, site: Site, port: int = 0) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; choose another port.") from None
        self.site, self.token = site, token_urlsafe(24)
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        # Browsers send a cookie to every port of a host.
        self.cookie = f"sparc_dist_{self.server_port}"

    def server_bind(self) -> None:
        """Binds without looking up the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def handle_error(self, *_: object) -> None:
        """Says what went wrong in a request, except that a browser went away."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            print(f"sparc-dist view: {explain(error)}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "sparc-dist", ""
    timeout = 60
    server: ViewServer

    def do_GET(self) -> None:
        self._respond(lambda names, query: self.server.site.get(names, query))

    def do_POST(self) -> None:
        self._respond(lambda names, query: self.server.site.post(names, query, self._form()))

    def _respond(self, route: Callable[[list[str], dict[str, str]], Response]) -> None:
        try:
            names, query = _parts(self.path)
            response = self._admitted(query) or route(names, query)
        except Refusal as refusal:
            response = _problem(refusal.status, str(refusal))
        except UserError as error:
            response = _problem(HTTPStatus.CONFLICT, str(error))
        except Exception as error:
            print(f"sparc-dist view: {explain(error)}", file=sys.stderr)
            response = _problem(HTTPStatus.INTERNAL_SERVER_ERROR, explain(error))
        self._send(response)

    def _admitted(self, query: dict[str, str]) -> Response | None:
        """Refuses a stranger; returns the page that leaves a cookie to who brings the token."""
        # Another name for this machine may be that of a page which wants to read ours.
        if self.headers.get("Host") not in self.server.hosts:
            raise Refusal(403, "The address must begin with http://127.0.0.1.")
        expected = self.server.token
        if self.command == "GET" and "token" in query and _same(query["token"], expected):
            cookie = f"{self.server.cookie}={expected}; HttpOnly; SameSite=Strict; Path=/"
            # A page and no redirect: after a link from another site, that would lack the cookie.
            entered = page("enter")
            return Response(entered.body, headers={"Set-Cookie": cookie})
        cookies = self.headers.get("Cookie", "").split(";")
        pairs = (cookie.strip().partition("=") for cookie in cookies)
        if not any(n == self.server.cookie and _same(value, expected) for n, _, value in pairs):
            raise Refusal(
                403, "Open the address that `sparc-dist view` prints: it contains a token."
            )
        return None

    def _form(self) -> dict[str, str]:
        """Returns the fields of a form, which only our own pages may send."""
        if self.headers.get("Origin") != f"http://{self.headers['Host']}":
            raise Refusal(403, "The form is from another site.")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refusal(411, "The form has no length.")
        if int(length[:10]) > LARGEST_FORM:
            raise Refusal(413, "The form is too large.")
        try:
            text = self.rfile.read(int(length)).decode()
            fields = dict(
                parse_qsl(text, keep_blank_values=True, max_num_fields=8, errors="strict")
            )
        except ValueError:
            raise Refusal(400, "The form cannot be read.") from None
        if not _same(fields.get("key", ""), self.server.site.key):
            raise Refusal(403, "The form is of an earlier start; reload the page.")
        return fields

    def _send(self, response: Response) -> None:
        # What is left of a refused request must not be taken for the next one.
        self.close_connection = self.close_connection or response.status >= 400
        self.send_response(response.status)
        policy = {"Content-Security-Policy": response.policy + LIMITS}
        length = {"Content-Length": str(len(response.body))}
        closing = {"Connection": "close"} if self.close_connection else {}
        kind = {"Content-Type": response.content_type}
        for name, value in {
            **HEADERS,
            **policy,
            **kind,
            **length,
            **closing,
            **response.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what the base class refuses, such as another method, with our headers."""
        self._send(_problem(code, HTTPStatus(code).phrase + "."))

    def log_message(self, *_: Any) -> None:
        """Logs nothing: addresses contain ids, and the first one the token."""


def _parts(path: str) -> tuple[list[str], dict[str, str]]:
    """Returns the names in a path, decoded once, and the query. Raises Refusal for odd ones."""
    try:
        place, _, query = path.partition("?")
        names = [unquote(name, errors="strict") for name in place.removesuffix("/").split("/")]
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=8, errors="strict")
    except ValueError:
        raise Refusal(400, "The address cannot be read.") from None
    first, *names = names
    if first or any(map(_is_odd, names)):
        raise Refusal(400, "The address cannot be read.")
    return names, dict(pairs)


def _is_odd(name: str) -> bool:
    """Whether a name may lead elsewhere than into a folder, or is longer than names are."""
    return name in ("", ".", "..") or len(name) > LONGEST_NAME or not ODD.isdisjoint(name)


def _same(given: str, secret: str) -> bool:
    """Whether two texts are the same; takes as long for any wrong one."""
    return compare_digest(given.encode(errors="replace"), secret.encode())


def _problem(status: int, reason: str) -> Response:
    return page("problem", status=status, bar=Bar(""), reason=reason)
