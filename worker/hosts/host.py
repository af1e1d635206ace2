"""This host's part of an attempt on several: `python -m worker.hosts.host <workspace> <ranks> ...`.

Every host's supervisor starts one. They meet, agree on one job, and each runs its own ranks as a single host
would. Whatever ends one of them ends all, with the failure that was reported first; the outcome is the one
that the host of rank 0 reports. No host reads another's workspace.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from exporter.distributed.fork_ranks import end
from exporter.distributed.hosts import Hosts, meet
from exporter.distributed.meeting import MeetingPlace, interface_of
from exporter.errors import AttemptFailed, ExportError, HostMissing, InvalidSpec
from exporter.outcome import ExportOutcome, Failure
from exporter.storage.open import open_store
from exporter.storage.store import ArtifactStore
from processes.interrupts import end_as_by_interrupt
from processes.log_end import end_of
from processes.settings import inherited_environment
from worker.attempt.failed_rank import failed_rank
from worker.attempt.workspace import Workspace, write_failure, write_outcome
from worker.hosts.host_consistency import Agreed, Common, common_of

_ORDER, _OUTCOME = "order", "outcome"  # what the host of rank 0 tells
_LOOK_S = 0.2
_CAUSE_S = 3.0
_GRACE_S = 1.0  # between asking ranks to end and killing them
_OVERHANG_S = 10.0  # ranks of other hosts may be at work for so long after the outcome
_FOLDER_S = 30.0  # a shared folder may show new files late


@dataclass(frozen=True)
class HostOfRanks:
    """This host, with its workspace, among the others."""

    hosts: Hosts
    place: MeetingPlace
    workspace: Workspace
    ranks: int  # of all hosts
    own: Common | Failure  # a failure to find it out is reported as well, once all have met

    def run(self) -> Failure | None:
        """Run the ranks that are here, to the outcome of all; or to the failure of any."""
        own = self.own if isinstance(self.own, Failure) else None
        try:
            if isinstance(self.own, Common):
                self._agree(self.own)
                own = self._run_ranks()
        except ExportError as error:
            own = Failure.of(error)
        except KeyboardInterrupt:
            own = Failure.of(AttemptFailed(f"host {self.hosts.index} was told to end"))
        if own is None or self.hosts.lost:
            return own
        try:
            told = self.hosts.fail(own.model_dump_json())
        except HostMissing:
            return own
        self.hosts.leave()
        return Failure.model_validate_json(told)

    def _agree(self, own: Common) -> None:
        """Make the job of the host of rank 0 this host's; see that all mean the same export and store."""
        order = self.workspace.order()
        store = open_store(order.spec.output_uri)
        if self.hosts.leads:
            agreed = Agreed(job_id=order.job_id, folder=order.folder, common=own)
            store.write(BytesIO(), 0, agreed.mark)
            try:
                self.hosts.tell(_ORDER, agreed.model_dump_json())
                for host in range(1, self.hosts.count):
                    self._awaited(f"{_ORDER}-{host}")
            finally:
                store.delete(agreed.mark)
            return
        agreed = Agreed.read(self._awaited(_ORDER), self.hosts.index)
        own.require_that_of(agreed.common, self.hosts.index)
        self._find(agreed.mark, store)
        self.workspace.help()
        self.workspace.write(order.model_copy(update={"job_id": agreed.job_id, "folder": agreed.folder}))
        self.hosts.tell(f"{_ORDER}-{self.hosts.index}", "agreed")

    def _find(self, mark: str, store: ArtifactStore) -> None:
        deadline = time.monotonic() + _FOLDER_S
        while not store.exists(mark):
            self._look()
            if time.monotonic() > deadline:
                raise InvalidSpec(
                    f"{store.uri_of('')} is not the same place on host {self.hosts.index} as on the first",
                    hint="name an object store, or a folder that all hosts share",
                    where="output_uri",
                )
            time.sleep(_LOOK_S)

    def _awaited(self, name: str) -> str:
        while (told := self.hosts.told(name)) is None:
            self._look()
            time.sleep(_LOOK_S)
        return told

    def _run_ranks(self) -> Failure | None:
        """None once there is an outcome; else how the ranks that are here failed."""
        # Every so many, and not one after the other: towers are shared out from the first rank on.
        own = ["--first", str(self.hosts.index), "--step", str(self.hosts.count)]
        meeting = ["--meeting", f"tcp://{self.place.endpoint}"]
        ranks = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "worker.attempt.ranks",
                str(self.workspace.path),
                str(self.ranks),
                *own,
                *meeting,
            ],
            env=inherited_environment({"GLOO_SOCKET_IFNAME": interface_of(self.place.own_address())}),
        )
        try:
            return self._attend(ranks)
        finally:
            _end(ranks)

    def _attend(self, ranks: "subprocess.Popen[bytes]") -> Failure | None:
        told_at: float | None = None
        while (status := ranks.poll()) is None:
            self._look()
            if not self.hosts.leads and self.hosts.told(_OUTCOME) is not None:
                told_at = told_at or time.monotonic()
                if time.monotonic() - told_at > _OVERHANG_S:
                    break
            time.sleep(_LOOK_S)
        if status:
            return self._failure(status)
        if not self.hosts.leads:
            write_outcome(ExportOutcome.model_validate_json(self._awaited(_OUTCOME)), self.workspace.path)
        elif (outcome := self.workspace.outcome()) is None:
            return self._failure(0)
        else:
            self.hosts.tell(_OUTCOME, outcome.model_dump_json())
        self.hosts.leave()
        return None

    def _failure(self, status: int) -> Failure:
        if (failure := self.workspace.failure_of_rank()) is not None:
            return failure
        told = failed_rank(end_of(self.workspace.log))
        if told is None or "was killed" not in told:
            self._hear_of_the_cause()
        return Failure.of(AttemptFailed(told or f"ranks of host {self.hosts.index} ended with {status}"))

    def _hear_of_the_cause(self) -> None:
        """A rank that fails as it meets the others may do so because one of them, elsewhere, has died."""
        deadline = time.monotonic() + _CAUSE_S
        while self.hosts.failure is None and self.hosts.lost is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def _look(self) -> None:
        """Raise what ends this host's ranks, if anything does."""
        if self.hosts.failure is not None:
            raise AttemptFailed("another host has failed")  # which one, and how, it has told itself
        if lost := self.hosts.lost:
            raise HostMissing(f"{lost} has not been heard of any more", where=self.place.endpoint)


def main() -> None:
    """Run this host's part; the exit code is 1 when the attempt failed without an outcome."""
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
    place = MeetingPlace(
        hosts=given.hosts,
        address=given.address,
        port=given.port,
        time_limit=timedelta(seconds=given.time_limit),
        leads=given.leads,
    )
    end_as_by_interrupt()
    workspace = Workspace.at(given.workspace)
    try:
        own = common_of(workspace.order().spec, hosts=place.hosts, ranks=given.ranks)
        failure = HostOfRanks(meet(place), place, workspace, given.ranks, own).run()
    except KeyboardInterrupt:  # while nobody else knew of this host
        end(1)
    except ExportError as error:
        failure = Failure.of(error)
    if failure is None:
        end(0)
    workspace.forget_failures()
    write_failure(failure, 0, workspace.path)
    end(1)


def _end(ranks: "subprocess.Popen[bytes]") -> None:
    """End the ranks, whose processes end with the one that started them."""
    ranks.terminate()
    try:
        ranks.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        ranks.kill()
        ranks.wait()


if __name__ == "__main__":
    main()
