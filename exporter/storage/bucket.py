"""Create the bucket of a URI unless it exists: `python -m exporter.storage.bucket s3://bucket`.

It is meant for a store that you start yourself, as compose.yaml does; S3 only.
"""

import argparse
import sys

from exporter.errors import ExportError
from exporter.storage.object_store import create_bucket


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m exporter.storage.bucket", description=__doc__)
    parser.add_argument("uri", help="s3://bucket, with or without a prefix")
    uri: str = parser.parse_args().uri
    try:
        is_new = create_bucket(uri)
    except ExportError as error:
        sys.exit(f"error [{error.code}]: {error.message}")
    sys.stdout.write(f"{uri}: {'created' if is_new else 'exists already'}\n")


if __name__ == "__main__":
    main()
