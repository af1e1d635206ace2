"""A worker counts as gone only if neither the store nor its clock explains the expired lease."""

from datetime import timedelta

import pytest

from jobs.ids import new_job_id
from tests.jobs.factories import MINUTE, NOW
from tests.jobs.lease_monitors import World

SECOND = timedelta(seconds=1)


@pytest.fixture
def world() -> World:
    world = World()
    world.sleep(61)
    return world


def test_who_does_not_renew_is_gone(world: World) -> None:
    job, other = new_job_id(), new_job_id()
    leases = {job: world.now - SECOND, other: world.now + SECOND}
    assert world.lease_monitor.find_expired(leases, world.now) == {job: world.now - SECOND}


def test_a_program_that_has_just_begun_judges_nobody() -> None:
    world = World()
    world.sleep(59)
    assert world.lease_monitor.find_expired({new_job_id(): NOW - SECOND}, world.now) == {}


def test_after_an_outage_everybody_has_a_lease_s_time_to_come_back(world: World) -> None:
    ended = {new_job_id(): world.now - SECOND}
    world.sleep(300, writes=False)
    assert not world.lease_monitor.may_expire(world.now)
    world.sleep(59)
    assert world.lease_monitor.find_expired(ended, world.now) == {}
    world.sleep(2)
    assert world.lease_monitor.find_expired(ended, world.now) == ended


def test_a_store_that_can_only_be_read_has_nobody_judged(world: World) -> None:
    ended = {new_job_id(): world.now - SECOND}
    for _ in range(40):
        world.sleep(2, writes=False)
        world.lease_monitor.may_expire(world.now)  # by what it read
    assert world.lease_monitor.find_expired(ended, world.now) == {}
    world.sleep(1)
    assert world.lease_monitor.find_expired(ended, world.now) == {}


def test_a_silence_that_a_lease_does_not_survive_is_an_outage(world: World) -> None:
    world.sleep(31, writes=False)
    assert not world.lease_monitor.may_expire(world.now)


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_was_set_ends_no_lease(world: World, jump: int) -> None:
    ended = {new_job_id(): world.now - 2 * timedelta(hours=1)}
    world.now += jump * SECOND
    assert world.lease_monitor.find_expired(ended, world.now) == {}
    world.sleep(61)
    assert world.lease_monitor.find_expired(ended, world.now) == ended


def test_a_lease_from_before_the_clock_was_set_back_ends_if_nobody_writes_it_anew(world: World) -> None:
    dead, alive = new_job_id(), new_job_id()
    until = world.now + timedelta(hours=1)
    assert world.lease_monitor.find_expired({dead: until}, world.now) == {}
    world.sleep(181)
    leases = {dead: until, alive: until + SECOND}  # the latter was not there before
    assert world.lease_monitor.find_expired(leases, world.now) == {dead: until}


def test_a_lease_of_a_worker_with_longer_ones_is_left_to_it(world: World) -> None:
    """The worker's leases are eight times as long as ours, and it renews them in their second third."""
    job = new_job_id()
    for _ in range(3):
        until = world.now + 8 * MINUTE
        for _ in range(16):
            assert world.lease_monitor.find_expired({job: until}, world.now) == {}
            world.sleep(10)
