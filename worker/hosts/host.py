"""Run this host's part of an attempt on several hosts: `python -m worker.hosts.host <workspace> <ranks> ...`.

Every host's supervisor starts one of these processes. They meet, agree on one job, and each runs its own
ranks as a single host would. Whatever ends one of them ends all, with the failure that was reported first;
the outcome is the one that the host of rank 0 reports. No host reads another's workspace.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from exporter.distributed.fork_ranks import exit_process
from exporter.distributed.hosts import Hosts, join_rendezvous
from exporter.distributed.rendezvous import Rendezvous, find_interface
from exporter.errors import AttemptFailed, ExportError, HostMissing, InvalidSpec
from exporter.outcome import ExportOutcome, Failure
from exporter.storage.store import ArtifactStore
from processes.interrupts import interrupt_on_end_signals
from processes.log_end import read_log_end
from processes.settings import inherited_environment
from worker.attempt.failed_rank import describe_failed_rank
from worker.attempt.workspace import Workspace, places_of, write_failure, write_outcome
from worker.hosts.host_consistency import AgreedJob, HostFacts, collect_host_facts

_REQUEST, _OUTCOME = "order", "outcome"  # names of messages from the host of rank 0
_LOOK_S = 0.2
_CAUSE_S = 3.0
_GRACE_S = 1.0  # between asking ranks to end and killing them
_OVERHANG_S = 10.0  # ranks of other hosts may run for so long after the outcome
_FOLDER_S = 30.0  # a shared folder may show new files with a delay


@dataclass(frozen=True)
class HostOfRanks:
    """This host's part of an attempt, with its workspace and its connection to the other hosts."""

    hosts: Hosts
    place: Rendezvous
    workspace: Workspace
    ranks: int  # on all hosts together
    own: HostFacts | Failure  # a failure to collect them is reported too, once all have met

    def run(self) -> Failure | None:
        """Run this host's ranks until the outcome (None), or until the failure of any host."""
        own = self.own if isinstance(self.own, Failure) else None
        try:
            if isinstance(self.own, HostFacts):
                self._agree_on_job(self.own)
                own = self._run_ranks()
        except ExportError as error:
            own = Failure.of(error)
        except KeyboardInterrupt:
            own = Failure.of(AttemptFailed(f"host {self.hosts.index} received a signal to stop"))
        if own is None or self.hosts.lost_host:
            return own
        try:
            first = self.hosts.announce_failure(own.model_dump_json())
        except HostMissing:
            return own
        self.hosts.leave()
        return Failure.model_validate_json(first)

    def _agree_on_job(self, own: HostFacts) -> None:
        """Adopt the job of the host of rank 0; check that all hosts mean the same export and store."""
        request = self.workspace.read_request()
        output = request.spec.output_uri
        store = places_of(request.uris).open_output(output, output)
        if self.hosts.leads:
            agreed = AgreedJob(job_id=request.job_id, folder=request.folder, common=own)
            store.write(BytesIO(), 0, agreed.mark)
            try:
                self.hosts.announce(_REQUEST, agreed.model_dump_json())
                for host in range(1, self.hosts.count):
                    self._await_message(f"{_REQUEST}-{host}")
            finally:
                store.delete(agreed.mark)
            return
        agreed = AgreedJob.read(self._await_message(_REQUEST), self.hosts.index)
        own.require_same_as(agreed.common, self.hosts.index)
        self._await_mark(agreed.mark, store)
        self.workspace.mark_as_helper()
        self.workspace.write_request(
            request.model_copy(update={"job_id": agreed.job_id, "folder": agreed.folder})
        )
        self.hosts.announce(f"{_REQUEST}-{self.hosts.index}", "agreed")

    def _await_mark(self, mark: str, store: ArtifactStore) -> None:
        deadline = time.monotonic() + _FOLDER_S
        while not store.exists(mark):
            self._require_all_hosts()
            if time.monotonic() > deadline:
                raise InvalidSpec(
                    f"{store.uri_of('')} is not the same place on host {self.hosts.index} as on the first",
                    hint="name an object store, or a folder that all hosts share",
                    where="output_uri",
                )
            time.sleep(_LOOK_S)

    def _await_message(self, name: str) -> str:
        while (message := self.hosts.read_announcement(name)) is None:
            self._require_all_hosts()
            time.sleep(_LOOK_S)
        return message

    def _run_ranks(self) -> Failure | None:
        """Run this host's ranks; return None once there is an outcome, else how they failed."""
        # Every n-th rank, not a consecutive block: towers are assigned from the first rank on.
        own = ["--first", str(self.hosts.index), "--step", str(self.hosts.count)]
        meeting = ["--meeting", f"tcp://{self.place.endpoint}"]
        ranks = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "worker.attempt.ranks",
                str(self.workspace.path),
                str(self.ranks),
                *own,
                *meeting,
            ],
            env=inherited_environment({"GLOO_SOCKET_IFNAME": find_interface(self.place.own_address())}),
        )
        try:
            return self._await_ranks(ranks)
        finally:
            _end_ranks(ranks)

    def _await_ranks(self, ranks: "subprocess.Popen[bytes]") -> Failure | None:
        outcome_at: float | None = None
        while (status := ranks.poll()) is None:
            self._require_all_hosts()
            if not self.hosts.leads and self.hosts.read_announcement(_OUTCOME) is not None:
                outcome_at = outcome_at or time.monotonic()
                if time.monotonic() - outcome_at > _OVERHANG_S:
                    break
            time.sleep(_LOOK_S)
        if status:
            return self._find_failure(status)
        if not self.hosts.leads:
            write_outcome(
                ExportOutcome.model_validate_json(self._await_message(_OUTCOME)), self.workspace.path
            )
        elif (outcome := self.workspace.read_outcome()) is None:
            return self._find_failure(0)
        else:
            self.hosts.announce(_OUTCOME, outcome.model_dump_json())
        self.hosts.leave()
        return None

    def _find_failure(self, status: int) -> Failure:
        if (failure := self.workspace.read_rank_failure()) is not None:
            return failure
        description = describe_failed_rank(read_log_end(self.workspace.log))
        if description is None or "was killed" not in description:
            self._await_cause()
        return Failure.of(
            AttemptFailed(description or f"ranks of host {self.hosts.index} ended with {status}")
        )

    def _await_cause(self) -> None:
        """Wait a moment for another host's failure, which may be why ranks here could not meet it."""
        deadline = time.monotonic() + _CAUSE_S
        while self.hosts.failure is None and self.hosts.lost_host is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def _require_all_hosts(self) -> None:
        """Raise if another host has failed, or is no longer heard of."""
        if self.hosts.failure is not None:
            raise AttemptFailed("another host has failed")  # that host has reported its failure itself
        if lost := self.hosts.lost_host:
            raise HostMissing(f"{lost} is no longer heard of", where=self.place.endpoint)


