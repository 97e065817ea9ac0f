"""Zero-shot multi-label recognition at scale: SPARC (CVPR 2025) as a Ray pipeline."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparc_dist.api import label, run
    from sparc_dist.config import Config
    from sparc_dist.core.estimator import fit
    from sparc_dist.errors import UserError
    from sparc_dist.runs.run import open_run
    from sparc_dist.serving.labeler import Labeler

__version__ = "0.1.0"
__all__ = ["Config", "Labeler", "UserError", "__version__", "fit", "label", "open_run", "run"]

#: The module of each export, which is imported when the name is first used: `import sparc_dist`
#: and `sparc-dist --help` should not wait for NumPy and Arrow.
_MODULES = {
    "Config": "sparc_dist.config",
    "Labeler": "sparc_dist.serving.labeler",
    "UserError": "sparc_dist.errors",
    "fit": "sparc_dist.core.estimator",
    "label": "sparc_dist.api",
    "open_run": "sparc_dist.runs.run",
    "run": "sparc_dist.api",
}

if not TYPE_CHECKING:  # mypy would take any name for one of the package

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
