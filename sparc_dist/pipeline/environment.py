"""What Ray reads from the environment, set before Ray is imported."""

from __future__ import annotations

import os

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray writes tracebacks and C++ logs to our standard error; what matters of them reaches us as
    # exceptions, which become one line each.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # Raylets report the tasks they had to end on our standard output.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # By default Ray retries a task that ran out of memory without end.
    "RAY_task_oom_retries": "3",
}
#: Set to 0, it makes Ray take 127.0.0.1 as the node's address, on any system despite its name.
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def configure_ray() -> None:
    """Sets Ray's environment variables, unless the user has set them.

    Call it before the first import of ``ray``, which reads some of them then. A Ray that is
    started here, and not joined, listens on loopback only.
    """
    own = _SETTINGS if os.environ.get("RAY_ADDRESS") else _SETTINGS | {LOOPBACK_VARIABLE: "0"}
    for name, value in own.items():
        os.environ.setdefault(name, value)
