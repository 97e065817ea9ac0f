#!/usr/bin/env python
"""Runs only the last stage: writes the report of all finished units; needs no Ray.

    ray job submit --working-dir . -- python jobs/report.py [CONFIG]

CONFIG as for run_all.py.
"""

import sys
from pathlib import Path

# If the package is not installed, it is next to this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
