#!/usr/bin/env python
"""The second stage on its own: stored scores in, final scores and mAP out; needs no GPU.

    ray job submit --working-dir . -- python jobs/reduce.py [CONFIG]

CONFIG as for run_all.py. A unit whose scores are not complete fails and says so.
"""

import sys
from pathlib import Path

# Where the package is not installed, it lies beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", "--only", "reduce", *sys.argv[1:]]))
