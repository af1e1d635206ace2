"""The client by its public name, against the application on a real socket."""

import asyncio
from collections.abc import Iterator

import pytest

from exporter.errors import ExportError
from slipway.client import AsyncClient, Client, ExportRequest, JobState, JobView, RequestRefused
from tests.service.conftest import backend, store, url
from tests.service.requests import export_request

__all__ = ["backend", "store", "url"]


def test_a_job_is_submitted_followed_and_stopped(url: str) -> None:
    slipway = Client(url)
    job = slipway.submit(ExportRequest.model_validate(export_request()), key="nightly-7")
    changes: Iterator[JobView] = slipway.events(job.id)
    assert next(changes) == job
    assert slipway.cancel(job.id).state is JobState.CANCELLED
    assert [each.state for each in changes] == [JobState.CANCELLED]


def test_the_same_without_waiting(url: str) -> None:
    async def submit_and_stop() -> JobState:
        async with AsyncClient(url) as slipway:
            job = await slipway.submit(ExportRequest.model_validate(export_request()))
            return (await slipway.cancel(job.id)).state

    assert asyncio.run(submit_and_stop()) is JobState.CANCELLED


def test_a_refusal_is_one_of_the_errors_it_offers(url: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        Client(url).get("nonsense")
    assert isinstance(refused.value, ExportError) and refused.value.code == "job_not_found"
