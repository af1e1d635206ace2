"""Addresses and credentials of the stores of Azure and Alibaba Cloud, in their tools' variables.

The libraries of Amazon and Google read their variables themselves.
"""

import re
from dataclasses import dataclass, field

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

_OF_OSS = re.compile(r"^oss-[a-z0-9-]+\.aliyuncs\.com")


class GoogleSettings(BaseSettings):
    """The address of an emulator of Google Cloud Storage; the library reads it too."""

    model_config = SettingsConfigDict(frozen=True)

    storage_emulator_host: str | None = Field(
        default=None, description="URL of an emulator, in place of Google Cloud Storage."
    )


class AzureSettings(BaseSettings):
    """The storage account, in the variables of Azure's command line."""

    model_config = SettingsConfigDict(env_prefix="AZURE_STORAGE_", frozen=True, hide_input_in_errors=True)

    connection_string: SecretStr | None = Field(
        default=None,
        description="Account, address and credentials in one text; goes before the other variables.",
    )
    account: str | None = Field(
        default=None, pattern=r"^[a-z0-9]{3,24}$", description="Name of the storage account."
    )
    service_endpoint: str | None = Field(
        default=None, description="Address of the account. Default: the account's in Azure's public cloud."
    )
    key: SecretStr | None = Field(default=None, description="Key of the account.")
    sas_token: SecretStr | None = Field(
        default=None, description="Shared access signature, where there is no key."
    )

    @property
    def account_url(self) -> str | None:
        public = self.account and f"https://{self.account}.blob.core.windows.net"
        return self.service_endpoint or public

    @property
    def secret(self) -> str | dict[str, str] | None:
        """The key or the token as the library takes it; None: an identity has to be found."""
        if self.key is not None:
            # Together with the name, because the name is no part of an emulator's address.
            return {"account_name": self.account or "", "account_key": self.key.get_secret_value()}
        return None if self.sas_token is None else self.sas_token.get_secret_value()


@dataclass(frozen=True, kw_only=True)
class AccessKey:
    """An access key of Alibaba Cloud; with a token it is temporary."""

    access_key_id: str
    access_key_secret: str = field(repr=False)
    token: str | None = field(repr=False)


class OssSettings(BaseSettings):
    """The endpoint of OSS and an access key, in the variables of its tools."""

    model_config = SettingsConfigDict(env_prefix="OSS_", frozen=True, hide_input_in_errors=True)

    endpoint: str | None = Field(default=None, description="Address of OSS. Default: that of OSS_REGION.")
    region: str | None = Field(
        default=None, pattern=r"^[a-z0-9-]+$", description="Region of the buckets, such as cn-hangzhou."
    )
    access_key_id: str | None = Field(
        default=None, description="Access key. Default: that of ALIBABA_CLOUD_ACCESS_KEY_ID."
    )
    access_key_secret: SecretStr | None = Field(default=None, description="Its secret.")
    session_token: SecretStr | None = Field(default=None, description="Token of a temporary access key.")

    @property
    def key(self) -> AccessKey | None:
        """The access key, if there is a whole one."""
        return _join_key(self.access_key_id, self.access_key_secret, self.session_token)

    @property
    def url(self) -> str | None:
        """The address that speaks S3's dialect: of a host of OSS itself it begins with "s3."."""
        given = self.endpoint or (self.region and f"oss-{self.region}.aliyuncs.com")
        if not given:
            return None
        scheme, separator, host = given.rpartition("://")
        host = f"s3.{host}" if _OF_OSS.match(host) else host
        return f"{scheme if separator else 'https'}://{host}"


class AlibabaSettings(BaseSettings):
    """An access key in the variables that all tools of Alibaba Cloud know."""

    model_config = SettingsConfigDict(env_prefix="ALIBABA_CLOUD_", frozen=True, hide_input_in_errors=True)

    access_key_id: str | None = Field(
        default=None, description="Access key for OSS where OSS_ACCESS_KEY_ID is not set."
    )
    access_key_secret: SecretStr | None = Field(default=None, description="Its secret.")
    security_token: SecretStr | None = Field(default=None, description="Token of a temporary access key.")

    @property
    def key(self) -> AccessKey | None:
        """The access key, if there is a whole one."""
        return _join_key(self.access_key_id, self.access_key_secret, self.security_token)


def _join_key(given: str | None, secret: SecretStr | None, token: SecretStr | None) -> AccessKey | None:
    if given is None or secret is None:
        return None
    plain = None if token is None else token.get_secret_value()
    return AccessKey(access_key_id=given, access_key_secret=secret.get_secret_value(), token=plain)
