"""``python -m sparc_dist``: the command line."""

import sys

from sparc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main())
