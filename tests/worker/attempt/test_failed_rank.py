"""The rank that ended the others is found in the log, unless it reported its failure itself."""

from exporter.outcome import Failure
from jobs.lease.leases import Holding
from jobs.model import JobState
from tests.worker.conftest import MakeSupervisor
from worker.attempt.failed_rank import describe_failed_rank

LOG = """[rank0]: reading
[rank1]: ValueError: of rank 1
rank 1 ended with status 1; the other ranks are ended
[rank0]: the last of rank 0
"""


def test_the_rank_is_named_with_what_it_wrote() -> None:
    assert describe_failed_rank(LOG) == (
        "rank 1 ended with status 1, and the other ranks were ended; what it wrote ends:\n"
        "ValueError: of rank 1"
    )


def test_a_rank_that_wrote_nothing_is_named_too() -> None:
    killed = "rank 2 was killed by SIGKILL; the other ranks are ended\n"
    assert describe_failed_rank(killed) == "rank 2 was killed by SIGKILL, and the other ranks were ended"
    assert describe_failed_rank("[rank0]: rank 1 ended with status 1; the other ranks are ended\n") is None


def test_a_rank_that_could_not_join_the_others_tells_the_attempts_failure(
    make_supervisor: MakeSupervisor, holding: Holding
) -> None:
    job = make_supervisor("rank-fails").run(holding)
    assert job is not None
    assert (job.state, job.failure) == (
        JobState.FAILED,
        Failure(code="uri_not_allowed", message="rank 1 may not read it"),
    )
