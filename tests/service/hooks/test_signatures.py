from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook

from jobs.hooks.errors import WebhookUnverified
from service.hooks.signatures import TIMESTAMP, sign, verify
from tests.jobs.hooks.factories import SECRET

OTHER = "whsec_" + "b3RoZXItb3RoZXItb3RoZXItb3RoZXI="


def test_what_we_sign_the_library_verifies_whatever_the_clock_s_zone() -> None:
    now = datetime.now(timezone(timedelta(hours=8)))
    headers = sign("msg_1", b"{}", (SECRET,), now)
    assert headers[TIMESTAMP] == str(int(now.timestamp()))
    Webhook(SECRET).verify(b"{}", headers)


def test_every_secret_signs() -> None:
    headers = sign("msg_1", b"{}", (SECRET, OTHER), datetime.now(UTC))
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(b"{}", headers)


def test_any_secret_verifies() -> None:
    headers = sign("msg_1", b"{}", (OTHER,), datetime.now(UTC))
    assert verify(headers, b"{}", (SECRET, OTHER)) == "msg_1"
    with pytest.raises(WebhookUnverified):
        verify(headers, b"{}", (SECRET,))


def test_a_changed_body_or_id_is_noticed() -> None:
    headers = sign("msg_1", b"{}", (SECRET,), datetime.now(UTC))
    with pytest.raises(WebhookUnverified):
        verify(headers, b"{ }", (SECRET,))
    with pytest.raises(WebhookUnverified):
        verify({**headers, "webhook-id": "msg_2"}, b"{}", (SECRET,))
