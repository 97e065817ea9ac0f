#!/usr/bin/env python
"""Runs only the second stage: computes final scores and mAP from stored scores; needs no GPU.

    ray job submit --working-dir . -- python jobs/reduce.py [CONFIG]

CONFIG as for run_all.py. A unit whose scores are incomplete fails with an error.
"""

import sys
from pathlib import Path

# If the package is not installed, it is next to this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", "--only", "reduce", *sys.argv[1:]]))
