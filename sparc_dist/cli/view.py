"""sparc-dist view."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from typing import Any

from sparc_dist.cli.options import add_common, new_command, run_root

TEXT = """\
Serves a run to your browser: its report, all images of each class by their score, a search by image
id, and reviews. A review asks about images spread over the scores of a class (keys Y, N, U), keeps
every answer in the run (answers/), and fits the decisions again with them.

Only this machine can reach it, and only with the token in the address that it prints. It reads
storage alone: no Ray, no model. Reviews write to the run; everything else only reads.

examples:
  sparc-dist view runs/pets
  sparc-dist view s3://bucket/runs/pets --port 8000 --no-browser
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "view", view, "look at a run and review it in a browser", TEXT)
    add_common(parser, "run")
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="a port (default: any that is free)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def view(options: Namespace) -> int:
    """Serves a run until a signal stops it."""
    import sys
    from threading import Event

    from sparc_dist.report.view.server import ViewServer
    from sparc_dist.report.view.site import Site

    site = Site(run_root(options.run))
    with ViewServer(site, options.port) as server:
        try:
            print(f"{server.url}\nOpen this address in a browser. Ctrl-C stops it.", flush=True)
            if sys.stdout.isatty() and not options.no_browser:
                import webbrowser

                webbrowser.open(server.url)
            Event().wait()
        except KeyboardInterrupt:
            with site.changing:  # what is being written is finished first
                print("Stopped.")
    return 0


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**16:
        raise ArgumentTypeError("must be a port, from 0 to 65535")
    return value
