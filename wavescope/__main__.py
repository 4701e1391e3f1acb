"""`python -m wavescope`."""

import sys

try:
    from wavescope.cli.main import main
except ModuleNotFoundError as error:
    sys.exit(f"wavescope: {error.name} is not installed; run `pip install .` in the checkout")

if __name__ == "__main__":
    sys.exit(main())
