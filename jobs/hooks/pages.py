"""Pages of records about webhooks, as stores return them."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from jobs.hooks.deliveries import Delivery

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class BookPage(Generic[T]):
    """Records ordered by name; `next` continues after the last of them, None at the end."""

    records: tuple[T, ...]
    next: str | None


@dataclass(frozen=True)
class DeliveryPage:
    """Deliveries, newest first; `next` continues after the last of them, None at the end."""

    deliveries: tuple[Delivery, ...]
    next: str | None
