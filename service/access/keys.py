"""API keys: read from a file, and looked up by the secret that a caller sends."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, ValidationError, model_validator

from exporter.redaction import name_first
from exporter.spec import Frozen
from exporter.storage.uris import NO_RULES, UriRules
from jobs.control.control import Owner
from service.access.callers import Caller, Scope
from service.access.errors import UnsafeSetup

KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class ApiKey(Frozen):
    """One API key: its secret, or better the secret's digest, with its scopes and limits."""

    name: KeyName
    secret: SecretStr | None = Field(default=None, min_length=16)
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", description="SHA-256 of the secret.")
    scopes: frozenset[Scope] = Field(min_length=1)
    max_queued: int | None = Field(default=None, ge=0)
    max_running: int | None = Field(default=None, ge=1)
    uris: UriRules = Field(
        default=NO_RULES,
        description="URIs that its exports may read and write; it sees only jobs within them.",
    )

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.secret is None) == (self.sha256 is None):
            raise ValueError("give exactly one of `secret` and `sha256`")
        return self

    @property
    def digest(self) -> str:
        return self.sha256 or _digest(self.secret.get_secret_value() if self.secret else "")

    @property
    def caller(self) -> Caller:
        return Caller(self.name, self.scopes, Owner(self.name, self.max_queued, self.max_running, self.uris))


class KeyFile(Frozen):
    """The file that SLIPWAY_API_KEYS_FILE names: {"keys": [...]}."""

    keys: tuple[ApiKey, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _keys_are_distinct(self) -> Self:
        for kind in ("name", "digest"):
            if len({getattr(key, kind) for key in self.keys}) != len(self.keys):
                raise ValueError(f"two keys have the same {kind}")
        return self


class KeyRing:
    """The API keys that a service accepts."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        """Take the keys; only digests of their secrets are kept."""
        self._callers = tuple((key.digest, key.caller) for key in keys)

    def find(self, secret: str) -> Caller | None:
        """Return the caller with this secret, if there is one.

        All digests are compared, so that the time it takes does not depend on the secret.
        """
        sent, found = _digest(secret), None
        for digest, caller in self._callers:
            if hmac.compare_digest(sent, digest):
                found = caller
        return found


def read_keys(path: Path) -> KeyRing:
    """Read the keys of a file; UnsafeSetup if it holds none: a service does not start without its keys."""
    try:
        return KeyRing(KeyFile.model_validate_json(path.read_bytes()).keys)
    except OSError as error:
        raise UnsafeSetup(f"the keys in {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problems = name_first(
            [f"{'.'.join(str(step) for step in each['loc'])}: {each['msg']}" for each in error.errors()]
        )
        raise UnsafeSetup(f"{path} holds no keys: {problems}") from None  # pydantic's text shows secrets


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
