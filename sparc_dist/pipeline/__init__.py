"""Ray lives here and nowhere else: map phase, reduce phase, units and runs."""

import os

# Ray reads these when it is imported, so they stand before that.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray writes tracebacks and C++ logs to our standard error; what matters of them reaches us as
    # exceptions, which we tell in a sentence.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # And what raylets report of tasks they had to end, to our standard output.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # By default a task that is ended for lack of memory is tried again without end.
    "RAY_task_oom_retries": "3",
}
if not os.environ.get("RAY_ADDRESS"):
    # A Ray of our own listens on loopback only. The name tells for whom Ray made the switch; what
    # it does is to take 127.0.0.1 as the node's address on any system.
    _SETTINGS["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
for _name, _value in _SETTINGS.items():
    os.environ.setdefault(_name, _value)
