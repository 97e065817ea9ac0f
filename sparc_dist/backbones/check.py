"""A trial of backbones: each is loaded, looks at one image, and tells what that took.

Each has a process of its own, one after the other: so memory is bounded by the largest, its peak
is that backbone's alone, and one that dies takes no other with it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sparc_dist.config import DATASET_KINDS, BackboneConfig, Config
from sparc_dist.errors import UserError

TITLE = f"{'backbone':<16} input  parameters  width  loaded in  peak memory  weights"


@dataclass(frozen=True)
class BackboneCheck:
    """What one backbone took: seconds to load it, and at its peak so many bytes of memory."""

    name: str
    image_size: int
    parameters: int
    width: int
    seconds: float
    peak: int
    weights_sha256: str

    def __str__(self) -> str:
        return (
            f"{self.name:<16} {self.image_size:>5}  {self.parameters / 1e6:>8.1f} M  "
            f"{self.width:>5}  {self.seconds:>7.1f} s  {self.peak / 1e9:>8.2f} GB  "
            f"{self.weights_sha256[:12]}"
        )


def check_backbones(config: Config | None) -> Iterator[BackboneCheck | UserError]:
    """What became of each backbone of a config, or of the paper's nine."""
    for backbone in sized_backbones(config or _of_the_paper()):
        try:
            yield _try_apart(backbone)
        except UserError as error:
            yield error


def sized_backbones(config: Config) -> list[BackboneConfig]:
    """Every backbone at every input size that a data set asks of it."""
    sizes = [dataset.resnet_size for dataset in config.datasets]
    every = (backbone.sized(size) for backbone in config.backbones for size in sizes)
    return list(dict.fromkeys(every))


def _of_the_paper() -> Config:
    official = [kind for kind, preset in DATASET_KINDS.items() if preset]
    datasets = [{"name": kind, "kind": kind, "images": "."} for kind in official]
    return Config.model_validate({"output": ".", "datasets": datasets})


def _try_apart(config: BackboneConfig) -> BackboneCheck:
    """The trial of a backbone in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "sparc_dist.backbones.check"],
        input=config.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode < 0:
        raise UserError(
            f"Backbone {config.name}: its process was ended by signal {-done.returncode}, as it is "
            "where memory runs out; try it on a machine with more."
        )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        reason = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise UserError(f"Backbone {config.name}: cannot be tried ({reason}).")
    found = json.loads(lines[-1])
    if "error" in found:
        raise UserError(found["error"])
    return BackboneCheck(**found)


def _try_here(config: BackboneConfig) -> BackboneCheck:
    import numpy as np
    import torch

    from sparc_dist.backbones.models import Backbone, Scorer
    from sparc_dist.prompts import TextEmbeddings

    start = time.perf_counter()
    backbone = Backbone(config, "cuda" if torch.cuda.is_available() else "cpu")
    seconds = time.perf_counter() - start
    side = backbone.image_size
    pixels = np.random.default_rng(0).integers(0, 256, (1, side, side, 3), dtype=np.uint8)
    rows = backbone.encode_texts(["a photo of a cat", "a photo of a dog"]).cpu().numpy()
    # With the scores it is checked that they are numbers.
    _, embedding = Scorer(backbone, TextEmbeddings(rows, rows, rows)).score(pixels, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return BackboneCheck(
        config.name,
        side,
        sum(values.numel() for values in backbone.model.parameters()),
        embedding.shape[1],
        seconds,
        peak if sys.platform == "darwin" else peak * 1024,  # Linux counts in KiB
        backbone.weights_sha256(),
    )


def main() -> None:
    """Try the backbone that standard input names, and print what was found as JSON."""
    config = BackboneConfig.model_validate_json(sys.stdin.read())
    try:
        found = asdict(_try_here(config))
    except UserError as error:
        found = {"error": str(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
