"""Start a worker, as `celery -A worker.app worker` does, without looking for modules in this folder first."""

import sys


def main() -> int:
    """Run until asked to stop; return Celery's exit code."""
    from worker.app import app  # reads the settings

    return app.start(["worker", "--without-gossip", "--without-mingle", *sys.argv[1:]]) or 0


if __name__ == "__main__":
    sys.exit(main())
