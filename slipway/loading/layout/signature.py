"""Signatures of manifests: Ed25519 over the file's bytes. The library cryptography is imported on use."""

from pathlib import Path

from slipway.loading.errors import SignatureRefused
from slipway.loading.layout.manifest import MANIFEST_NAME

SIGNATURE_NAME = f"{MANIFEST_NAME}.sig"


def check_signature(manifest: bytes, folder: Path, key: Path) -> None:
    """Check that the private key of this public key (PEM) has signed exactly these bytes.

    Raises:
        SignatureRefused: it has not, there is no signature, the file is no such key, or `cryptography` is
            not installed.
    """
    where = str(folder / SIGNATURE_NAME)
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise SignatureRefused(
            "signatures are checked by the package cryptography, which is not installed",
            hint="pip install cryptography",
            where=where,
        ) from error
    try:
        public = load_pem_public_key(key.read_bytes())
    except (OSError, ValueError):
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise SignatureRefused(
            f"{key} is not an Ed25519 public key in PEM",
            hint="openssl pkey -in signing-key.pem -pubout writes one",
            where=str(key),
        )
    try:
        signature = (folder / SIGNATURE_NAME).read_bytes()
    except OSError as error:
        raise SignatureRefused(
            f"the artifact is not signed: there is no {SIGNATURE_NAME}", where=where
        ) from error
    try:
        public.verify(signature, manifest)
    except InvalidSignature:
        raise SignatureRefused(
            f"{folder / MANIFEST_NAME} does not match its signature: "
            "it was changed, or signed with another key",
            where=where,
        ) from None
