"""The small tower of tests/exporter/verify, and its package."""

from tests.exporter.verify.conftest import chain, tower

__all__ = ["chain", "tower"]
