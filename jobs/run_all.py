#!/usr/bin/env python
"""Runs everything: scores and reduces every data set under every backbone, writes the report.

    ray job submit --working-dir . -- python jobs/run_all.py [CONFIG]

CONFIG is a YAML file; by default the one that SPARC_CONFIG names, or sparc.yaml in the working
folder. A config without backbones runs the paper's nine. Run the same command again to resume.
Exit code 0: all done; 1: some units failed, the others are done; 2: the input is invalid.
"""

import sys
from pathlib import Path

# If the package is not installed, it is next to this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
