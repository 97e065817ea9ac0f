#!/usr/bin/env python
"""Runs only the first stage: scores the images and stores the scores; needs models and GPUs.

    ray job submit --working-dir . -- python jobs/score.py [CONFIG]

CONFIG as for run_all.py. jobs/reduce.py continues from the stored scores, on CPUs only.
"""

import sys
from pathlib import Path

# If the package is not installed, it is next to this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", "--only", "score", *sys.argv[1:]]))
