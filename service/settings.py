"""Settings of the API, read from the environment here and nowhere else."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.storage.uris import Folders
from exporter.torch_releases import TorchRelease
from jobs.families import FamilyNames, split_list
from jobs.stores.redis_url import RedisUrl
from service.access.rules import TokenRule
from service.hooks.settings import HookSettings
from telemetry.choices import LogFormat, LogLevel, OtlpEndpoint


def _read_json(given: object) -> object:
    return json.loads(given) if isinstance(given, str) else given


def _split(given: object) -> object:
    """Split a list as uvicorn splits it: at commas alone."""
    return tuple(filter(None, map(str.strip, given.split(",")))) if isinstance(given, str) else given


def _require_strangers(networks: tuple[IPvAnyNetwork, ...]) -> tuple[IPvAnyNetwork, ...]:
    """Refuse to trust everybody, whose X-Forwarded-For could then name any address."""
    if any(not network.prefixlen for network in networks):
        raise ValueError("name the proxies' own networks: if all are trusted, any caller chooses its address")
    return networks


Proxies = Annotated[
    tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_split), AfterValidator(_require_strangers)
]
TorchReleases = Annotated[tuple[TorchRelease, ...], NoDecode, BeforeValidator(split_list)]
TokenRules = Annotated[tuple[TokenRule, ...], NoDecode, BeforeValidator(_read_json)]


class ServiceSettings(BaseSettings):
    """Settings of the API, read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl = Field(
        default="redis://127.0.0.1:6379/0", description="URL of the Redis that holds the jobs."
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address that the API listens on. Any address but loopback requires API keys or tokens "
        "to be set up.",
    )
    api_keys_file: Path | None = Field(
        default=None, description="JSON file of the API keys that are accepted; see docs/access.md."
    )
    oidc_issuer: str | None = Field(
        default=None, description="OpenID Connect issuer whose tokens are accepted; see docs/access.md."
    )
    oidc_audience: str | None = Field(default=None, description="Audience that tokens must name.")
    oidc_jwks_url: str | None = Field(
        default=None,
        description="URL of the issuer's keys. Tokens are accepted if SLIPWAY_OIDC_ISSUER, "
        "SLIPWAY_OIDC_AUDIENCE and this URL are set.",
    )
    oidc_rules: TokenRules = Field(
        default=(),
        description="JSON list of rules by claim: the URIs that bearers of a token may read and write, and "
        "their numbers of jobs; see docs/access.md. Default: no limits.",
    )
    idempotency_retention: int = Field(
        default=86_400, gt=0, description="Seconds for which the answer to an Idempotency-Key is kept."
    )
    link_endpoint: str | None = Field(
        default=None,
        pattern="^https?://.+$",
        description="URL of the object store for download links. Default: the URL under which the API "
        "reaches the store.",
    )
    link_lifetime: int = Field(
        default=900, gt=0, le=604_800, description="Seconds for which a package's download link works."
    )
    secure_cookie: bool = Field(
        default=False,
        description="Whether browsers may send the dashboard's cookie over HTTPS only. If false, that is so "
        "for sign-ins over HTTPS.",
    )
    docs_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/]+[!-~]*$",
        description="URL of the documentation, which the dashboard links to. Default: the dashboard says "
        "where to find it.",
    )
    # Read by uvicorn, which silently believes nobody for an entry that it cannot read, and everybody for "*".
    trusted_proxies: Proxies = Field(
        default=(),
        validation_alias="FORWARDED_ALLOW_IPS",
        description="Addresses and networks of the proxies whose X-Forwarded-For and X-Forwarded-Proto are "
        "believed, separated by commas; see docs/access.md. Default: 127.0.0.1 and ::1.",
    )
    guess_limit: int = Field(
        default=30,
        ge=0,
        description="Wrong keys or signatures that an address may send in a minute; 0 for no limit.",
    )
    max_request_time: float = Field(
        default=60.0, gt=0, description="Seconds within which a request's body must arrive."
    )
    max_request_bytes: int = Field(
        default=8 << 20,
        gt=0,
        description="Largest request body, in bytes. The default has ample room for a pipeline config.",
    )
    max_bodies_bytes: int = Field(
        default=64 << 20,
        gt=0,
        description="Bytes that the bodies of all requests in progress may take together, in each process; "
        "bodies that need no key (webhooks, sign-in) may take an eighth of it, and one key, or one address "
        "without a key, three quarters of what there is. Beyond that, requests are answered with 503.",
    )
    max_config_bytes_per_owner: int = Field(
        default=256 << 20,
        gt=0,
        description="Most bytes that the pipeline configs of one key's jobs may take in Redis, equal configs "
        "counted once; more are refused until jobs are deleted or forgotten.",
    )
    max_connections: int = Field(
        default=2000,
        gt=1,
        description="Connections of the API at once, in each process. One more ends those that have waited "
        "longest for a request, or is answered with 503 if all have one in progress. A stream of events "
        "takes one for as long as it lasts.",
    )
    file_roots: Annotated[Folders, NoDecode] | None = Field(
        default=None,
        description="Folders that plain paths and file:// URIs must lie in after symbolic links are "
        "resolved, separated by commas; / allows any path. Default: no path is allowed if keys or tokens "
        "are set up, else any path.",
    )
    check_sources: bool = Field(
        default=True,
        description="Refuse an export whose checkpoint or rows are surely not there: an object store says "
        "so, or the folder where they should lie has other files. Turn it off where the API's machine has "
        "other files under the same paths than the workers'.",
    )
    torch_releases: TorchReleases = Field(
        default=(),
        description="Releases of torch, as 2.13, that jobs may name although no worker alive has them, "
        "separated by commas: such jobs wait. Default: only those that workers alive have.",
    )
    families: FamilyNames = Field(
        default=(),
        description="Custom model families that exports may name, separated by commas; see docs/families.md.",
    )
    log_format: LogFormat = Field(
        default=LogFormat.CONSOLE, description="Form of log lines: console for people, json for machines."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="Lowest level of messages that are logged."
    )
    otlp_endpoint: OtlpEndpoint = None
    hooks: HookSettings = Field(
        default_factory=HookSettings,
        description="Settings of webhooks, which service.hooks.settings reads from the environment.",
    )

    @property
    def requires_credentials(self) -> bool:
        """True if requests must carry a key or a token."""
        oidc = self.oidc_issuer and self.oidc_audience and self.oidc_jwks_url
        return self.api_keys_file is not None or bool(oidc)

    @property
    def allowed_file_roots(self) -> tuple[Path, ...] | None:
        """The folders that paths must lie in; None allows all."""
        return () if self.file_roots is None and self.requires_credentials else self.file_roots
