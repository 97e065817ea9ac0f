"""The web server of the viewer: on loopback, for the one person who has its token."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from secrets import token_urlsafe
from threading import Thread
from typing import Self, cast
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from sparc_dist.errors import UserError, explain
from sparc_dist.report.view.pages import Bar, page
from sparc_dist.report.view.response import Refusal, Response
from sparc_dist.report.view.site import Site

HOST = "127.0.0.1"
#: The largest form, in bytes: it has three short fields. The longest line of a head: browsers send
#: the cookies of every port of this machine.
LARGEST_FORM, LARGEST_FIELD = 2**16, 2**15
#: The seconds in which a request's head must arrive, and then its form.
SECONDS = 15
#: The seconds in which a client must read some of what waits for it; the system passes on large
#: pieces, so that a slow line has pauses.
READING = 60
#: How many connections are open at most, and how many requests are answered at a time.
CONNECTIONS, THREADS = 512, 32
#: The longest name in an address, and what none contains.
LONGEST_NAME, ODD = 200, {*"/\\\0#"}
#: Of every answer. same-origin: without a referrer, browsers would not say where a form is from.
HEADERS = {
    "Server": "sparc-dist",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
#: Besides what a response's own policy says of sources.
LIMITS = "; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"


class ViewServer:
    """Serves a site from a thread of its own while it is entered. port: 0 for any that is free."""

    def __init__(self, site: Site, port: int = 0) -> None:
        try:
            self._socket = socket.create_server((HOST, port), backlog=CONNECTIONS)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise UserError(f"--port {port}: {reason}; choose another port.") from None
        self.site, self.token = site, token_urlsafe(24)
        self.server_port: int = self._socket.getsockname()[1]
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        # Browsers send a cookie to every port of a host.
        self.cookie = f"sparc_dist_{self.server_port}"
        self._places, self._stopping = asyncio.Semaphore(THREADS), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        """Answers until the server stops; requests that are being answered then are not."""
        request = partial(web.BaseRequest, loop=self._loop, client_max_size=LARGEST_FORM)
        manager = _Manager(self._answer, request_factory=request)
        listening = await self._loop.create_server(
            # The keep-alive timer also runs until the first head of a connection is complete.
            lambda: _Connection(
                manager,
                loop=self._loop,
                keepalive_timeout=SECONDS,
                lingering_time=SECONDS,  # what is left of a body is read and ignored
                max_field_size=LARGEST_FIELD,
                auto_decompress=False,
                # Addresses contain ids, and the first one the token.
                access_log=None,  # type: ignore[arg-type]
            ),
            sock=self._socket,
            backlog=CONNECTIONS,
        )
        await self._stopping.wait()
        listening.close()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        try:
            names, query = _parts(request.raw_path)
            admitted = self._admitted(request, query)
            response = admitted or await self._in_thread(await self._work(request, names, query))
        except Refusal as refusal:
            response = _problem(refusal.status, str(refusal))
        except UserError as error:
            response = _problem(HTTPStatus.CONFLICT, str(error))
        except Exception as error:
            print(f"sparc-dist view: {explain(error)}", file=sys.stderr)
            response = _problem(HTTPStatus.INTERNAL_SERVER_ERROR, explain(error))
        return _sent(response)

    def _admitted(self, request: web.BaseRequest, query: dict[str, str]) -> Response | None:
        """Refuses a stranger; returns the page that leaves a cookie to who brings the token."""
        # Another name for this machine may be that of a page which wants to read ours.
        if request.headers.get("Host") not in self.hosts:
            raise Refusal(403, "The address must begin with http://127.0.0.1.")
        if request.method == "GET" and "token" in query and _same(query["token"], self.token):
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            # A page and no redirect: after a link from another site, that would lack the cookie.
            entered = page("enter")
            return Response(entered.body, headers={"Set-Cookie": cookie})
        cookies = request.headers.get("Cookie", "").split(";")
        pairs = (cookie.strip().partition("=") for cookie in cookies)
        if not any(name == self.cookie and _same(value, self.token) for name, _, value in pairs):
            raise Refusal(
                403, "Open the address that `sparc-dist view` prints: it contains a token."
            )
        return None

    async def _work(
        self, request: web.BaseRequest, names: list[str], query: dict[str, str]
    ) -> Callable[[], Response]:
        """Returns what makes the answer; it reads storage, so it must not run in the loop."""
        if request.method in ("GET", "HEAD"):
            return partial(self.site.get, names, query)
        if request.method == "POST":
            return partial(self.site.post, names, query, await self._form(request))
        raise Refusal(405, "Pages are read with GET, and forms sent with POST.")

    async def _form(self, request: web.BaseRequest) -> dict[str, str]:
        """Returns the fields of a form, which only our own pages may send."""
        if request.headers.get("Origin") != f"http://{request.headers['Host']}":
            raise Refusal(403, "The form is from another site.")
        try:
            if (request.content_length or 0) > LARGEST_FORM:
                raise web.HTTPRequestEntityTooLarge(LARGEST_FORM)
            async with asyncio.timeout(SECONDS):
                text = (await request.read()).decode()
            fields = dict(
                parse_qsl(text, keep_blank_values=True, max_num_fields=8, errors="strict")
            )
        except web.HTTPRequestEntityTooLarge:
            raise Refusal(413, "The form is too large.") from None
        except TimeoutError:
            raise Refusal(408, f"The form took more than {SECONDS} seconds.") from None
        except (ValueError, ConnectionError, web.RequestPayloadError):
            raise Refusal(400, "The form cannot be read.") from None
        if not _same(fields.get("key", ""), self.site.key):
            raise Refusal(403, "The form is of an earlier start; reload the page.")
        return fields

    async def _in_thread(self, work: Callable[[], Response]) -> Response:
        """Runs work in a thread that the end of the process does not wait for, unlike a pool's."""
        done: Future[Response] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        async with self._places:
            Thread(target=run, daemon=True).start()
            return await asyncio.shield(asyncio.wrap_future(done))


class _Manager(web.Server):
    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Closes connections beyond the limit at once."""
        super().connection_made(handler, transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()


class _Connection(web.RequestHandler):
    __slots__ = ("_timer",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wants to know whenever anything waits for the client."""
        cast(asyncio.Transport, transport).set_write_buffer_limits(0)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        """Ends the connection of a client that does not read."""
        super().pause_writing()
        # Not yet: the body may follow the head at once.
        transport = cast(asyncio.Transport, self.transport)
        self._timer = self._loop.call_soon(self._expect_less, transport, sys.maxsize)

    def resume_writing(self) -> None:
        """Lets a client take its time that has read everything."""
        super().resume_writing()
        self._timer.cancel()

    def _expect_less(self, transport: asyncio.Transport, than: int) -> None:
        """Closes the connection unless fewer bytes than before wait for the client."""
        waiting = transport.get_write_buffer_size()
        if waiting < than:
            self._timer = self._loop.call_later(READING, self._expect_less, transport, waiting)
        else:
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.Response:
        """Answers what aiohttp refuses, such as a head that is too long, with our headers."""
        return _sent(_problem(status, HTTPStatus(status).phrase + "."))


def _sent(response: Response) -> web.Response:
    """Returns a response as aiohttp sends it."""
    own = {
        "Content-Security-Policy": response.policy + LIMITS,
        "Content-Type": response.content_type,
    }
    sent = web.Response(
        body=response.body, status=response.status, headers=HEADERS | own | dict(response.headers)
    )
    if response.status >= 400:  # whoever sent such a request may send more of its kind
        sent.force_close()
    return sent


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
