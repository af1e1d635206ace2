"""Requests of callers; the service checks the values, and `docs/openapi.json` describes every field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipway.rest.names import Device, EventType, Mode, Priority, TowerName

# Options that have fields of their own: tables, passes, an index, a release gate.
Options = Mapping[str, object]


class JsonModel(Protocol):
    """A request as a model of pydantic's."""

    def model_dump_json(self, *, exclude_unset: bool) -> str: ...


Body = Mapping[str, object] | JsonModel  # a request as JSON, or as somebody else's model of it


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options that a plan and an export have in common; None leaves the service's default."""

    config: str | None = None
    config_uri: str | None = None
    family: str | None = None
    assets_uri: str | None = None
    sample_input_uri: str | None = None
    item_input_uri: str | None = None
    mode: Mode | str | None = None
    layout: str | None = None
    triton_prefix: str | None = None
    device: Device | str | None = None
    target: str | Sequence[str] | None = None
    torch: str | None = None
    towers: Sequence[TowerName | str] | None = None
    max_batch_size: int | None = None
    sample_rows: int | None = None
    strict_bounds: bool | None = None
    precision: str | None = None
    fp32_tolerance: float | None = None
    tf32: bool | None = None
    kernel: str | None = None
    tables: Options | str | None = None
    id_weights: str | None = None
    passes: Sequence[Options] | None = None
    allow_inferred_ops: bool | None = None
    materialise_items: bool | None = None
    item_id_column: str | None = None
    item_index: Options | None = None
    release_gate: Options | None = None
    ranks: int | None = None
    nodes: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlanRequest(ModelOptions):
    """Request to plan an export without running it; a plan needs only the config."""

    checkpoint_uri: str | None = None
    output_uri: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExportRequest(ModelOptions):
    """The body of POST /exports."""

    checkpoint_uri: str
    output_uri: str
    model: str | None = None
    labels: Mapping[str, str] | None = None
    priority: Priority | str | None = None
    callback_url: str | None = None
    force: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SubscriptionRequest:
    """A URL to send events to, and the types of events; None leaves the service's default."""

    url: str
    events: Sequence[EventType | str] | None = None
    secret: str | None = None
