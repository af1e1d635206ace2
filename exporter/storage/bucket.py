"""Make the bucket of a URI, if it is not there: `python -m exporter.storage.bucket s3://bucket`.

For a store that one starts oneself, as compose.yaml does.
"""

import argparse
import sys

from exporter.errors import ExportError
from exporter.storage.object_store import make_bucket


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m exporter.storage.bucket", description=__doc__)
    parser.add_argument("uri", help="s3://bucket, with or without a prefix")
    uri: str = parser.parse_args().uri
    try:
        made = make_bucket(uri)
    except ExportError as error:
        sys.exit(f"error [{error.code}]: {error.message}")
    sys.stdout.write(f"{uri}: {'made' if made else 'there already'}\n")


if __name__ == "__main__":
    main()
