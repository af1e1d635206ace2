"""Sending one body to one URL: without redirects or a proxy, and with limits on time and on reading."""

import ssl
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta

import httpcore

from exporter.version import __version__
from jobs.hooks.deliveries import Answer
from service.hooks.addresses import AddressRefused, GuardedNetwork, Network

_MAX_READ = 64 << 10


class Poster:
    """Posts to permitted addresses; every failure is returned as an Answer."""

    def __init__(self, allowed: Iterable[Network], timeout: timedelta) -> None:
        """Permit the internet and the `allowed` networks; a whole request may take `timeout`."""
        self._allowed = tuple(allowed)
        self._timeout_s = timeout.total_seconds()
        self._tls = ssl.create_default_context()

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send the body, and return how the receiver answered; only the start of its answer is read."""
        network = GuardedNetwork(self._allowed, deadline_s=self._timeout_s)
        sent = [*headers.items(), ("user-agent", f"Slipway/{__version__}")]
        try:
            with (
                httpcore.ConnectionPool(ssl_context=self._tls, network_backend=network) as pool,
                pool.stream("POST", url, headers=sent, content=body) as response,
            ):
                _drain(response, time.monotonic() + self._timeout_s)
                return _answer(response.status)
        except AddressRefused as error:
            return Answer(status=None, error=str(error), hopeless=True)
        except httpcore.UnsupportedProtocol as error:
            return Answer(status=None, error=f"the URL cannot be used: {error}", hopeless=True)
        except httpcore.TimeoutException:
            return Answer(status=None, error=f"no answer within {self._timeout_s:g} s")
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            return Answer(status=None, error=f"{type(error).__name__}: {error}"[:300])


def _drain(response: httpcore.Response, deadline: float) -> None:
    """Read some of the body, so that the receiver sees an orderly end; the status is known already."""
    read = 0
    try:
        for chunk in response.iter_stream():
            read += len(chunk)
            if read > _MAX_READ or time.monotonic() > deadline:
                return
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
        return


def _answer(status: int) -> Answer:
    if 200 <= status < 300:
        return Answer(status=status)
    if 300 <= status < 400:
        return Answer(status=status, error=f"the receiver redirects ({status}), which is not followed")
    return Answer(status=status, error=f"the receiver answered {status}")
