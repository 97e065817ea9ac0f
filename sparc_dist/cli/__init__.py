"""The command line: one module a command, with its options and what it does.

Belongs here: parsing, calling, printing, exit codes. Does not: work that a Python user would want
too. Uses: every room. A command imports what it needs when it runs, so that ``--help`` is quick.
"""

from sparc_dist.cli.command_line import main

__all__ = ["main"]
