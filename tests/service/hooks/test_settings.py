from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.hooks.settings import HookSettings
from tests.jobs.hooks.factories import SECRET

OTHER = "whsec_" + "b3RoZXItb3RoZXItb3RoZXItb3RoZXI="


def test_secrets_and_networks_are_lists_separated_by_commas_or_blanks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLIPWAY_WEBHOOK_SECRETS", f"{SECRET}, {OTHER}")
    monkeypatch.setenv("SLIPWAY_CALLBACK_NETWORKS", "10.1.0.0/16 fd00::/8")
    monkeypatch.setenv("SLIPWAY_CALLBACK_TIMEOUT", "2.5")
    monkeypatch.setenv("SLIPWAY_CALLBACK_PAUSES", "1,2.5")
    settings = HookSettings()
    assert settings.signing_secrets() == (SECRET, OTHER)
    assert settings.callback_networks == (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    assert settings.callback_timeout == timedelta(seconds=2.5)
    assert settings.callback_pauses == (timedelta(seconds=1), timedelta(seconds=2.5))


@pytest.mark.parametrize("secret", ["password", "whsec_", "whsec_AAAA", "whsec_not base64 at all, really!!"])
def test_a_secret_that_proves_nothing_is_refused_at_start(secret: str) -> None:
    with pytest.raises(ValidationError, match="base64"):
        HookSettings.model_validate({"webhook_secrets": (secret,)})


def test_a_file_of_secrets_is_checked_at_start(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("password")
    with pytest.raises(ValidationError, match="base64"):
        HookSettings(webhook_secrets_file=file)


def test_secrets_are_not_printed() -> None:
    settings = HookSettings.model_validate({"webhook_secrets": SECRET, "callback_secrets": SECRET})
    assert SECRET not in repr(settings)
