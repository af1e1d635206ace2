"""The public keys of the tokens' issuer: fetched in the background, by one request at a time."""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping

import httpx
import jwt
import structlog

from exporter.redaction import redact_and_escape
from service.errors import IssuerUnreachable

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
FETCH_S = 5.0  # a whole fetch, however its bytes arrive; also the longest that a token waits
PAUSE_S = 10.0  # after a fetch, successful or not, before the next one begins
FRESH_S = 300.0  # keys older than this are fetched again once a token needs them
TRUSTED_S = 3600.0  # keys older than this verify nothing, so that a revoked key does not live on
MAX_BYTES = 256 << 10
_MAX_KEYS = 100

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class IssuerKeys:
    """The keys that an issuer publishes, used on one event loop.

    Tokens never start more than one fetch at a time, nor one within PAUSE_S of the last one's end: whoever
    sends tokens with invented key ids, or while the issuer does not answer, causes no more than that.
    """

    def __init__(
        self,
        issuer: str,
        url: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        fetch_s: float = FETCH_S,
    ) -> None:
        """Fetch `issuer`'s JSON Web Key Set from `url`; nothing is fetched before a token needs it."""
        self._issuer = issuer
        self._url = url
        self._fetch_s = fetch_s
        self._clock = clock
        self._tls = ssl.create_default_context()
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._ended_at: float | None = None  # when the last fetch ended, successful or not
        self._failed = False  # whether that fetch failed
        self._fetch: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key with this id, or None if the issuer has no such key.

        A known key is returned at once, and at most a fetch begins behind it; an unknown one waits for a
        fetch unless the last one has just ended.

        Raises:
            IssuerUnreachable: the key is not known, and the issuer could not be asked whether it has it.
        """
        known = self._trusted().get(key_id)
        if known is None or self._is_older_than(FRESH_S):
            self._begin_fetch()
        if known is None and self._fetch is not None and not self._fetch.done():
            await asyncio.wait({self._fetch}, timeout=self._fetch_s)
            known = self._trusted().get(key_id)
        if known is None and (self._failed or self._is_older_than(TRUSTED_S)):
            raise IssuerUnreachable(f"the keys of {self._issuer} could not be fetched", where=self._issuer)
        return known

    def _trusted(self) -> Mapping[str, jwt.PyJWK]:
        return {} if self._is_older_than(TRUSTED_S) else self._keys

    def _is_older_than(self, seconds: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > seconds

    def _begin_fetch(self) -> None:
        running = self._fetch is not None and not self._fetch.done()
        paused = self._ended_at is not None and self._clock() - self._ended_at < PAUSE_S
        if not running and not paused:
            self._fetch = asyncio.create_task(self._replace_keys(), name="issuer-keys")

    async def _replace_keys(self) -> None:
        """Fetch the keys, and forget those that the issuer has dropped; keep all if the fetch fails."""
        self._failed = True
        try:
            async with asyncio.timeout(self._fetch_s):
                self._keys = read_keys(await self._download())
            self._fetched_at, self._failed = self._clock(), False
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RecursionError) as error:
            why = redact_and_escape(f"{type(error).__name__}: {error}")[:300]
            log.warning("issuer_keys_not_fetched", url=self._url, why=why)
        finally:
            self._ended_at = self._clock()

    async def _download(self) -> bytes:
        """Return the issuer's answer; redirects are not followed, and nothing is unpacked."""
        body = bytearray()
        async with (
            httpx.AsyncClient(verify=self._tls, timeout=self._fetch_s) as client,
            client.stream("GET", self._url, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise ValueError(f"the issuer answered {answer.status_code}")
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ValueError(f"the issuer's answer is larger than {MAX_BYTES} bytes")
        return bytes(body)


def read_keys(document: bytes) -> dict[str, jwt.PyJWK]:
    """Return the keys of a JSON Web Key Set by id: those with which a token's signature can be verified.

    Raises:
        ValueError: the document is no set of keys, or holds none.
    """
    listed = json.loads(document)
    entries = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(entries, list) or len(entries) > _MAX_KEYS:
        raise ValueError(f"the issuer's answer is no set of at most {_MAX_KEYS} keys")
    plain = [  # no field that a public key needs is anything but text
        {name: value for name, value in entry.items() if isinstance(value, str)}
        for entry in entries
        if isinstance(entry, dict)
    ]
    try:
        keys = jwt.PyJWKSet(plain).keys
    except jwt.PyJWTError as error:
        raise ValueError(str(error)) from error
    return {
        key.key_id: key
        for key in keys
        if isinstance(key.key_id, str) and key.public_key_use in ("sig", None)
        if key.algorithm_name in ALGORITHMS
    }
