"""`slipway download` and `bundle`: what a job has published, and what is left of its failures."""

import argparse
import sys
from pathlib import Path

from exporter.spec import TowerName
from service.commands.client_options import add_job_command, client_of, print_json
from slipway.rest.errors import DownloadFailed


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `download` and `bundle`."""
    _add_download(subparsers)
    _add_bundle(subparsers)


def _add_download(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_job_command(
        subparsers,
        "download",
        run_download,
        summary="fetch what a job published into a folder",
        description="Fetch the artifact that a job published into a new folder, and check every file against "
        "the manifest. The folder is there whole, or not at all.",
        example="./feed-model --tower user",
    )
    parser.add_argument(
        "into", metavar="DIR", type=Path, nargs="?", help="folder to make; default: the id of the job"
    )
    parser.add_argument(
        "--tower",
        action="append",
        dest="towers",
        default=[],
        type=TowerName,
        choices=list(TowerName),
        metavar="TOWER",
        help=f"fetch only this tower: {', '.join(TowerName)}; may be repeated",
    )
    parser.add_argument("--target", help="target of a job with several; default: the first that it published")
    parser.add_argument(
        "--verify", metavar="KEY", type=Path, help="public key by which the manifest must be signed"
    )


def _add_bundle(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_job_command(
        subparsers,
        "bundle",
        run_bundle,
        summary="fetch the diagnostics of a failure",
        description="Fetch the zip with the diagnostics of a job's failure.",
        example="--tower item",
    )
    parser.add_argument(
        "file", metavar="FILE", type=Path, nargs="?", help="file to write; default: <job>.zip"
    )
    parser.add_argument("--tower", choices=[each.value for each in TowerName], help="tower that failed")


def run_download(arguments: argparse.Namespace) -> int:
    """Fetch an artifact, and print the folder."""
    into: Path = arguments.into or Path(arguments.job_id)
    manifest = client_of(arguments).download(
        arguments.job_id, into, towers=arguments.towers, target=arguments.target, key=arguments.verify
    )
    if arguments.json:
        print_json(manifest)
    else:
        sys.stdout.write(f"{into}\n")
    return 0


def run_bundle(arguments: argparse.Namespace) -> int:
    """Fetch the diagnostics of a failure, and print the file's name."""
    tower = TowerName(arguments.tower) if arguments.tower else None
    name = "-".join(filter(None, (arguments.job_id, tower)))
    file: Path = arguments.file or Path(f"{name}.zip")
    data = client_of(arguments).bundle(arguments.job_id, tower)
    try:
        with file.open("xb") as new:
            new.write(data)
    except OSError as error:
        raise DownloadFailed(
            f"{file} cannot be written: {error.strerror}", hint="name another file", where=str(file)
        ) from error
    sys.stdout.write(f"{file}\n")
    return 0