def main() -> None:
    """Run this host's part; exit with 1 when the attempt failed without an outcome."""
    parser = argparse.ArgumentParser(
        prog="worker.hosts.host", description="Run this host's part of an attempt."
    )
    parser.add_argument("workspace", type=Path)
    parser.add_argument("ranks", type=int)
    parser.add_argument("hosts", type=int)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("time_limit", type=float)
    parser.add_argument("--leads", action=argparse.BooleanOptionalAction)
    given = parser.parse_args()
    place = Rendezvous(
        hosts=given.hosts,
        address=given.address,
        port=given.port,
        time_limit=timedelta(seconds=given.time_limit),
        leads=given.leads,
    )
    interrupt_on_end_signals()
    workspace = Workspace.at(given.workspace)
    try:
        request = workspace.read_request()
        places = places_of(request.uris)
        own = collect_host_facts(request.spec, places, hosts=place.hosts, ranks=given.ranks)
        failure = HostOfRanks(join_rendezvous(place), place, workspace, given.ranks, own).run()
    except KeyboardInterrupt:  # the other hosts do not know of this one yet
        exit_process(1)
    except ExportError as error:
        failure = Failure.of(error)
    if failure is None:
        exit_process(0)
    workspace.remove_failures()
    write_failure(failure, 0, workspace.path)
    exit_process(1)


def _end_ranks(ranks: "subprocess.Popen[bytes]") -> None:
    """End the ranks, whose processes end with the one that started them."""
    ranks.terminate()
    try:
        ranks.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        ranks.kill()
        ranks.wait()


if __name__ == "__main__":
    main()
