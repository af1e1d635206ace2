"""Authentication of requests, as dependencies of routes: by API key, by token, or by a local connection."""

import ipaddress
from collections.abc import Callable, Coroutine
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.requests import HTTPConnection

from exporter.errors import ExportError
from service.access.callers import LOCAL, Caller, Scope
from service.access.errors import UnsafeSetup
from service.access.keys import KeyRing, read_keys
from service.access.rate_limit import GuessLimit
from service.access.tokens import TokenCheck
from service.errors import Forbidden, Unauthenticated
from service.settings import ServiceSettings

KEY_COOKIE = "slipway_key"  # the same secret, from a browser

_bearer = HTTPBearer(auto_error=False, description="An API key, or a token of the configured issuer.")


class Access:
    """Identifies the caller of a request by the secret that it carries."""

    def __init__(
        self, keys: KeyRing | None = None, tokens: TokenCheck | None = None, *, guess_limit: int = 0
    ) -> None:
        """Accept `keys` and `tokens`; with neither, every caller from this machine may do everything."""
        self._wrong_secrets = GuessLimit(guess_limit)
        self._keys = keys
        self._tokens = tokens

    async def caller(
        self, secret: str | None, server: str | None, named: str | None = None, *, peer: str | None = None
    ) -> Caller:
        """Return the caller whose secret this is.

        `server` is the local address on which the request arrived, `named` the host name that the request
        gives it: a page of another site could let a name of its own stand for this machine. `peer` is the
        address that the request came from.

        Raises:
            Unauthenticated: the secret is no known key or token; or the service has neither, and the
                request does not come from this machine.
            TooManyGuesses: `peer` has sent too many wrong secrets within the last minute.
        """
        if self._keys is None and self._tokens is None:
            if _is_outside(server) or (named is not None and "." in named and not is_loopback(named)):
                raise Unauthenticated(
                    "this service has no API keys, so it answers requests from its own machine only",
                    hint="name a file of keys in SLIPWAY_API_KEYS_FILE",
                )
            return LOCAL
        if secret and (caller := await self._find_caller(secret, peer)):
            return caller
        raise Unauthenticated(
            "the request carries no key that this service knows", hint="send Authorization: Bearer <key>"
        )

    async def _find_caller(self, secret: str, peer: str | None) -> Caller | None:
        self._wrong_secrets.require_below(peer, secret)
        found = self._keys.find(secret) if self._keys else None
        if found is None and self._tokens is not None:
            found = await self._tokens.find(secret)
        self._wrong_secrets.count(peer, secret, right=found is not None)
        return found


def access_of(settings: ServiceSettings) -> Access:
    """Set up access as the settings say; UnsafeSetup if other machines can connect and there are no keys."""
    keys = read_keys(settings.api_keys_file) if settings.api_keys_file else None
    tokens = None
    if settings.oidc_issuer and settings.oidc_audience and settings.oidc_jwks_url:
        tokens = TokenCheck(
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            jwks_url=settings.oidc_jwks_url,
            rules=settings.oidc_rules,
        )
    if keys is None and tokens is None and not is_loopback(settings.host):
        raise UnsafeSetup(
            f"the service is to listen on {settings.host}, where other machines can connect, without keys"
        )
    return Access(keys, tokens, guess_limit=settings.guess_limit)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_outside(server: str | None) -> bool:
    """Return whether other machines can reach the address that a request arrived on.

    The address is None where the server listens on no IP socket.
    """
    try:
        return server is not None and not ipaddress.ip_address(server).is_loopback
    except ValueError:  # the path of a Unix socket
        return False


def peer_of(connection: HTTPConnection) -> str | None:
    """Return the address that a request came from, as uvicorn sees it; behind a proxy: docs/access.md."""
    return connection.client.host if connection.client else None


def bearer_of(connection: HTTPConnection) -> str | None:
    """Return the key or token in the request's Authorization header."""
    scheme, secret = get_authorization_scheme_param(connection.headers.get("authorization"))
    return secret if scheme.lower() == "bearer" and secret else None


async def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller that the request's headers identify, or raise the error that refuses it.

    A request is authenticated once, so that a wrong key counts once.
    """
    state = connection.state
    if not hasattr(state, "caller"):
        access: Access = connection.app.state.access
        server = connection.scope.get("server")
        try:
            state.caller = await access.caller(
                bearer_of(connection) or connection.cookies.get(KEY_COOKIE),
                server[0] if server else None,
                connection.url.hostname,
                peer=peer_of(connection),
            )
        except ExportError as refusal:
            state.caller = refusal
    if isinstance(state.caller, ExportError):
        raise state.caller
    found: Caller = state.caller
    return found


def require_scope(scope: Scope) -> Callable[..., Coroutine[None, None, Caller]]:
    """Return a dependency of routes that gives the caller, and refuses one without `scope`."""

    async def check(
        request: Request, _documented: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
    ) -> Caller:
        return await scoped_caller_of(request, scope)

    return check


async def scoped_caller_of(connection: HTTPConnection, scope: Scope) -> Caller:
    """Return the caller as `caller_of` does; raise Forbidden for one without `scope`."""
    caller = await caller_of(connection)
    if not caller.may(scope):
        raise Forbidden(f"{caller.name} may not do this: it needs the scope `{scope}`")
    return caller


reading, submitting, administering = (require_scope(scope) for scope in Scope)

Reader = Annotated[Caller, Depends(reading)]
Submitter = Annotated[Caller, Depends(submitting)]
Admin = Annotated[Caller, Depends(administering)]
