"""Accepting exports on the event loop of an API whose jobs are in Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from jobs.control.at_once import SubmitAtOnce
from jobs.control.control import JobControl
from jobs.control.own_files import OwnFiles
from jobs.fleet.roster import WorkerNotice, list_releases
from jobs.short_memory import Kept, KeptClock
from jobs.stores.redis_async import AsyncAdder
from service.planning import find_plan
from service.settings import ServiceSettings
from service.submit.submission import AtOnce


@asynccontextmanager
async def accepting_at_once(
    settings: ServiceSettings, jobs: JobControl, clock: KeptClock, alive: Kept[tuple[WorkerNotice, ...]]
) -> AsyncIterator[AtOnce]:
    """Connect to Redis as long as the block lasts, and until all that was begun in it has ended.

    `clock` and `alive` are read by threads only.
    """
    find = partial(find_plan, families=settings.families)
    releases = partial(list_releases, settings.torch_releases, alive.find)
    at_hand = replace(jobs, plan=find, identify=OwnFiles().stat, now=clock.find_now, torch_releases=releases)
    adder = AsyncAdder(settings.redis_url)
    at_once = AtOnce(SubmitAtOnce(at_hand, adder.add), alive.find)
    yield at_once
    await at_once.unbroken.join()
    await adder.close()
