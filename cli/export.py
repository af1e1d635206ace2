"""`slipway export`: the whole export on this machine, without the service."""

import argparse
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from cli.code_cache import add_code_cache_option
from cli.errors import InvalidCommand
from cli.settings import ExportSettings
from exporter.distributed.meeting import MeetingPlace, meeting_place
from exporter.errors import InvalidSpec
from exporter.spec import ExportSpec
from jobs.bundles import FolderBundles
from jobs.control import JobControl
from jobs.leases import Holding, claim
from jobs.logs import MemoryLogs
from jobs.memory_store import MemoryJobStore
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from processes.startup import settings_or_exit
from service.cli_commands import EXIT_CODES
from service.client.options import add_spec_options, spec_of
from service.client.watch import display, show_end
from service.planning import planner
from service.schemas import JobView
from worker.allowance import allowance_of
from worker.launch import RanksLauncher
from worker.settings import AllowanceSettings, SigningSettings
from worker.supervisor import Supervisor

_WORKER = "slipway-export"
_NO_LIMIT = timedelta(days=365)  # a person is watching, and has ctrl-C
_EXAMPLE = (
    "example: slipway export --config pipeline.config --checkpoint model.ckpt-11 "
    "--item-input items.parquet --sample-input train.parquet --output exports/"
)


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `export`."""
    parser = subparsers.add_parser(
        "export",
        help="export a model here, without the service",
        description="Export a model here. Exit code: 0 succeeded, 1 failed, 3 partially succeeded.",
        epilog=_EXAMPLE,
    )
    add_spec_options(parser)
    add_code_cache_option(parser)
    _add_host_options(parser)
    parser.add_argument(
        "--bundles", metavar="FOLDER", type=Path, help="keep what it takes to find out why it failed there"
    )
    parser.add_argument("--json", action="store_true", help="print the job as JSON at the end")
    parser.set_defaults(run=run)


def _add_host_options(parser: argparse.ArgumentParser) -> None:
    """Add those of an export on several hosts."""
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="hosts that share the export's ranks; the same command is to be started on each",
    )
    parser.add_argument(
        "--rdzv",
        metavar="HOST:PORT",
        help="where they meet: an address of one of them, which all reach; needed with --nodes",
    )
    parser.add_argument(
        "--rdzv-timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long a host waits there for the last one (default: 600)",
    )


def _place_of(arguments: argparse.Namespace, spec: ExportSpec) -> MeetingPlace | None:
    """Where this host meets the others; None if there are none."""
    hosts: int = arguments.nodes
    if (hosts > 1) != (arguments.rdzv is not None) or hosts < 1:
        raise InvalidCommand("--nodes, of two or more, and --rdzv go together", hint="see --help")
    if arguments.rdzv_timeout <= 0:
        raise InvalidCommand("--rdzv-timeout is a number of seconds above 0")
    if hosts == 1:
        return None
    if spec.ranks is not None and spec.ranks < hosts:
        raise InvalidSpec(f"{hosts} hosts cannot share {spec.ranks} ranks", where="ranks")
    if len(spec.targets) > 1:
        raise InvalidSpec("several hosts export for one target at a time", where="target")
    return meeting_place(arguments.rdzv, hosts=hosts, time_limit=timedelta(seconds=arguments.rdzv_timeout))


def run(arguments: argparse.Namespace) -> int:
    """Export, show the progress, and end with what was published or why not."""
    if arguments.config is not None and "://" not in arguments.config:
        # By its URI and not its text: the manifest names it, and its relative paths are found beside it.
        arguments.config = Path(arguments.config).absolute().as_uri()
    store = MemoryJobStore()
    families = settings_or_exit(ExportSettings).families
    allowance = allowance_of(settings_or_exit(AllowanceSettings))
    control = JobControl(store=store, queue=MemoryQueue(), plan=planner(families))
    spec = spec_of(arguments)
    place = _place_of(arguments, spec)
    job = control.submit(spec)
    progress = sys.stderr if arguments.json else sys.stdout
    with tempfile.TemporaryDirectory(prefix="slipway-export-") as folder, display(progress) as show:
        supervisor = Supervisor(
            RanksLauncher(allowance, arguments.code_cache, place),
            worker_dir=Path(folder),
            time_limit=_NO_LIMIT,
            logs=MemoryLogs(),
            bundles=FolderBundles(arguments.bundles.absolute()) if arguments.bundles else None,
            signing_key=settings_or_exit(SigningSettings).key,
        )

        def show_progress() -> None:
            show(JobView.of(store.get(job.id)))

        while store.get(job.id).state is JobState.QUEUED:  # again after a failure that may pass
            supervisor.run(_claimed(store, job), on_beat=show_progress)
            show_progress()
    ended = JobView.of(store.get(job.id))
    if arguments.json:
        print(ended.model_dump_json())
    else:
        show_end(ended)
    return EXIT_CODES[ended.state]


def _claimed(store: MemoryJobStore, job: Job) -> Holding:
    """The job's next attempt; whether this machine can compile for its target, the attempt finds out."""
    holding = claim(store, job.id, worker=_WORKER, length=_NO_LIMIT, serves=job.spec.targets)
    assert holding is not None, "nobody else knows of this job"
    return holding
