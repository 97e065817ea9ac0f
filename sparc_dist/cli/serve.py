"""sparc-dist serve."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from sparc_dist.cli.options import add_unit, new_command, positive_int
from sparc_dist.errors import UserError

if TYPE_CHECKING:
    from sparc_dist.serving.settings import ServiceSettings

TEXT = """\
Starts Ray Serve on this machine and labels images over HTTP until it is stopped. LABELER is a
labeler.safetensors file, or a finished run.

  POST /v1/label    an image, or several as a multipart form
  GET  /v1/classes, /healthz, /metrics, /docs

example:
  sparc-dist serve sparc-labels
  curl --data-binary @photo.jpg http://127.0.0.1:8000/v1/label

If SPARC_TOKEN is set, requests need it as a bearer token; any address but loopback demands it.
docs/service.md has the limits, and how to run the service on a cluster.
"""
MISSING = "sparc-dist serve needs Ray Serve; install it with: pip install 'sparc-dist[serve]'"


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "serve", serve, "label images over HTTP", TEXT)
    add_unit(parser, "LABELER", "a labeler.safetensors file, or a run: its folder or its URL")
    parser.add_argument("--weights", metavar="TAG|FILE", help="where the model's weights are now")
    parser.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    parser.add_argument("--port", type=positive_int, default=8000, help="(default: %(default)s)")
    parser.add_argument(
        "--replicas", type=positive_int, metavar="N", help="processes with a model (default: 1)"
    )


def serve(options: argparse.Namespace) -> int:
    """Serves a labeler until a signal stops it."""
    settings = _checked(options)
    print(f"Starting the service of {settings.labeler} …", flush=True)
    from sparc_dist.serving.settings import configure_serve

    configure_serve()
    from threading import Event

    from sparc_dist.serving.service import served

    with served(settings, options.host, options.port) as url:
        print(f"It answers at {url}/v1/label and is described at {url}/docs. Ctrl-C stops it.")
        print(end="", flush=True)
        Event().wait()
    return 0


def _checked(options: argparse.Namespace) -> ServiceSettings:
    """Returns the settings; raises UserError for what would fail only after Ray has started."""
    from importlib.util import find_spec

    if not all(map(find_spec, ("fastapi", "python_multipart", "prometheus_client"))):
        raise UserError(MISSING)
    from sparc_dist.cli.options import absolute_url
    from sparc_dist.serving.settings import ServiceSettings, check_place

    check_place(options.host, options.port)
    if os.environ.get("RAY_ADDRESS"):
        raise UserError(
            "RAY_ADDRESS names a cluster, and sparc-dist serve starts a Ray of its own; unset it, "
            "or run `serve run sparc_dist.serving:app` there."
        )
    labeler = absolute_url("LABELER", options.labeler)
    named = {name: getattr(options, name) for name in ("dataset", "backbone", "replicas")}
    settings = ServiceSettings.from_environment(labeler=labeler, weights=options.weights, **named)
    from sparc_dist.backbones.check import check_model
    from sparc_dist.backbones.weights import check_checkpoint
    from sparc_dist.runs.run import open_labeler
    from sparc_dist.serving.labeler import image_models

    fitted = open_labeler(settings.labeler, settings.dataset, settings.backbone)
    for _, config in image_models(fitted, settings.weights).values():
        check_model(config)
        check_checkpoint(config)
    return settings
