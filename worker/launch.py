"""Start the ranks of an attempt as one group of processes that end together."""

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from exporter.distributed.rendezvous import Rendezvous
from exporter.families.own_code import FamilyFile, GivenModule
from processes.confinement import Confinement, format_limits
from processes.guarded_process import GuardedProcess
from processes.settings import CompilerSettings, compiler_folder, inherited_environment
from worker.attempt.workspace import Workspace
from worker.environment.attempt_environment import (
    AttemptEnvironment,
    make_attempt_environment,
    schemes_of,
)
from worker.machine.compiler_files import copy_precompiled, remove_old_files
from worker.resident.client import OOM_SCORE, ResidentProcess
from worker.resident.order import Order
from worker.settings import OWN_FAMILY, AttemptEnvironmentSettings, AttemptSettings

# From asking the ranks to end until killing them: a cancel must take effect within five seconds.
_GRACE = timedelta(seconds=2)


# What would start threads when it is imported: numpy's BLAS and Arrow's allocator.
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class Launcher(Protocol):
    """Starts an attempt's processes on a workspace that holds attempt.json."""

    def start(self, workspace: Workspace, *, ranks: int, place: Rendezvous | None = None) -> GuardedProcess:
        """Start all ranks, or, for an attempt on several hosts that meet at `place`, this host's ranks."""
        ...


class RanksLauncher:
    """Starts Slipway's own ranks: one process each, forked from one parent (see `worker.attempt.ranks`)."""

    def __init__(
        self,
        environment: AttemptEnvironment,
        code_cache: str | None = None,
        resident: ResidentProcess | None = None,
        own_family: FamilyFile | GivenModule | None = None,
    ) -> None:
        """Let attempts use `code_cache`, or by default the one that the environment names.

        Attempts on one host are forks of the `resident` process where there is one. `own_family` is a family
        of the person's own who started this program; no worker has one, whatever its environment says.
        """
        self._own = {OWN_FAMILY: own_family.model_dump_json() if own_family else None}
        self._environment = environment
        self._code_cache = code_cache
        self._resident = resident

    def start(self, workspace: Workspace, *, ranks: int, place: Rendezvous | None = None) -> GuardedProcess:
        command = [sys.executable, "-P", "-m", *_module_arguments(workspace, ranks, place)]
        remove_old_files(compiler_folder())
        compiler = CompilerSettings()
        if compiler.slipway_compiled_ahead is not None:
            copy_precompiled(compiler.slipway_compiled_ahead, compiler.torchinductor_cache_dir)
        resident = self._resident if place is None else None
        if place is not None:
            ranks = math.ceil(ranks / place.hosts)
            # Hosts write a file there to prove that all see the same place, and agree on the job only later.
            workspace = replace(workspace, artifact_uri=workspace.read_request().spec.output_uri)
        return _start_process(
            command, workspace, ranks, self._environment, self._code_cache, resident, self._own
        )


class CommandLauncher:
    """Starts one process of a given program, which stands in for rank 0."""

    def __init__(self, command: tuple[str, ...], environment: AttemptEnvironment) -> None:
        """Run `command` with the workspace's path as its last argument."""
        self._command = command
        self._environment = environment

    def start(self, workspace: Workspace, *, ranks: int, place: Rendezvous | None = None) -> GuardedProcess:
        return _start_process(
            [*self._command, str(workspace.path)], workspace, ranks, self._environment, None
        )


def _module_arguments(workspace: Workspace, ranks: int, place: Rendezvous | None) -> tuple[str, ...]:
    path = str(workspace.path)
    if place is None:
        return ("worker.attempt.ranks", path, str(ranks)) if ranks > 1 else ("worker.attempt.rank", path)
    limit = place.time_limit.total_seconds()
    meeting = (place.hosts, place.address, place.port, limit)
    leads = {None: (), True: ("--leads",), False: ("--no-leads",)}[place.leads]
    return ("worker.hosts.host", path, str(ranks), *map(str, meeting), *leads)


