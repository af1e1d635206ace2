"""OpenID Connect bearer tokens, verified with the issuer's published keys."""

from collections.abc import Sequence
from typing import Annotated

import jwt
from pydantic import Field, ValidationError, field_validator

from exporter.spec import Frozen
from service.access.callers import Caller, Scope
from service.access.issuer_keys import ALGORITHMS, FETCH_S, IssuerKeys
from service.access.rules import TokenRule, owner_by

_SCOPE_PREFIX = "slipway:"
_NAME_PREFIX = "oidc:"  # before each subject: no API key's name holds a colon, so the two cannot collide
_LEEWAY_S = 30


class _Claims(Frozen):
    sub: Annotated[str, Field(pattern=r"^[\w.@|:/+=-]{1,128}$")]
    scope: frozenset[Scope]

    @field_validator("scope", mode="before")
    @classmethod
    def _select_scopes(cls, given: object) -> object:
        """Select the scopes that begin with `slipway:` from a space-separated list."""
        words = given.split() if isinstance(given, str) else ()
        return [word.removeprefix(_SCOPE_PREFIX) for word in words if word.startswith(_SCOPE_PREFIX)]


class TokenCheck:
    """Verifies tokens and finds the caller that a token speaks for."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        jwks_url: str,
        rules: Sequence[TokenRule] = (),
        fetch_s: float = FETCH_S,
    ) -> None:
        """Trust tokens that `issuer` signed for `audience` with a key at `jwks_url`; `rules` limit them."""
        self._rules = rules
        self._issuer = issuer
        self._audience = audience
        self._keys = IssuerKeys(issuer, jwks_url, fetch_s=fetch_s)

    async def find(self, token: str) -> Caller | None:
        """Return the token's caller, or None if the token is not accepted.

        A token is not accepted if another issuer signed it, it has expired, it is for another audience, its
        claims cannot be used, or no rule fits it.

        Raises:
            IssuerUnreachable: the issuer's keys are needed and cannot be fetched.
        """
        key_id = _signing_key_id(token)
        key = await self._keys.find(key_id) if key_id else None
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            known = _Claims.model_validate({"sub": claims["sub"], "scope": claims.get("scope", "")})
        except (jwt.PyJWTError, ValidationError):
            return None
        owner = owner_by(self._rules, f"{_NAME_PREFIX}{known.sub}", claims)
        return Caller(owner.name, known.scope, owner) if owner else None


def _signing_key_id(token: str) -> str | None:
    """Return the id of the key that a token names; None for text that no key needs to be fetched for."""
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        return None
    return header.get("kid") if header.get("alg") in ALGORITHMS else None
