"""A service that has something on every page: jobs, releases, triggers, subscriptions, deliveries."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
from fastapi import FastAPI

from jobs.hooks.deliveries import DeliveryState
from service.app import create_app
from service.dependencies import Backend
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.dashboard.planted import plant_jobs, plant_releases
from tests.dashboard.releases import MODEL
from tests.jobs.hooks.factories import SECRET
from tests.service.conftest import serving
from tests.service.hooks.events import rule, structured, training_event
from tests.service.hooks.receiver import WAIT_S, Receiver, running_receiver
from tests.service.requests import export_request


@dataclass(frozen=True, kw_only=True)
class Whole:
    """The running service, and the addresses of its pages by name."""

    url: str
    pages: dict[str, str]
    receiver: Receiver

    def address(self, name: str) -> str:
        return self.url + self.pages[name]


@contextmanager
def whole_service(redis_url: str, folder: Path) -> Iterator[Whole]:
    """A service without keys on a Redis that is empty."""
    hooks = HookSettings.model_validate(
        {
            "webhook_secrets": SECRET,
            "callback_secrets": SECRET,
            "callback_networks": "127.0.0.0/8",
            "callback_pauses": (timedelta(seconds=0.02),) * 3,
            "callback_poll": timedelta(seconds=0.05),
        }
    )
    app = create_app(ServiceSettings(redis_url=redis_url, hooks=hooks))
    with running_receiver() as receiver, serving(app) as url, httpx.Client(base_url=url) as client:
        pages = _plant(app, client, receiver, folder)
        yield Whole(url=url, pages=pages, receiver=receiver)


def _plant(app: FastAPI, client: httpx.Client, receiver: Receiver, folder: Path) -> dict[str, str]:
    """Fill the stores, and return the addresses of all pages."""
    backend: Backend = app.state.backend
    newest, jobs = plant_releases(backend, folder), plant_jobs(backend)
    delivery = _plant_hooks(client, receiver)
    done, failed = f"/jobs/{newest.id}", f"/jobs/{jobs['failed'].id}"
    return {
        "jobs": "/",
        "jobs-narrowed": f"/?model={MODEL}&label=team:ads",
        "jobs-none": "/?family=none",
        "job": done,
        "job-failed": failed,
        "job-running": f"/jobs/{jobs['running'].id}",
        "report": f"{done}/report",
        "plan": f"{done}/plan",
        "diff": f"{done}/diff",
        "log": f"/jobs/{jobs['running'].id}/log",
        "workers": "/workers",
        "models": "/pages/models",
        "model": f"/pages/models/{MODEL}",
        "figures": f"/pages/models/{MODEL}/figures",
        "triggers": "/pages/triggers",
        "trigger": "/pages/triggers/nightly",
        "subscriptions": "/pages/subscriptions",
        "deliveries": "/pages/deliveries",
        "delivery": f"/pages/deliveries/{delivery}",
        "api": "/docs",
        "documentation": "/documentation",
        "not-found": "/nowhere",
        "job-not-found": "/jobs/none",
    }


def _plant_hooks(client: httpx.Client, receiver: Receiver) -> str:
    """Set up triggers and subscriptions; return the id of a delivery that was given up."""
    receiver.answers = [500, 503, 500]
    client.put("/triggers/nightly", json=rule(labels={"run": "{id}"})).raise_for_status()
    client.put("/triggers/weekly", json={**rule(), "enabled": False}).raise_for_status()
    for event in (training_event("run-8"), training_event("run-9", checkpoint_uri=None)):
        body, headers = structured(event, message_id=f"msg-{event['id']}")
        client.post("/webhooks/training", content=body, headers=headers).raise_for_status()
    client.post(
        "/subscriptions", json={"url": f"{receiver.url}/all", "events": ["export.started"]}
    ).raise_for_status()
    request = export_request(callback_url=f"{receiver.url}/hook")
    job_id = client.post("/exports", json=request).raise_for_status().json()["id"]
    client.post(f"/exports/{job_id}/cancel").raise_for_status()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        asked = {"job": job_id, "state": DeliveryState.GIVEN_UP}
        for found in client.get("/deliveries", params=asked).json()["deliveries"]:
            return str(found["id"])
        time.sleep(0.05)
    raise AssertionError("no delivery was given up")
