"""Signatures of manifests: Ed25519 over the file's bytes, stored beside it, keys in OpenSSL's formats.

The cryptography library is imported only when a key is read.
"""

from pathlib import Path

from exporter.errors import InvalidSpec, SignatureRefused

SIGNATURE_NAME = "manifest.json.sig"  # 64 bytes
_BYTES = 64


class SigningKey:
    """Private key, which signs manifests."""

    def __init__(self, pem: str) -> None:
        """Read a key that `openssl genpkey -algorithm ed25519` wrote; raise ValueError for other text."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem.encode(), password=None)
        except (ValueError, TypeError):  # their messages could quote the key
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("not an Ed25519 key in PEM, without a passphrase")  # noqa: TRY004  the text is wrong, not its type
        self._key: Ed25519PrivateKey = key

    def sign(self, data: bytes) -> bytes:
        """Sign these bytes; the same bytes always give the same signature."""
        return self._key.sign(data)


class VerifyingKey:
    """Public key, which verifies signatures."""

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
        """Raise SignatureRefused unless the private key of this public key has signed exactly these bytes."""
        from cryptography.exceptions import InvalidSignature

        try:
            if len(signature) != _BYTES:
                raise InvalidSignature
            self._key.verify(signature, data)
        except InvalidSignature:
            raise SignatureRefused(
                f"{where} does not match its signature: it was changed, or signed with another key",
                where=where,
            ) from None
