"""The proof of a lease: what ranks read in it, and when they treat the lease as lost."""

from datetime import timedelta
from pathlib import Path

import pytest

from exporter.errors import LeaseUnproven
from jobs.lease.lease_expiry import since_boot
from worker.lease.lease_proof import LeaseProof, await_proof

MINUTE = timedelta(minutes=1)
AT_ONCE = timedelta(0)


def test_a_lease_with_time_left_proves_the_job(tmp_path: Path) -> None:
    LeaseProof(tmp_path, MINUTE).renew(since_boot(), MINUTE)
    await_proof(tmp_path, AT_ONCE)


@pytest.mark.parametrize("remaining", [timedelta(seconds=9), timedelta(seconds=-1)])
def test_a_lease_about_to_end_proves_nothing(tmp_path: Path, remaining: timedelta) -> None:
    LeaseProof(tmp_path, MINUTE).renew(since_boot(), remaining)
    with pytest.raises(LeaseUnproven):
        await_proof(tmp_path, AT_ONCE)


def test_a_lease_that_is_another_s_proves_nothing(tmp_path: Path) -> None:
    proof = LeaseProof(tmp_path, MINUTE)
    proof.renew(since_boot(), MINUTE)
    proof.withdraw()
    with pytest.raises(LeaseUnproven):
        await_proof(tmp_path, AT_ONCE)
