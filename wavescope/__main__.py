"""`python -m wavescope`."""

import sys

from wavescope.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
