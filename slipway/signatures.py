"""Signatures of manifests: Ed25519 over the file's bytes. The library cryptography is imported on use."""

from pathlib import Path

SIGNATURE_NAME = "manifest.json.sig"  # 64 bytes


class UnsoundSignature(Exception):
    """The signature is not the key's, or the key is none."""

    def __init__(self, message: str, hint: str = "", where: str = "") -> None:
        """Say what happened, what to do, and in which file if it is not the manifest."""
        super().__init__(message)
        self.hint, self.where = hint, where


def check_signature(manifest: bytes, signature: bytes, key: Path) -> None:
    """Check that the private key of this public key (PEM) has signed exactly these bytes.

    Raises:
        UnsoundSignature: it has not, the file is no such key, or `cryptography` is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise UnsoundSignature(
            "signatures are checked by the package cryptography, which is not installed",
            "pip install cryptography",
        ) from error
    try:
        public = load_pem_public_key(key.read_bytes())
    except (OSError, ValueError):
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise UnsoundSignature(
            f"{key} is not an Ed25519 public key in PEM",
            "openssl pkey -in signing-key.pem -pubout writes one",
            str(key),
        )
    try:
        public.verify(signature, manifest)
    except InvalidSignature:
        raise UnsoundSignature(
            "the manifest does not match its signature: it was changed, or signed with another key"
        ) from None
