"""What torch reads from the environment, set before it computes anything."""

from __future__ import annotations

import os


def configure_torch() -> None:
    """Keeps oneDNN from using AMX, unless the user has set a limit.

    Some machines declare AMX but kill any process that uses it, as bf16 on the CPU would. oneDNN
    reads the limit at its first product in a process.
    """
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
