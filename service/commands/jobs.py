"""`slipway submit`, `watch`, `show`, `logs`, `list`, `cancel`, `retry` and `delete`: exports in a service."""

import argparse
import sys
from collections.abc import Sequence

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.model import JobState
from jobs.request import ExportRequest, Priority
from service.client.logs import LogReader, print_part, print_part_as_json
from service.client.options import add_spec_options, labels_of, request_of
from service.client.watch import PlainLines, display, exit_code, show_end, watch
from service.commands.client_options import (
    INTERRUPTED,
    add_common,
    add_job_command,
    add_page_options,
    client_of,
    labels_text,
    print_json,
    print_page,
    utc,
)
from slipway.rest.answers import JobView
from slipway.rest.synchronous import Client


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add all eight."""
    _add_submit(subparsers)
    _add_watch(subparsers)
    _add_show(subparsers)
    _add_logs(subparsers)
    _add_list(subparsers)
    _add_ends(subparsers)


def _add_submit(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "submit",
        help="post an export to a running service",
        description="Post an export to a running service, and print the id of its job.",
        epilog="example: slipway submit --config pipeline.config --checkpoint s3://m/model.ckpt-11 "
        "--item-input s3://m/items.parquet --output s3://m/export --watch",
    )
    add_spec_options(parser)
    _add_job_options(parser)
    parser.add_argument("--watch", action="store_true", help="follow the job until it has ended")
    add_common(parser, run_submit)


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    priorities = [priority.value for priority in Priority]
    parser.add_argument("--priority", choices=priorities, help="jobs of higher priority are run first")
    parser.add_argument("--model", metavar="NAME", help="publish the artifact as the latest of this model")
    parser.add_argument(
        "--label",
        action="append",
        metavar="NAME=VALUE",
        help="label of the export, such as date=2026-01-31; may be repeated",
    )
    parser.add_argument(
        "--callback-url", metavar="URL", dest="callback_url", help="URL that is told what becomes of the job"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        default=None,
        help="export even if an earlier job has made the same artifact",
    )
    parser.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="any text of your choice: repeating the command with the same key starts no second job",
    )


def _add_watch(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    add_job_command(
        subparsers,
        "watch",
        run_watch,
        summary="follow a job until it has ended",
        description="Follow a job until it has ended. Exit code: 0 succeeded, 1 failed or cancelled, "
        "3 partially succeeded, 4 published and not blessed by its release gate.",
    )


def _add_show(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    add_job_command(
        subparsers,
        "show",
        run_show,
        summary="show a job as it is now",
        description="Show the state of a job and its towers as they are now, and what it published so far.",
    )


def _add_logs(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_job_command(
        subparsers,
        "logs",
        run_logs,
        summary="print the log of a job",
        description="Print the latest thousand lines that each tower and stage of a job has written; the "
        "service keeps them for a week.",
        example="--tower item --stage compile --follow",
    )
    parser.add_argument("--follow", action="store_true", help="print new lines until the job has ended")
    parser.add_argument(
        "--tower", choices=[each.value for each in TowerName], help="show only this tower's lines"
    )
    parser.add_argument(
        "--stage", choices=[each.value for each in Stage], help="show only this stage's lines"
    )


def _add_list(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "list",
        help="list jobs, newest first",
        description="List jobs, newest first.",
        epilog="example: slipway list --state running",
    )
    parser.add_argument(
        "--state", choices=[state.value for state in JobState], help="list only jobs in this state"
    )
    add_page_options(parser, "jobs to list")
    add_common(parser, run_list)


def _add_ends(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    add_job_command(
        subparsers,
        "cancel",
        run_cancel,
        summary="cancel a job",
        description="Cancel a queued job at once, or stop a running one within seconds.",
    )
    retry = add_job_command(
        subparsers,
        "retry",
        run_retry,
        summary="export the failed towers of a job again",
        description="Export the failed towers of a job again, as a new job, and print its id.",
        example="--watch",
    )
    retry.add_argument("--watch", action="store_true", help="follow the new job until it has ended")
    add_job_command(
        subparsers,
        "delete",
        run_delete,
        summary="delete the record of a job that has ended",
        description="Delete the record and the logs of a job that has ended; what it published stays.",
    )


def run_submit(arguments: argparse.Namespace) -> int:
    """Submit an export and print its job's id; with --watch, follow the job as `watch` does."""
    arguments.labels = labels_of(arguments.label) or None
    client = client_of(arguments)
    job = client.submit(request_of(arguments, ExportRequest), key=arguments.idempotency_key)
    if arguments.watch:
        return _follow(client, job.id, as_json=arguments.json)
    return _print(job, arguments)


def run_watch(arguments: argparse.Namespace) -> int:
    """Follow a job until it has ended."""
    return _follow(client_of(arguments), arguments.job_id, as_json=arguments.json)


def run_show(arguments: argparse.Namespace) -> int:
    """Print a job's state, and what it has published or why it failed."""
    job = client_of(arguments).get(arguments.job_id)
    if arguments.json:
        print_json(job)
        return 0
    PlainLines(sys.stdout).show(job)
    show_end(job)
    return 0


def run_logs(arguments: argparse.Namespace) -> int:
    """Print a job's log by tower and stage; with --follow, new lines until the job has ended."""
    tower = TowerName(arguments.tower) if arguments.tower else None
    stage = Stage(arguments.stage) if arguments.stage else None
    reader = LogReader(client_of(arguments), arguments.job_id, tower, stage)
    print_lines = print_part_as_json if arguments.json else print_part
    try:
        for part in reader.follow() if arguments.follow else reader.read().parts:
            print_lines(part)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped reading the log; job {arguments.job_id} goes on\n")
        return INTERRUPTED
    return 0


def run_cancel(arguments: argparse.Namespace) -> int:
    """Cancel a job."""
    return _print(client_of(arguments).cancel(arguments.job_id), arguments)


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete a job's record."""
    client_of(arguments).delete(arguments.job_id)
    return 0


def run_retry(arguments: argparse.Namespace) -> int:
    """Export the failed towers of a job again; with --watch, follow the new job."""
    client = client_of(arguments)
    job = client.retry(arguments.job_id)
    if arguments.watch:
        return _follow(client, job.id, as_json=arguments.json)
    return _print(job, arguments)


def run_list(arguments: argparse.Namespace) -> int:
    """Print one page of jobs."""
    state = JobState(arguments.state) if arguments.state else None
    page = client_of(arguments).page(limit=arguments.limit, state=state, cursor=arguments.cursor)
    columns = ("job", "state", "towers", "model", "family", "checkpoint", "labels", "created")
    return print_page(page, columns, map(_row, page.jobs), as_json=arguments.json)


def _row(job: JobView) -> Sequence[str]:
    return (
        job.id,
        job.state,
        ", ".join(f"{tower.name} {tower.state}" for tower in job.towers),
        job.model or "–",
        job.family or "–",
        job.spec.checkpoint_uri,
        labels_text(job.labels),
        utc(job.created_at),
    )


def _print(job: JobView, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(job)
    else:
        sys.stdout.write(f"{job.id}\n")
    return 0


def _follow(client: Client, job_id: str, *, as_json: bool) -> int:
    try:
        if as_json:
            job = watch(client, job_id, print_json)
        else:
            with display(sys.stdout) as show:
                job = watch(client, job_id, show)
            show_end(job)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped watching; job {job_id} goes on\n")
        return INTERRUPTED
    return exit_code(job)
