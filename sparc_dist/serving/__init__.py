"""A fitted labeler at work: ``Labeler`` in process, without Ray; ``app``, a service on Ray Serve.

Belongs here: labelling images one by one or in batches, HTTP. Does not: fitting (``pipeline``).
Uses: ``pipeline``, ``backbones``, ``images``, ``prompts``, ``runs``. Nothing heavy is imported
before it is used; ``serve run sparc_dist.serving:app`` reads its settings from the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparc_dist.serving.labeler import Labeler, LabelledImage

__all__ = ["Labeler", "LabelledImage"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from sparc_dist.serving import labeler

        return getattr(labeler, name)
    if name == "app":
        from sparc_dist.serving.settings import configure_serve

        configure_serve()
        from sparc_dist.serving.service import application
        from sparc_dist.serving.settings import ServiceSettings

        return application(ServiceSettings.from_environment())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
