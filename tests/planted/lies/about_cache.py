"""Lies of the code cache: what it returns for a request is damaged, stale, or of something else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from exporter.aoti.code import ProgramCode
from exporter.code_cache.cache import CodeCache
from exporter.storage.local import LocalStore
from tests.planted.lies.lie import Lie, Plant

Codes = tuple[ProgramCode, ...]


def _find_otherwise(change: Callable[[Codes], Codes]) -> Plant:
    """Plant a cache that returns other code for a request than was kept for it."""

    def patched() -> Any:
        honest = CodeCache.find_request
        return mock.patch.object(CodeCache, "find_request", lambda cache, key: change(honest(cache, key)))

    return patched


def _read_otherwise(suffix: str, change: Callable[[bytes], bytes]) -> Plant:
    """Plant a store that returns other bytes of the cache's files."""

    def patched() -> Any:
        honest = LocalStore.read

        def read(store: LocalStore, key: str, **named: Any) -> bytes:
            data = honest(store, key, **named)
            return change(data) if key.endswith(suffix) else data

        return mock.patch.object(LocalStore, "read", read)

    return patched


def _with_swapped_outputs(codes: Codes) -> Codes:
    return tuple(replace(code, outputs=code.outputs[::-1]) for code in codes)


def _with_other_library(codes: Codes) -> Codes:
    """Return code whose library was cut off, as an entry of an earlier layout could be."""
    return tuple(
        replace(
            code,
            code=replace(
                code.code,
                files={
                    name: data[:4096] if Path(name).suffix == ".so" else data
                    for name, data in code.code.files.items()
                },
            ),
        )
        for code in codes
    )


def _lie(name: str, does: str, plant: Plant, *says: str, family: str = "ScorerFamily", **spec: object) -> Lie:
    return Lie(
        name=name,
        does=does,
        plant=plant,
        code="",
        says=says,
        family=family,
        spec=spec,
        warm=True,
        recovers=True,
    )


LIES = (
    _lie(
        "cache_flipped_bit",
        "one bit of the cached code is another",
        _read_otherwise(".zip", lambda data: data[:4000] + bytes([data[4000] ^ 1]) + data[4001:]),
        "dropped of it: code/",
        "it is damaged, or of another graph",
    ),
    _lie(
        "cache_other_request",
        "the cache's file of the request is that of another one",
        _read_otherwise(".json", lambda data: data.replace(b'"key":"', b'"key":"0000')),
        "dropped of it: requests/",
        "it is of request 0000",
    ),
    _lie(
        "cache_parts_exchanged",
        "the cache returns the sparse package's code for the dense package, and the other way round",
        _find_otherwise(lambda codes: codes[::-1]),
        "code of the cache was dropped",
        "sparse_model.pt2: its input 3 is events, and the manifest says ids",
        family="RankerFamily",
        mode="two_stage",
    ),
    _lie(
        "cache_stale_outputs",
        "the cached facts name the outputs in the order of an earlier version",
        _find_otherwise(_with_swapped_outputs),
        "code of the cache was dropped",
        "the outputs are",
        family="RankerFamily",
    ),
    _lie(
        "cache_cut_library",
        "the cached library ends early",
        _find_otherwise(_with_other_library),
        "code of the cache was dropped",
    ),
)
