"""Start the ranks of an attempt as one group of processes that end together."""

import contextlib
import math
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from exporter.distributed.rendezvous import Rendezvous
from processes.guarded_process import GuardedProcess
from processes.settings import CompilerSettings, compiler_folder
from worker.attempt.workspace import Workspace
from worker.environment.attempt_environment import (
    AttemptEnvironment,
    make_attempt_environment,
    schemes_of,
)
from worker.machine.compiler_files import copy_precompiled, remove_old_files
from worker.settings import AttemptEnvironmentSettings, AttemptSettings

# From asking the ranks to end until killing them: a cancel must take effect within five seconds.
_GRACE = timedelta(seconds=2)
_OOM_SCORE = "500"  # of at most 1000; a worker's is 0


class Launcher(Protocol):
    """Starts an attempt's processes on a workspace that holds attempt.json."""

    def start(self, workspace: Workspace, *, ranks: int, place: Rendezvous | None = None) -> GuardedProcess:
        """Start all ranks, or, for an attempt on several hosts that meet at `place`, this host's ranks."""
        ...


class RanksLauncher:
    """Starts Slipway's own ranks: one process each, forked from one parent (see `worker.attempt.ranks`)."""

    def __init__(self, environment: AttemptEnvironment, code_cache: str | None = None) -> None:
        """Let attempts use `code_cache`, or by default the one that the environment names."""
        self._environment = environment
        self._code_cache = code_cache

    def start(self, workspace: Workspace, *, ranks: int, place: Rendezvous | None = None) -> GuardedProcess:
        command = [sys.executable, "-m", *_module_arguments(workspace, ranks, place)]
        remove_old_files(compiler_folder())
        compiler = CompilerSettings()
        if compiler.slipway_compiled_ahead is not None:
            copy_precompiled(compiler.slipway_compiled_ahead, compiler.torchinductor_cache_dir)
        if place is not None:
            ranks = math.ceil(ranks / place.hosts)
            # Hosts write a file there to prove that all see the same place, and agree on the job only later.
            workspace = replace(workspace, artifact_uri=workspace.read_request().spec.output_uri)
        return _start_process(command, workspace, ranks, self._environment, self._code_cache)


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


def make_launcher(command: tuple[str, ...] | None, settings: AttemptEnvironmentSettings) -> Launcher:
    """Return the launcher of `command`, or of Slipway's own ranks if there is none."""
    environment = make_attempt_environment(settings)
    return RanksLauncher(environment) if command is None else CommandLauncher(command, environment)


def _start_process(
    command: list[str],
    workspace: Workspace,
    ranks: int,
    environment: AttemptEnvironment,
    code_cache: str | None,
) -> GuardedProcess:
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    cache = {} if code_cache is None else {"SLIPWAY_CODE_CACHE": code_cache}
    code_uri = code_cache or AttemptSettings().code_cache_uri
    renewal = environment.plan_credential_renewal(workspace, code_uri)
    process = GuardedProcess.start(
        command,
        log=workspace.log,
        grace=_GRACE,
        environment={
            "TMPDIR": str(workspace.tmp),
            # Not below TMPDIR: what the compiler learns about the machine must outlive the attempt.
            "TORCHINDUCTOR_CACHE_DIR": str(CompilerSettings().torchinductor_cache_dir),
            "OMP_NUM_THREADS": str(threads),
            # Spinning threads hold cores that others need: on two cores with three times too much work, a
            # package took ten times as long to compile, and an index five times as long to build.
            "OMP_WAIT_POLICY": "passive",
            # Libraries ask at import whether there is a GPU. The usual way starts the driver, after which no
            # fork of that process can use the GPU; and each tower is exported in a fork.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": "lo",  # ranks meet on this machine, whatever its name resolves to
            **cache,
            **(renewal.start() if renewal else {}),
        },
        confinement=environment.make_confinement(schemes_of(workspace, code_uri)),
    )
    if renewal is not None:
        renewal.renew_until(lambda: process.exit_status() is not None)
    # When memory runs out, the kernel should kill the attempt, not the worker that reports what happened.
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.guard.pid}/oom_score_adj").write_text(_OOM_SCORE)
    return process
