"""`slipway export`: the whole export on this machine, without the service."""

import argparse
import sys
import tempfile
from pathlib import Path

from cli.options.baseline import add_baseline_option, find_context
from cli.options.code_cache import add_code_cache_option
from cli.options.family import list_families, take_own_family
from cli.options.several_hosts import add_host_options, rendezvous_of
from exporter.aoti.probe.start import require_usable_torch
from jobs.control.control import JobControl
from jobs.diagnostics.bundles import FolderBundles
from jobs.diagnostics.logs import MemoryLogs
from jobs.lease.local_job import NO_LIMIT, claim_attempt
from jobs.model import JobState
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from processes.startup import settings_or_exit
from service.client.local_job import answer_of
from service.client.options import add_spec_options, spec_of
from service.client.watch import display, exit_code, show_as_json, show_end
from service.planning import planner
from worker.environment.attempt_environment import make_attempt_environment
from worker.launch import RanksLauncher, resident_of_one_job
from worker.settings import AttemptEnvironmentSettings, SigningSettings
from worker.supervisor import Supervisor

_EXAMPLE = (
    "example: slipway export --config pipeline.config --checkpoint model.ckpt-11 "
    "--item-input items.parquet --sample-input train.parquet --output exports/"
)


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `export`."""
    parser = subparsers.add_parser(
        "export",
        help="export a model here, without the service",
        description="Export a model here. Exit code: 0 succeeded, 1 failed, 3 partially succeeded, "
        "4 published and not blessed by --release-gate.",
        epilog=_EXAMPLE,
    )
    add_spec_options(parser)
    add_code_cache_option(parser)
    add_host_options(parser)
    parser.add_argument(
        "--bundles",
        metavar="FOLDER",
        type=Path,
        help="folder for the diagnostics of towers that fail, one zip file per tower",
    )
    add_baseline_option(parser)
    parser.add_argument("--json", action="store_true", help="print the job as JSON at the end")
    parser.set_defaults(run=run, needs="exporter")


def run(arguments: argparse.Namespace) -> int:
    """Export, show the progress, and print at the end what was published or why not."""
    if arguments.config is not None and "://" not in arguments.config:
        # As a URI and not as text: the manifest names it, and relative paths in it begin at its folder.
        arguments.config = Path(arguments.config).absolute().as_uri()
    require_usable_torch()
    store = MemoryJobStore()
    own = take_own_family(arguments)
    attempt_settings = settings_or_exit(AttemptEnvironmentSettings)
    environment = make_attempt_environment(attempt_settings)
    control = JobControl(store=store, queue=MemoryQueue(), plan=planner(list_families(own)))
    spec = spec_of(arguments)
    context = find_context(spec, arguments.baseline)
    rendezvous = rendezvous_of(spec, arguments)
    progress = sys.stderr if arguments.json else sys.stdout
    with (
        tempfile.TemporaryDirectory(prefix="slipway-export-") as folder,
        resident_of_one_job(attempt_settings, wanted=rendezvous is None) as resident,
        display(progress) as show,
    ):
        job = control.submit(spec)
        supervisor = Supervisor(
            RanksLauncher(environment, arguments.code_cache, resident, own_family=own),
            worker_dir=Path(folder),
            time_limit=NO_LIMIT,
            logs=MemoryLogs(),
            bundles=FolderBundles(arguments.bundles.absolute()) if arguments.bundles else None,
            signing_key=settings_or_exit(SigningSettings).key,
            find_context=lambda job, store: context,
        )

        def show_progress() -> None:
            show(answer_of(store.get(job.id)))

        while store.get(job.id).state is JobState.QUEUED:  # also after a transient failure
            supervisor.run(claim_attempt(store, job), on_beat=show_progress, place=rendezvous)
            show_progress()
    view = answer_of(store.get(job.id))
    if arguments.json:
        show_as_json(view)
    else:
        show_end(view)
    return exit_code(view)
