"""The public Python client: `from slipway.client import Client, AsyncClient`."""

from exporter.errors import ExportError
from exporter.manifest import Manifest
from exporter.spec import Device, ExportSpec, Mode, TowerName
from exporter.towers.plan import PlanRequest
from jobs.control.releases import Release
from jobs.model import JobState, TowerState
from jobs.request import ExportRequest, Priority
from service.client.asynchronous import AsyncSlipwayClient as AsyncClient
from service.client.errors import RequestRefused, ServiceUnreachable
from service.client.rest import SlipwayClient as Client
from service.schemas import JobList, JobLog, JobView, ModelList, PlanView

__all__ = [
    "AsyncClient",
    "Client",
    "Device",
    "ExportError",
    "ExportRequest",
    "ExportSpec",
    "JobList",
    "JobLog",
    "JobState",
    "JobView",
    "Manifest",
    "Mode",
    "ModelList",
    "PlanRequest",
    "PlanView",
    "Priority",
    "Release",
    "RequestRefused",
    "ServiceUnreachable",
    "TowerName",
    "TowerState",
]
