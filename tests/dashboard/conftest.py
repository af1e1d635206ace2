"""The pages are of the same application as the API."""

from tests.service.conftest import backend, client, store

__all__ = ["backend", "client", "store"]
