"""Signed artifacts: one that was changed, or has no signature of the right key, is refused before loading."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cli.main import main
from exporter.artifact.read import fetch_tower, file_ref, sign_artifact, verify_artifact
from exporter.artifact.signing import SIGNATURE_NAME, SigningKey, VerifyingKey
from exporter.artifact.upload import manifest_digest, publish_manifest, upload_tower
from exporter.errors import ExportError, InvalidArtifact, InvalidSpec, SignatureRefused
from exporter.manifest import Manifest
from exporter.spec import TowerName
from tests.jobs.factories import make_entry, make_manifest


def pem_of(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def make_key(tmp_path: Path) -> Callable[[str], tuple[SigningKey, Path]]:
    def make(name: str) -> tuple[SigningKey, Path]:
        private = ed25519.Ed25519PrivateKey.generate()
        public = tmp_path / f"{name}.pub"
        public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return SigningKey(pem_of(private)), public

    return make


@pytest.fixture
def signed(tmp_path: Path, make_key: Callable[[str], tuple[SigningKey, Path]]) -> tuple[Path, Path]:
    """A published, signed artifact, and the key that verifies it."""
    files = {"user/aoti/aoti_model.pt2": tmp_path / "package", "user/pipeline.config": tmp_path / "config"}
    for path, local in files.items():
        local.write_text(f"this is {path}")
    package, config = (file_ref(path, local) for path, local in files.items())
    entry = make_entry(TowerName.USER).model_copy(update={"package": package, "files": (config,)})
    root = tmp_path / "out" / "job1"
    sent = upload_tower(entry, files, str(root), replace_unfinished=False)
    manifest = make_manifest("job1", entry)
    publish_manifest(manifest, sent, str(root), replace_unfinished=False)
    key, public = make_key("own")
    sign_artifact(str(root), "job1", key, manifest_digest(manifest))
    return root, public


def change_file(root: Path) -> None:
    (root / "user/aoti/aoti_model.pt2").write_text("that is user/aoti/aoti_model.pt2")


def change_file_and_digest(root: Path) -> None:
    change_file(root)
    manifest = Manifest.model_validate_json((root / "manifest.json").read_bytes())
    digest = file_ref("user/aoti/aoti_model.pt2", root / "user/aoti/aoti_model.pt2").sha256
    text = (root / "manifest.json").read_text().replace(manifest.towers[0].package.sha256, digest)
    (root / "manifest.json").write_text(text)


def change_one_blank(root: Path) -> None:
    """Not even the same content in another form is what was signed."""
    (root / "manifest.json").write_text(json.dumps(json.loads((root / "manifest.json").read_text())))


def drop_signature(root: Path) -> None:
    (root / SIGNATURE_NAME).unlink()


def cut_signature(root: Path) -> None:
    (root / SIGNATURE_NAME).write_bytes((root / SIGNATURE_NAME).read_bytes()[:40])


def swap_signature(root: Path) -> None:
    (root / SIGNATURE_NAME).write_bytes(
        Ed25519PrivateKey.generate().sign((root / "manifest.json").read_bytes())
    )


CHANGES = {
    change_file: InvalidArtifact,
    change_file_and_digest: SignatureRefused,
    change_one_blank: SignatureRefused,
    drop_signature: SignatureRefused,
    cut_signature: SignatureRefused,
    swap_signature: SignatureRefused,
}


def test_what_was_signed_is_taken(signed: tuple[Path, Path], tmp_path: Path) -> None:
    root, public = signed
    assert verify_artifact(str(root), VerifyingKey(public)).job_id == "job1"
    assert fetch_tower(str(root), TowerName.USER, tmp_path / "here", VerifyingKey(public)).exists()


@pytest.mark.parametrize(("change", "error"), CHANGES.items())
def test_what_was_changed_is_refused(
    change: Callable[[Path], None], error: type[ExportError], signed: tuple[Path, Path], tmp_path: Path
) -> None:
    root, public = signed
    change(root)
    with pytest.raises(error):
        verify_artifact(str(root), VerifyingKey(public))
    with pytest.raises(error):
        fetch_tower(str(root), TowerName.USER, tmp_path / "here", VerifyingKey(public))


def test_another_key_is_refused(
    signed: tuple[Path, Path], make_key: Callable[[str], tuple[SigningKey, Path]]
) -> None:
    _, other = make_key("other")
    with pytest.raises(SignatureRefused, match="signed with another key"):
        verify_artifact(str(signed[0]), VerifyingKey(other))


@pytest.mark.parametrize("command", ["predict", "inspect"])
def test_the_commands_refuse_before_they_show_or_load(
    command: str, signed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, public = signed
    change_one_blank(root)
    words = {
        "inspect": ["inspect", str(root)],
        "predict": ["predict", "--artifact", str(root), "--tower", "user", "--input", "x", "--output", "y"],
    }[command]
    assert main([*words, "--verify", str(public)]) == 1
    told = capsys.readouterr()
    assert "error [signature_refused]" in told.err and told.out == ""


def test_inspect_says_that_all_is_as_signed(
    signed: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(signed[0]), "--verify", str(signed[1])]) == 0
    assert "every file is the one that was signed" in " ".join(capsys.readouterr().out.split())
    change_file(signed[0])
    assert main(["inspect", str(signed[0]), "--verify", str(signed[1])]) == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_openssl_verifies_it_without_us(signed: tuple[Path, Path]) -> None:
    root, public = signed
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(public), "-rawin"]
    command += ["-in", str(root / "manifest.json"), "-sigfile", str(root / SIGNATURE_NAME)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    change_one_blank(root)
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_a_manifest_of_another_job_is_not_signed(
    signed: tuple[Path, Path], make_key: Callable[[str], tuple[SigningKey, Path]]
) -> None:
    with pytest.raises(InvalidArtifact, match="is of job job1"):
        sign_artifact(str(signed[0]), "job2", make_key("own")[0], None)


def test_another_keys_signature_is_not_taken_for_ones_own_and_stays(
    signed: tuple[Path, Path], make_key: Callable[[str], tuple[SigningKey, Path]]
) -> None:
    root, public = signed
    digest = file_ref("manifest.json", root / "manifest.json").sha256
    with pytest.raises(SignatureRefused, match="another key"):
        sign_artifact(str(root), "job1", make_key("other")[0], digest)
    verify_artifact(str(root), VerifyingKey(public))


def test_a_manifest_that_was_swapped_is_not_signed(
    signed: tuple[Path, Path], make_key: Callable[[str], tuple[SigningKey, Path]]
) -> None:
    root, _ = signed
    drop_signature(root)
    written = file_ref("manifest.json", root / "manifest.json").sha256
    change_file_and_digest(root)  # still of the same job
    with pytest.raises(InvalidArtifact, match="not the manifest that the attempt wrote"):
        sign_artifact(str(root), "job1", make_key("own")[0], written)
    assert not (root / SIGNATURE_NAME).exists()


def test_what_nobody_told_the_digest_of_is_signed_already_or_stays_unsigned(
    signed: tuple[Path, Path], make_key: Callable[[str], tuple[SigningKey, Path]]
) -> None:
    root, _ = signed
    key, _ = make_key("own")
    drop_signature(root)
    with pytest.raises(SignatureRefused, match="is not signed"):
        sign_artifact(str(root), "job1", key, None)
    assert not (root / SIGNATURE_NAME).exists()
    (root / SIGNATURE_NAME).write_bytes(key.sign((root / "manifest.json").read_bytes()))
    sign_artifact(str(root), "job1", key, None)


@pytest.mark.parametrize(
    "pem", ["", "planted", pem_of(ec.generate_private_key(ec.SECP256R1())).replace("\n", "\n ")]
)
def test_what_is_no_key_is_refused_and_not_repeated(pem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not an Ed25519 key") as refused:
        SigningKey(pem)
    assert "planted" not in str(refused.value)
    (tmp_path / "key").write_text(pem)
    with pytest.raises(InvalidSpec, match="not an Ed25519 public key"):
        VerifyingKey(tmp_path / "key")
