"""`slipway submit`, `watch` and `list`: the REST calls from a command line."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from exporter.errors import InvalidSpec
from exporter.outcome import Failure
from exporter.spec import Device, ExportSpec, TowerName
from jobs.model import JobState
from service.client import SlipwayClient
from service.schemas import JobView
from service.settings import ClientSettings
from service.watch import display, watch

# The state a job ended in, as an exit code; 2 is argparse's.
EXIT_CODES = {
    JobState.SUCCEEDED: 0,
    JobState.FAILED: 1,
    JobState.CANCELLED: 1,
    JobState.PARTIALLY_SUCCEEDED: 3,
}
INTERRUPTED = 130


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the three commands; each parser sets `run`, which returns the exit code."""
    _add_submit(subparsers)
    _add_watch(subparsers)
    _add_list(subparsers)


def _add_submit(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "submit",
        help="post an export to a running service",
        description="Post an export to a running service and print the job's id.",
        epilog="example: slipway submit --config pipeline.config --checkpoint s3://m/model.ckpt-11 "
        "--item-input s3://m/items.parquet --output s3://m/export --watch",
    )
    parser.add_argument("--spec", type=Path, metavar="FILE", help="the request as JSON; options override it")
    parser.add_argument("--config", metavar="URI", help="pipeline config; a local file's text is sent along")
    parser.add_argument("--checkpoint", metavar="URI", dest="checkpoint_uri", type=_uri)
    parser.add_argument("--item-input", metavar="URI", dest="item_input_uri", type=_uri)
    parser.add_argument("--sample-input", metavar="URI", dest="sample_input_uri", type=_uri)
    parser.add_argument("--output", metavar="URI", dest="output_uri", type=_uri)
    towers = [name.value for name in TowerName]
    parser.add_argument("--tower", action="append", dest="towers", choices=towers, help="may be repeated")
    parser.add_argument("--mode", choices=["unified"])
    parser.add_argument("--device", choices=[device.value for device in Device])
    parser.add_argument("--ranks", type=int, metavar="N")
    parser.add_argument("--max-batch-size", type=int, metavar="N", dest="max_batch_size")
    parser.add_argument("--watch", action="store_true", help="follow the job until it has ended")
    _add_common(parser, run_submit)


def _add_watch(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "watch",
        help="follow a job until it has ended",
        description="Follow a job. Exit code: 0 succeeded, 1 failed or cancelled, 3 partially succeeded.",
        epilog="example: slipway watch 01jd6v7x4mzq3w8c5kftn2rbha",
    )
    parser.add_argument("job_id", metavar="JOB")
    _add_common(parser, run_watch)


def _add_list(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "list",
        help="list jobs, newest first",
        description="List jobs, newest first.",
        epilog="example: slipway list --state running",
    )
    parser.add_argument("--state", choices=[state.value for state in JobState])
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="1 to 100; default: %(default)s")
    parser.add_argument("--cursor", help="the `next_cursor` that an earlier list ended with")
    _add_common(parser, run_list)


def _add_common(parser: argparse.ArgumentParser, run: object) -> None:
    default = ClientSettings().url
    parser.add_argument("--url", default=default, help="of the service; default: SLIPWAY_URL or %(default)s")
    parser.add_argument("--json", action="store_true", help="JSON on standard output, for machines")
    parser.set_defaults(run=run)


def run_submit(arguments: argparse.Namespace) -> int:
    """Submit; with --watch, follow the job as `watch` does."""
    client = SlipwayClient(arguments.url)
    job = client.submit(_spec(arguments))
    if arguments.watch:
        return _follow(client, job.id, as_json=arguments.json)
    sys.stdout.write(f"{job.model_dump_json() if arguments.json else job.id}\n")
    return 0


def run_watch(arguments: argparse.Namespace) -> int:
    """Follow a job until it has ended."""
    return _follow(SlipwayClient(arguments.url), arguments.job_id, as_json=arguments.json)


def run_list(arguments: argparse.Namespace) -> int:
    """Print one page of jobs."""
    state = JobState(arguments.state) if arguments.state else None
    page = SlipwayClient(arguments.url).page(limit=arguments.limit, state=state, cursor=arguments.cursor)
    if arguments.json:
        sys.stdout.write(f"{page.model_dump_json()}\n")
        return 0
    table = Table("job", "state", "towers", "created", "output", box=None)
    for job in page.jobs:
        towers = ", ".join(f"{tower.name} {tower.state}" for tower in job.towers)
        table.add_row(job.id, job.state, towers, _utc(job.created_at), job.spec.output_uri)
    Console().print(table)
    if page.next_cursor is not None:
        sys.stdout.write(f"more: --cursor {page.next_cursor}\n")
    return 0


def _follow(client: SlipwayClient, job_id: str, *, as_json: bool) -> int:
    try:
        if as_json:
            job = watch(client, job_id, _print_json)
        else:
            with display(sys.stdout) as show:
                job = watch(client, job_id, show)
            _print_end(job)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped watching; job {job_id} goes on\n")
        return INTERRUPTED
    return EXIT_CODES[job.state]


def _print_json(job: JobView) -> None:
    sys.stdout.write(f"{job.model_dump_json()}\n")
    sys.stdout.flush()


def _print_end(job: JobView) -> None:
    if job.failure is not None:
        _print_failure("job", job.failure)
    for tower in job.towers:
        if tower.failure is not None and tower.failure != job.failure:
            _print_failure(tower.name, tower.failure)
        elif tower.package_uri is not None:
            sys.stdout.write(f"{tower.name:<5} {tower.package_uri}  sha256:{tower.digest}\n")
    if job.manifest_uri is not None:
        sys.stdout.write(f"manifest {job.manifest_uri}\n")


def _print_failure(who: str, failure: Failure) -> None:
    hint = f" ({failure.hint})" if failure.hint else ""
    sys.stderr.write(f"{who}: [{failure.code}] {failure.message}{hint}\n")


def _spec(arguments: argparse.Namespace) -> ExportSpec:
    """The request: --spec's, with the options laid over it."""
    given: dict[str, object] = {}
    try:
        if arguments.spec is not None:
            given = ExportSpec.model_validate_json(arguments.spec.read_bytes()).model_dump(exclude_unset=True)
        if arguments.config is not None:
            given = {**given, "config": None, "config_uri": None, **_config(arguments.config)}
        named = {
            name: getattr(arguments, name) for name in ExportSpec.model_fields if hasattr(arguments, name)
        }
        named.pop("config", None)
        given |= {name: value for name, value in named.items() if value is not None}
        return ExportSpec.model_validate(given)
    except OSError as error:
        raise InvalidSpec(f"{error.filename} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InvalidSpec(
            f"{where}: {first['msg']}" if where else first["msg"],
            hint="see slipway submit --help",
            where=where,
        ) from error


def _config(uri: str) -> dict[str, object]:
    """A local file is read here: the service may run elsewhere."""
    return {"config_uri": uri} if "://" in uri else {"config": Path(uri).read_text()}


def _uri(given: str) -> str:
    """A plain path is made absolute, because the service has another working directory."""
    return given if "://" in given else str(Path(given).absolute())


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
