"""Signatures of manifests: Ed25519 over the file's bytes, kept beside it; OpenSSL's own formats.

The cryptography library is imported only by those who sign or verify.
"""

from pathlib import Path

from exporter.errors import InvalidSpec, SignatureRefused

SIGNATURE_NAME = "manifest.json.sig"  # 64 bytes
_BYTES = 64


class SigningKey:
    """The private half."""

    def __init__(self, pem: str) -> None:
        """Read a key as `openssl genpkey -algorithm ed25519` writes it; ValueError for any other text."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem.encode(), password=None)
        except (ValueError, TypeError):  # their words could hold some of it
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("not an Ed25519 key in PEM, without a passphrase")  # noqa: TRY004 (of a text)
        self._key: Ed25519PrivateKey = key

    def sign(self, data: bytes) -> bytes:
        """The signature of these bytes, the same every time."""
        return self._key.sign(data)


class VerifyingKey:
    """The public half."""

    def __init__(self, path: Path) -> None:
        """Read a key as `openssl pkey -pubout` writes it.

        Raises:
            InvalidSpec: the file holds no such key.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(path.read_bytes())
        except (OSError, ValueError):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise InvalidSpec(
                f"{path} is not an Ed25519 public key in PEM",
                hint="openssl pkey -in signing-key.pem -pubout writes one",
                where=str(path),
            )
        self._key: Ed25519PublicKey = key

    def check(self, data: bytes, signature: bytes, where: str) -> None:
        """SignatureRefused, if the private half of this key has not signed exactly these bytes."""
        from cryptography.exceptions import InvalidSignature

        try:
            if len(signature) != _BYTES:
                raise InvalidSignature
            self._key.verify(signature, data)
        except InvalidSignature:
            raise SignatureRefused(
                f"{where} is not what this key has signed: it was changed, or another key signed it",
                where=where,
            ) from None
