#!/usr/bin/env python
"""The first stage on its own: images in, scores in storage; needs the models and their GPUs.

    ray job submit --working-dir . -- python jobs/score.py [CONFIG]

CONFIG as for run_all.py. jobs/reduce.py goes on from the scores, on CPUs alone.
"""

import sys
from pathlib import Path

# Where the package is not installed, it lies beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", "--only", "score", *sys.argv[1:]]))
