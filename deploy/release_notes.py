"""Print the notes of a release, its section of CHANGELOG.md: `python -m deploy.release_notes VERSION`.

`git tag --annotate` and a forge's page of releases take them as they are (CONTRIBUTING.md).
"""

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def sections(text: str) -> Mapping[str, str]:
    """Return what a changelog says of each version, newest first; the version is the heading's first word."""
    _, *parts = _HEADING.split(text)
    return {
        heading.split()[0].strip("[]"): body.strip() + "\n"
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }


def main() -> int:
    """Print the notes and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release_notes", description=__doc__)
    parser.add_argument("version", help=f"as in CHANGELOG.md, or {UNRELEASED}")
    known = sections(CHANGELOG.read_text())
    version = parser.parse_args().version.removeprefix("v")
    if version not in known:
        parser.error(f"CHANGELOG.md has no section {version}; it has {', '.join(known)}")
    sys.stdout.write(known[version])
    return 0


if __name__ == "__main__":
    sys.exit(main())
