"""The signature of an artifact in a folder."""

from pathlib import Path

from slipway import signatures
from slipway.loading.errors import SignatureRefused
from slipway.signatures import SIGNATURE_NAME, UnsoundSignature


def check_signature(manifest: bytes, folder: Path, key: Path) -> None:
    """Check that the private key of this public key (PEM) has signed exactly these bytes.

    Raises:
        SignatureRefused: it has not, there is no signature, the file is no such key, or `cryptography` is
            not installed.
    """
    where = str(folder / SIGNATURE_NAME)
    try:
        signature = (folder / SIGNATURE_NAME).read_bytes()
    except OSError as error:
        raise SignatureRefused(
            f"the artifact is not signed: there is no {SIGNATURE_NAME}", where=where
        ) from error
    try:
        signatures.check_signature(manifest, signature, key)
    except UnsoundSignature as error:
        raise SignatureRefused(f"{folder}: {error}", hint=error.hint, where=error.where or where) from error
