"""The option by which `slipway export` names the release that its release gate compares the new one with."""

import argparse

from exporter.artifact.read import read_manifest
from exporter.errors import InvalidSpec
from exporter.manifest import MANIFEST_NAME
from exporter.options.release_gate import PROMOTED_BASELINE
from exporter.reports.release_report import ReleasedArtifacts
from exporter.spec import ExportSpec
from jobs.control.baselines import ReleaseContext
from service.client.options import non_empty


def add_baseline_option(parser: argparse.ArgumentParser) -> None:
    """Add --baseline."""
    parser.add_argument(
        "--baseline",
        metavar="URI",
        type=non_empty,
        help="published artifact that --release-gate compares the new one with",
    )


def find_context(spec: ExportSpec, uri: str | None) -> ReleaseContext:
    """Return what the release gate needs; a job's id says nothing here, where there is no service.

    Raises:
        InvalidSpec: the gate names a job, or there is a baseline and no gate.
        InvalidArtifact: there is no artifact at the URI.
    """
    gate = spec.release_gate
    if gate is not None and gate.baseline != PROMOTED_BASELINE:
        raise InvalidSpec(
            "`slipway export` knows no jobs of a service, and so not the baseline by its id",
            hint="leave out release_gate.baseline, and name the published artifact with --baseline",
            where="release_gate.baseline",
        )
    if uri is None:
        return ReleaseContext()
    if gate is None:
        raise InvalidSpec(
            "--baseline is of no use without a release gate",
            hint="give --release-gate too",
            where="--baseline",
        )
    manifest, root = read_manifest(uri), uri.rstrip("/").removesuffix(f"/{MANIFEST_NAME}")
    towers = {entry.name: root for entry in manifest.towers}
    return ReleaseContext(baseline=ReleasedArtifacts(job_id=manifest.job_id, towers=towers))
