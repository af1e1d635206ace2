"""What routes depend on to know their caller: a key or a token, or a connection from this machine."""

import ipaddress
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.access.callers import LOCAL, Caller, Scope
from service.access.errors import UnsafeSetup
from service.access.keys import KeyRing, read_keys
from service.access.rate_limit import Guesses
from service.access.tokens import TokenCheck
from service.errors import Forbidden, Unauthenticated
from service.settings import ServiceSettings

KEY_COOKIE = "slipway_key"  # the same secret, from a browser

_bearer = HTTPBearer(auto_error=False, description="An API key, or a token of the configured issuer.")


class Access:
    """Decides who a request is from."""

    def __init__(
        self, keys: KeyRing | None = None, tokens: TokenCheck | None = None, *, guess_limit: int = 0
    ) -> None:
        """Without keys and tokens, everybody who connects from this machine may do everything."""
        self.guesses = Guesses(guess_limit)
        self._finders = [finder.find for finder in (keys, tokens) if finder is not None]

    def caller(
        self, secret: str | None, server: str | None, named: str | None = None, *, peer: str | None = None
    ) -> Caller:
        """Whose secret it is.

        `server` is the address by which the request came in, `named` what the request calls it: a page of
        another site could let a name of its own stand for this machine. `peer` is where it came from.
        """
        if not self._finders:
            if _is_outside(server) or (named is not None and "." in named and not is_loopback(named)):
                raise Unauthenticated(
                    "this service asks for no keys, and so answers on its own machine only",
                    hint="name a file of keys in SLIPWAY_API_KEYS_FILE",
                )
            return LOCAL
        if secret and (caller := self._known(secret, peer)):
            return caller
        raise Unauthenticated(
            "the request carries no key that this service knows", hint="send Authorization: Bearer <key>"
        )

    def _known(self, secret: str, peer: str | None) -> Caller | None:
        self.guesses.require_patience(peer, secret)
        found = next((caller for find in self._finders if (caller := find(secret))), None)
        self.guesses.note(peer, secret, right=found is not None)
        return found


def access_of(settings: ServiceSettings) -> Access:
    """Keys and tokens as the settings say; UnsafeSetup when others could connect and there are none."""
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
        raise UnsafeSetup(f"it is to listen on {settings.host}, where others can connect, without keys")
    return Access(keys, tokens, guess_limit=settings.guess_limit)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_outside(server: str | None) -> bool:
    """Whether a request came in by an address that others can reach; without one, no socket of the kind."""
    try:
        return server is not None and not ipaddress.ip_address(server).is_loopback
    except ValueError:  # the path of a Unix socket
        return False


def peer_of(request: Request) -> str | None:
    """The address that a request came from, as uvicorn has it: behind a proxy, see docs/access.md."""
    return request.client.host if request.client else None


def requiring(scope: Scope) -> Callable[..., Caller]:
    """A dependency that gives the caller, whose key must cover `scope`."""

    def check(
        request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
    ) -> Caller:
        access: Access = request.app.state.access
        secret = sent.credentials if sent else request.cookies.get(KEY_COOKIE)
        server = request.scope.get("server")
        inside = server[0] if server else None
        caller = access.caller(secret, inside, request.url.hostname, peer=peer_of(request))
        if not caller.may(scope):
            raise Forbidden(f"{caller.name} may not: it takes the scope `{scope}`")
        return caller

    return check


reading, submitting, administering = (requiring(scope) for scope in Scope)

Reader = Annotated[Caller, Depends(reading)]
Submitter = Annotated[Caller, Depends(submitting)]
Admin = Annotated[Caller, Depends(administering)]
