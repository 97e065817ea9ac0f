#!/usr/bin/env python
"""Everything: every data set under every backbone is scored and reduced, and the report written.

    ray job submit --working-dir . -- python jobs/run_all.py [CONFIG]

CONFIG is a YAML file: the one named, or that of SPARC_CONFIG, or sparc.yaml in the working folder.
A config that names no backbones runs the paper's nine. Started again, it does only what is missing.
Exit code 0: all done; 1: a unit failed, the others are done; 2: the input was refused.
"""

import sys
from pathlib import Path

# Where the package is not installed, it lies beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
