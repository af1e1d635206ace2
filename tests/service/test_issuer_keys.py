"""The issuer's keys are fetched once for many tokens, within bounds, and replaced when the issuer does."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator

import pytest

from service.access.issuer_keys import FRESH_S, PAUSE_S, TRUSTED_S, IssuerKeys, read_keys
from service.errors import IssuerUnreachable
from tests.service.issuer import (
    ISSUER,
    MISBEHAVIOURS,
    IssuerServer,
    Signer,
    hang,
    publishing,
    serving_issuer,
)

OLD, NEW = Signer("old"), Signer("new")
LONG_S = 60.0  # far more than any of this takes


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[IssuerServer]:
    with serving_issuer(publishing([OLD])) as server:
        yield server


def run(keys: IssuerKeys, use: Callable[[IssuerKeys], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(LONG_S):
            await use(keys)

    asyncio.run(within())


async def reached(issuer: IssuerServer, times: int) -> None:
    """Wait until this many fetches have reached the issuer."""
    while issuer.asked < times:
        await asyncio.sleep(0.01)


async def fetched(issuer: IssuerServer, times: int) -> None:
    """Wait until this many fetches have ended."""
    await reached(issuer, times)
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "issuer-keys"))


async def outcome(keys: IssuerKeys, key_id: str) -> str:
    try:
        found = await keys.find(key_id)
    except IssuerUnreachable:
        return "unreachable"
    return "unknown" if found is None else str(found.key_id)


@pytest.mark.parametrize("how", MISBEHAVIOURS)
def test_an_issuer_that_misbehaves_is_unreachable_once_and_remembered(how: str) -> None:
    with serving_issuer(MISBEHAVIOURS[how]) as issuer:
        clock = Clock()
        keys = IssuerKeys(ISSUER, issuer.url, clock=clock, fetch_s=0.3)

        async def use(keys: IssuerKeys) -> None:
            found = await asyncio.gather(*(outcome(keys, f"k{number}") for number in range(60)))
            assert set(found) == {"unreachable"} and issuer.asked == 1
            assert await outcome(keys, "k") == "unreachable" and issuer.asked == 1
            issuer.answer = publishing([OLD])
            assert await outcome(keys, "old") == "unreachable" and issuer.asked == 1
            while await outcome(keys, "old") != "old":  # on a busy machine not at once
                clock.now += PAUSE_S + 1

        run(keys, use)


def test_nothing_is_fetched_before_a_token_comes(issuer: IssuerServer) -> None:
    IssuerKeys(ISSUER, issuer.url)
    assert issuer.asked == 0


def test_invented_key_ids_cause_one_fetch_in_each_pause(issuer: IssuerServer) -> None:
    clock = Clock()

    async def use(keys: IssuerKeys) -> None:
        assert await outcome(keys, "old") == "old"
        for number in range(60):
            assert await outcome(keys, f"k{number}") == "unknown"
        assert issuer.asked == 1
        clock.now += PAUSE_S + 1
        assert set(await asyncio.gather(*(outcome(keys, f"k{n}") for n in range(60)))) == {"unknown"}
        assert issuer.asked == 2

    run(IssuerKeys(ISSUER, issuer.url, clock=clock, fetch_s=LONG_S), use)


def test_a_new_key_is_accepted_at_once_and_a_dropped_one_no_longer(issuer: IssuerServer) -> None:
    clock = Clock()

    async def use(keys: IssuerKeys) -> None:
        assert await outcome(keys, "old") == "old"
        issuer.answer = publishing([NEW])
        clock.now += PAUSE_S + 1
        assert await outcome(keys, "new") == "new"
        assert await outcome(keys, "old") == "unknown"

    run(IssuerKeys(ISSUER, issuer.url, clock=clock, fetch_s=LONG_S), use)


def test_old_keys_serve_while_newer_ones_are_fetched(issuer: IssuerServer) -> None:
    clock = Clock()

    async def use(keys: IssuerKeys) -> None:
        assert await outcome(keys, "old") == "old"
        issuer.answer = hang
        clock.now += FRESH_S + 1
        for _ in range(5):
            assert await outcome(keys, "old") == "old"
        await reached(issuer, 2)
        issuer.let_go()
        await fetched(issuer, 2)
        issuer.answer = publishing([NEW])
        clock.now += PAUSE_S + 1
        assert await outcome(keys, "old") == "old"  # for the last time: it has been dropped
        await fetched(issuer, 3)
        assert [await outcome(keys, each) for each in ("old", "new")] == ["unknown", "new"]

    run(IssuerKeys(ISSUER, issuer.url, clock=clock, fetch_s=LONG_S), use)


def test_keys_are_trusted_for_an_hour_without_the_issuer(issuer: IssuerServer) -> None:
    clock = Clock()

    async def use(keys: IssuerKeys) -> None:
        assert await outcome(keys, "old") == "old"
        issuer.answer = MISBEHAVIOURS["answers 500"]
        clock.now += TRUSTED_S - 1
        assert await outcome(keys, "old") == "old"
        await fetched(issuer, 2)
        assert await outcome(keys, "new") == "unreachable"  # perhaps a new key: nobody can say
        clock.now += 2
        assert await outcome(keys, "old") == "unreachable"

    run(IssuerKeys(ISSUER, issuer.url, clock=clock, fetch_s=LONG_S), use)


def test_a_caller_that_leaves_does_not_end_the_fetch_of_the_others(issuer: IssuerServer) -> None:
    async def use(keys: IssuerKeys) -> None:
        issuer.answer = hang
        leaving, staying = (asyncio.create_task(outcome(keys, "old")) for _ in range(2))
        await reached(issuer, 1)
        leaving.cancel()
        publishing([OLD])(issuer.connections[0])
        assert await staying == "old" and issuer.asked == 1

    run(IssuerKeys(ISSUER, issuer.url, fetch_s=LONG_S), use)


def test_an_answer_without_an_end_is_left_before_its_time_is_over() -> None:
    async def use(keys: IssuerKeys) -> None:
        assert await outcome(keys, "old") == "unreachable"

    with serving_issuer(MISBEHAVIOURS["sends without an end"]) as issuer:
        run(IssuerKeys(ISSUER, issuer.url, fetch_s=100 * LONG_S), use)


def test_only_keys_that_verify_signatures_are_taken() -> None:
    listed = [
        OLD.public,
        {**NEW.public, "kid": "enc", "use": "enc"},
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
        {"kty": "later", "kid": "unheard-of"},
        {name: value for name, value in NEW.public.items() if name != "kid"},
    ]

    assert read_keys(json.dumps({"keys": listed}).encode()).keys() == {"old"}
