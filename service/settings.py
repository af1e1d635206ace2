"""Where the API finds things and whom it lets in; the one place where it reads the environment."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.storage.uris import Folders
from jobs.families import FamilyNames
from jobs.stores.redis_url import RedisUrl
from service.access.rules import TokenRule
from service.hooks.settings import HookSettings
from telemetry.choices import LogFormat, LogLevel, OtlpEndpoint


def _decoded(given: object) -> object:
    return json.loads(given) if isinstance(given, str) else given


TokenRules = Annotated[tuple[TokenRule, ...], NoDecode, BeforeValidator(_decoded)]


class ServiceSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl = Field(default="redis://127.0.0.1:6379/0", description="Where the jobs are.")
    host: str = Field(default="127.0.0.1", description="Where it listens; others need keys to be there.")
    api_keys_file: Path | None = Field(default=None, description="See docs/access.md.")
    oidc_issuer: str | None = Field(default=None, description="Whose tokens are taken; see docs/access.md.")
    oidc_audience: str | None = Field(default=None, description="Whom they must be meant for.")
    oidc_jwks_url: str | None = Field(default=None, description="Tokens are taken when all three are set.")
    oidc_rules: TokenRules = Field(
        default=(),
        description="What bearers of tokens may read and write, and how many jobs they may have, by claim: a "
        "JSON list, see docs/access.md. Default: anything.",
    )
    idempotency_retention: int = Field(default=86_400, gt=0, description="Seconds an answer is kept.")
    link_endpoint: str | None = Field(
        default=None,
        pattern="^https?://.+$",
        description="The object store's URL as callers reach it, where that is another than the API's: "
        "links to packages lead there.",
    )
    link_lifetime: int = Field(default=900, gt=0, le=604_800, description="Seconds a package's link works.")
    guess_limit: int = Field(
        default=30, ge=0, description="Wrong keys or signatures that an address may send in a minute; 0: any."
    )
    max_request_time: float = Field(default=60.0, gt=0, description="Seconds a body may take to arrive.")
    max_request_bytes: int = Field(default=8 << 20, gt=0, description="A pipeline config fits well.")
    file_roots: Annotated[Folders, NoDecode] | None = Field(
        default=None,
        description="Folders below which plain paths and file:// may lead, links followed; by commas, / is "
        "anywhere. Default: nowhere, if keys or tokens are asked for; else anywhere.",
    )
    families: FamilyNames = Field(
        default=(), description="Of one's own, that exports may name: docs/families.md. By commas."
    )
    log_format: LogFormat = Field(
        default=LogFormat.CONSOLE, description="console for people, json for machines."
    )
    log_level: LogLevel = Field(default=LogLevel.INFO, description="What is less than this is not logged.")
    otlp_endpoint: OtlpEndpoint = None
    hooks: HookSettings = Field(
        default_factory=HookSettings,
        description="Of webhooks; its own variables, see service.hooks.settings.",
    )

    @property
    def asks_who_calls(self) -> bool:
        """Whether there are keys or tokens."""
        oidc = self.oidc_issuer and self.oidc_audience and self.oidc_jwks_url
        return self.api_keys_file is not None or bool(oidc)

    @property
    def allowed_file_roots(self) -> tuple[Path, ...] | None:
        """Where paths may lead; None is anywhere."""
        return () if self.file_roots is None and self.asks_who_calls else self.file_roots
