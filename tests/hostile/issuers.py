"""Answers of an issuer that hang, drip or flood, tokens that pretend, and events whose names run together."""

import asyncio
import base64
import hashlib
import hmac
import json
from pathlib import Path

from service.access.guard import Access
from service.access.issuer_keys import IssuerKeys
from service.access.tokens import TokenCheck
from service.hooks.cloud_events import read_event
from tests.hostile.kinds import Attack, hostile
from tests.service.issuer import ISSUER, MISBEHAVIOURS, Answer, Signer, publishing, serving_issuer

KEYS = "issuer's keys"
TOKEN = "token"
EVENT = "POST /webhooks/training"


def fetching(answer: Answer) -> Attack:
    def attack(folder: Path) -> object:
        with serving_issuer(answer) as issuer:
            return asyncio.run(IssuerKeys(ISSUER, issuer.url, fetch_s=0.5).find("k1"))

    return attack


for how, answer in MISBEHAVIOURS.items():
    hostile(f"an issuer that {how}", reader=KEYS)(fetching(answer))


def called_with(token: str, signer: Signer | None = None) -> object:
    """Have the API identify the caller of a request with this token."""
    with serving_issuer(publishing([signer or Signer("k1")])) as issuer:
        tokens = TokenCheck(issuer=ISSUER, audience="slipway", jwks_url=issuer.url)
        return asyncio.run(Access(tokens=tokens).caller(token, None))


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


@hostile("a token that says it needs no signature", reader=TOKEN)
def _(folder: Path) -> object:
    return called_with(Signer.invent("k1", algorithm="none"))


@hostile("a token signed with the issuer's public key as a shared secret", reader=TOKEN)
def _(folder: Path) -> object:
    signer = Signer("k1")
    head, claims, _ = signer.token().split(".")
    head = encoded(json.dumps({"alg": "HS256", "kid": "k1"}).encode())
    secret = json.dumps(signer.public).encode()
    signature = hmac.digest(secret, f"{head}.{claims}".encode(), hashlib.sha256)
    return called_with(f"{head}.{claims}.{encoded(signature)}", signer)


@hostile("a token whose head is nested 10,000 deep", reader=TOKEN)
def _(folder: Path) -> object:
    return called_with(f"{encoded(b'[' * 10_000)}.e30.c2ln")


@hostile("a token that brings the key to verify it with", reader=TOKEN)
def _(folder: Path) -> object:
    own = Signer("k1")
    return called_with(own.token(jwk=own.public))


@hostile("a token whose subject ends a line of the log", reader=TOKEN)
def _(folder: Path) -> object:
    signer = Signer("k1")
    return called_with(signer.token(sub="robot\nadmin"), signer)


@hostile("an event whose source and id run together by NUL", reader=EVENT)
def _(folder: Path) -> object:
    event = {"specversion": "1.0", "id": "c", "source": "a\0b", "type": "training.completed", "data": {}}
    return read_event({"content-type": "application/cloudevents+json"}, json.dumps(event).encode())
