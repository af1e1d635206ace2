"""Published towers in a server: `from slipway.loader import load`. Needs torch, and nothing else."""

import argparse
import sys
from pathlib import Path

from slipway.loading.errors import (
    ArtifactDamaged,
    ArtifactInvalid,
    CallFailed,
    InputRefused,
    LoaderError,
    MachineUnfit,
    OperatorsMissing,
    PrepareFailed,
    ProofFailed,
    SignatureRefused,
    SwapRefused,
    TowerMissing,
    VersionsDiffer,
)
from slipway.loading.layout.manifest import TensorEntry
from slipway.loading.layout.prepare import prepare
from slipway.loading.proof import prove
from slipway.loading.tower import LoadedTower, load

__all__ = [
    "ArtifactDamaged",
    "ArtifactInvalid",
    "CallFailed",
    "InputRefused",
    "LoadedTower",
    "LoaderError",
    "MachineUnfit",
    "OperatorsMissing",
    "PrepareFailed",
    "ProofFailed",
    "SignatureRefused",
    "SwapRefused",
    "TensorEntry",
    "TowerMissing",
    "VersionsDiffer",
    "load",
    "prepare",
    "prove",
]


def main() -> int:
    """Print where the C++ header is."""
    parser = argparse.ArgumentParser(prog="python -m slipway.loader", description=main.__doc__)
    parser.add_argument("--include", action="store_true", required=True, help="print the folder to include")
    parser.parse_args()
    sys.stdout.write(f"{Path(__file__).parent / 'include'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
