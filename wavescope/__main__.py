"""`python -m wavescope`, and the installed command: nothing is imported before an interrupt can be answered."""

import signal
import sys

TERMINATED = 143  # 128 + SIGTERM, as shells have it


def run() -> int:
    """Run the command line and return its exit status; SIGTERM cleans up as Ctrl-C does."""
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGTERM, terminate)
        from wavescope.cli.main import main

        status = main()
    except ModuleNotFoundError as error:
        print(f"wavescope: {error.name} is not installed; run `pip install .` in the checkout", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("wavescope: interrupted", file=sys.stderr)
        status = 130
    return TERMINATED if terminated else status


if __name__ == "__main__":
    sys.exit(run())
