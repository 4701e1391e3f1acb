"""`python -m wavescope`, and the installed command: nothing is imported before an interrupt can be answered."""

import sys


def run() -> int:
    """Run the command line and return its exit status."""
    try:
        from wavescope.cli.main import main

        return main()
    except ModuleNotFoundError as error:
        print(f"wavescope: {error.name} is not installed; run `pip install .` in the checkout", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("wavescope: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
