"""Decoding: once for nine backbones compared with once for each; scaled compared with in full."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from tempfile import TemporaryDirectory

from sparc_dist.bench.inputs import manifest_rows, photos
from sparc_dist.bench.jpeg_scaling import scaling_text
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.images.reading import decode_shard

#: The input sizes of the nine backbones on COCO: three ViTs, ViT-L/14@336, and five ResNets.
NINE = (224, 224, 224, 336, 448, 448, 448, 448, 448)


def measure(setting: BenchSetting) -> str:
    """Decodes photos in all these ways, alternately."""
    return f"{_shared_text(setting)}\n\n{scaling_text(setting)}"


def _shared_text(setting: BenchSetting) -> str:
    """Decodes photos once for nine backbones, and once for each."""
    count, rounds = (4, 1) if setting.quick else (128, 3)
    sizes = sorted(set(NINE))
    with TemporaryDirectory() as folder:
        files = photos(setting, count, folder)
        rows = manifest_rows(files, len(files))
        decode_seconds(rows, sizes)  # warm-up
        times = [
            (decode_seconds(rows, sizes), sum(decode_seconds(rows, [size]) for size in NINE))
            for _ in range(rounds)
        ]
    shared = median(once for once, _ in times)
    return block(
        f"decode of {len(rows)} photos to {', '.join(map(str, sizes))} pixels on one core: once "
        "for nine backbones, compared with once for each",
        {
            "time, once / nine times": f"{median(once / nine for once, nine in times):.2f}",
            "photos per second and core (plan --decodes)": f"{len(rows) / shared:.0f}",
        },
    )


def decode_seconds(rows: Sequence[Mapping[str, str]], sizes: Sequence[int]) -> float:
    """Returns the CPU seconds that decoding takes, which other processes hardly affect."""
    start = time.process_time()
    decode_shard(rows, sizes)
    return time.process_time() - start
