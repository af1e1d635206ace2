"""`slipway verify`: check that a published artifact is whole, signed, and answers here as it should."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.options.artifact import add_key_option, add_towers_option, key_of, towers_of
from cli.prove import show_proofs
from cli.settings import ExportSettings
from exporter.artifact.read import read_manifest, require_towers, root_of
from exporter.artifact.signing import VerifyingKey
from exporter.artifact.verification import FileCheck, Signature, check_files, find_signature
from exporter.errors import InvalidSpec
from exporter.manifest import Manifest, TowerEntry
from exporter.redaction import escape_deceptive
from exporter.storage.open import open_store
from jobs.ids import is_job_id
from processes.extras import require_extras
from processes.startup import settings_or_exit
from service.client.options import non_empty
from service.client.tables import console
from service.commands.client_options import add_url_option, client_of
from slipway.rest.answers import JobView

if TYPE_CHECKING:
    from exporter.serving.prove import Proof  # loads torch

_FAILED = 1
_SIGNATURES = {
    Signature.VALID: "signed with the key",
    Signature.UNCHECKED: "signed; --key KEY checks with which key",
    Signature.MISSING: "not signed",
}
_EXAMPLES = (
    "examples: slipway verify s3://models/retrieval/01J... --key signing-key.pub; "
    "slipway verify 01jd6v7x4mzq3w8c5kftn2rbha --tower item"
)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The findings about an artifact; `proofs` is None if its packages were not run."""

    uri: str
    manifest: Manifest
    signature: Signature
    files: tuple[FileCheck, ...]
    proofs: "tuple[Proof, ...] | None"
    unproved: tuple[str, ...]  # towers without sample requests

    @property
    def damaged(self) -> tuple[FileCheck, ...]:
        return tuple(file for file in self.files if file.problem)

    @property
    def passed(self) -> bool:
        return not self.damaged and all(proof.passed for proof in self.proofs or ())


def add_command(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `verify`."""
    parser = subparsers.add_parser(
        "verify",
        help="check a published artifact: signature, files, answers",
        description="Check that a published artifact is whole and works here: its manifest and signature, "
        "size and digest of every file, and the answers of its packages to the sample requests in it, each "
        "tower in a fresh process. Exit code: 1 if anything is not as it was published.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "artifact",
        metavar="URI",
        type=non_empty,
        help="the artifact's folder or manifest, or the id of a job, whose artifact the service then sends",
    )
    add_towers_option(parser, "check")
    parser.add_argument(
        "--target", type=non_empty, help="target of a job with several, whose artifact to check"
    )
    add_key_option(parser, "--key")
    parser.add_argument("--files-only", action="store_true", help="run no package; this needs no torch")
    parser.add_argument("--json", action="store_true", help="print the result, or the error, as JSON")
    add_url_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify an artifact, and print what was found."""
    if not arguments.files_only:
        require_extras("exporter")
    with tempfile.TemporaryDirectory(prefix="slipway-verify-") as folder:
        found = verify(_locate(arguments, Path(folder)), arguments)
    print(json.dumps(_as_json(found), indent=2)) if arguments.json else _show(found)
    return 0 if found.passed else _FAILED


def verify(uri: str, arguments: argparse.Namespace) -> Verification:
    """Check the artifact at `uri`, as far as the options ask for it."""
    key, root = key_of(arguments), root_of(uri)
    manifest, store = read_manifest(uri, key), open_store(root)
    towers = require_towers(manifest, towers_of(arguments), root)
    files = check_files(towers, store)
    is_whole = not any(file.problem for file in files)
    return Verification(
        uri=arguments.artifact,
        manifest=manifest,
        signature=find_signature(store, key),
        files=files,
        proofs=_prove(root, towers, key) if is_whole and not arguments.files_only else None,
        unproved=tuple(tower.name for tower in towers if tower.samples is None),
    )


def _locate(arguments: argparse.Namespace, folder: Path) -> str:
    """Return the artifact's URI; that of a job is fetched from the service to below the folder."""
    named: str = arguments.artifact
    if not is_job_id(named) or Path(named).exists():
        if arguments.target is not None:
            raise InvalidSpec("--target goes with a job's id", hint="leave it out: a URI is of one target")
        return named
    client, into = client_of(arguments), folder / "artifact"
    target = _target_of(client.get(named), arguments.target)
    client.download(named, into, towers=towers_of(arguments), target=target, key=arguments.verify)
    return str(into)


def _target_of(job: JobView, wanted: str | None) -> str | None:
    """Return the target to verify; a job with several has an artifact for each, so one must be named."""
    if wanted is None and len(job.targets) > 1:
        raise InvalidSpec(
            f"job {job.id} has an artifact for each of its targets: {', '.join(job.targets)}",
            hint=f"name one: slipway verify {job.id} --target {job.targets[0]}",
            where="--target",
        )
    return wanted


def _prove(uri: str, towers: Sequence[TowerEntry], key: VerifyingKey | None) -> "tuple[Proof, ...]":
    from exporter.serving.prove import prove_artifact  # torch loads only where packages are run

    families = settings_or_exit(ExportSettings).families
    return tuple(
        prove_artifact(uri, tower.name, key, families) for tower in towers if tower.samples is not None
    )


def _as_json(found: Verification) -> dict[str, object]:
    proofs = found.proofs
    return {
        "artifact": found.uri,
        "job_id": found.manifest.job_id,
        "signature": found.signature,
        "files": [file.model_dump() for file in found.files],
        "towers": None if proofs is None else [proof.model_dump(mode="json") for proof in proofs],
        "without_samples": list(found.unproved),
        "passed": found.passed,
    }


def _show(found: Verification) -> None:
    out = console()
    out.print(f"artifact {found.manifest.job_id}, {escape_deceptive(found.manifest.family)}")
    for line in _sentences(found):
        out.print(line)
    if found.proofs:
        show_proofs(found.proofs)
    out.print(_verdict(found))


def _verdict(found: Verification) -> str:
    if not found.passed:
        return "FAILED"
    if found.signature is Signature.VALID:
        return "verified"
    return "as its manifest says; who published it was not checked: --key"


def _sentences(found: Verification) -> Iterator[str]:
    """Describe all but the answers of packages."""
    yield f"signature: {_SIGNATURES[found.signature]}"
    size = sum(file.size for file in found.files)
    yield f"files: {len(found.files)} of {size:,} bytes, {len(found.files) - len(found.damaged)} as published"
    for file in found.damaged:
        yield f"  {escape_deceptive(file.problem)}"
    if found.proofs is None:
        yield f"packages: not run{', because files are damaged' if found.damaged else ''}"
    elif found.unproved:
        yield f"packages: not run for {', '.join(found.unproved)}: published without sample requests"