def make_launcher(
    command: tuple[str, ...] | None, settings: AttemptEnvironmentSettings, resident: ResidentProcess | None
) -> Launcher:
    """Return the launcher of `command`, or of Slipway's own ranks if there is none."""
    environment = make_attempt_environment(settings)
    if command is not None:
        return CommandLauncher(command, environment)
    return RanksLauncher(environment, resident=resident)


def make_resident(
    serves: int | None, settings: AttemptEnvironmentSettings, lease: timedelta = timedelta.max
) -> ResidentProcess:
    """Return a resident process, not started, that forks `serves` attempts before it is replaced.

    None stands for the attempts of one job.

    What it takes to notice that it hangs leaves half of a `lease`, which nobody renews meanwhile.
    """
    permits = make_attempt_environment(settings).make_confinement().permits
    environment = inherited_environment({**_variables(1), **WITHOUT_THREADS}, permits)
    return ResidentProcess(serves, environment, patience=lease / 4)


@contextlib.contextmanager
def resident_of_one_job(
    settings: AttemptEnvironmentSettings, *, wanted: bool
) -> Iterator[ResidentProcess | None]:
    """Import torch once for the job's attempts and for the processes that run packages; None if not wanted.

    It begins at once, while the job is planned.
    """
    if not wanted:
        yield None
        return
    resident = make_resident(None, settings)
    resident.start()
    try:
        yield resident
    finally:
        resident.stop()


def _start_process(
    command: list[str],
    workspace: Workspace,
    ranks: int,
    environment: AttemptEnvironment,
    code_cache: str | None,
    resident: ResidentProcess | None = None,
    own: Mapping[str, str | None] | None = None,
) -> GuardedProcess:
    cache = {} if code_cache is None else {"SLIPWAY_CODE_CACHE": code_cache}
    code_uri = code_cache or AttemptSettings().code_cache_uri
    renewal = environment.plan_credential_renewal(workspace, code_uri)
    variables = {
        "TMPDIR": str(workspace.tmp),
        **_variables(ranks),
        **cache,
        **(own or {OWN_FAMILY: None}),
        **(renewal.start() if renewal else {}),
    }
    confinement = environment.make_confinement(schemes_of(workspace, code_uri))
    process = _fork_process(resident, workspace, ranks, variables, confinement) if resident else None
    if process is None:
        process = GuardedProcess.start(
            command, log=workspace.log, grace=_GRACE, environment=variables, confinement=confinement
        )
        # When memory runs out, the kernel should kill the attempt, not the worker that reports what happened.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.guard.pid}/oom_score_adj").write_text(OOM_SCORE)
    if renewal is not None:
        renewal.renew_until(lambda: process.exit_status() is not None)
    return process


def _fork_process(
    resident: ResidentProcess,
    workspace: Workspace,
    ranks: int,
    variables: Mapping[str, str | None],
    confinement: Confinement,
) -> GuardedProcess | None:
    """Let the resident process fork the attempt; return None if it cannot."""
    order = Order(
        workspace=workspace.path,
        ranks=ranks,
        threads=_threads_of(ranks),
        grace_s=_GRACE.total_seconds(),
        limits=format_limits(confinement.limits),
    )
    forked = resident.fork(order, inherited_environment(variables, confinement.permits), workspace.log)
    return GuardedProcess(forked, _GRACE, workspace.log) if forked else None


def _variables(ranks: int) -> dict[str, str]:
    """Return the variables that torch and its libraries read when they are imported, and later."""
    return {
        # Not below TMPDIR: what the compiler learns about the machine must outlive the attempt.
        "TORCHINDUCTOR_CACHE_DIR": str(CompilerSettings().torchinductor_cache_dir),
        "OMP_NUM_THREADS": str(_threads_of(ranks)),
        # Spinning threads hold cores that others need: on two cores with three times too much work, a
        # package took ten times as long to compile, and an index five times as long to build.
        "OMP_WAIT_POLICY": "passive",
        # Libraries ask at import whether there is a GPU. The usual way starts the driver, after which no
        # fork of that process can use the GPU; and each tower is exported in a fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "GLOO_SOCKET_IFNAME": "lo",  # ranks meet on this machine, whatever its name resolves to
    }


def _threads_of(ranks: int) -> int:
    """Return the number of threads that each of so many ranks has."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)
