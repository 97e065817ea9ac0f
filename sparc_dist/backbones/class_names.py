"""The embeddings of class names, to find the classes that are most similar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError, explain

Float32 = NDArray[np.float32]


def embed_names(backbones: Sequence[BackboneConfig], names: Sequence[str]) -> Float32:
    """Returns embeddings (n, d) of plain names by the first backbone that works.

    Raises UserError about the first if none does.
    """
    problems = []
    for config in backbones:
        try:
            return _embed(config, names)
        except Exception as error:  # one backbone's error must not fail the others
            problems.append(explain(error, config.place))
    raise UserError(problems[0])


def _embed(config: BackboneConfig, names: Sequence[str]) -> Float32:
    # Here and not above: the driver does not load torch.
    from sparc_dist.backbones.devices import pick_device
    from sparc_dist.backbones.models import Backbone

    # One CPU, though there may be a GPU: every cluster has a CPU to prepare with, names are few,
    # and the same names get the same pairs in one process and on Ray. The cache of texts is left
    # alone, because it keeps those of one kind of device, the scorers'.
    rows: Float32 = Backbone(config, pick_device(gpus=0, threads=1)).encode_texts(names).numpy()
    if not np.isfinite(rows).all():
        raise UserError(
            f"{config.place}: the model returns embeddings that are not numbers; its "
            "weights are damaged, download them again."
        )
    return rows
