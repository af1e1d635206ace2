"""What a machine pays once, paid when Slipway is installed: `python -m worker.warm_up [target ...]`.

The compiler asks a machine for its instructions and compiles headers for it, twenty seconds in all. Attempts
find both where this leaves them. Doing it again costs little, and is needed after a change of torch or g++.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from processes.settings import CompilerSettings, inherited_environment


def main() -> int:
    """Warm up for the targets that are named; of one that this machine does not compile for, say so."""
    parser = argparse.ArgumentParser(prog="worker.warm_up", description=__doc__)
    parser.add_argument("targets", nargs="*", help="cpu, avx2, avx512; default: cpu")
    parser.add_argument("--folder", type=Path, help="for an image; default: where attempts look")
    arguments = parser.parse_args()
    folder = arguments.folder or CompilerSettings().torchinductor_cache_dir
    with tempfile.TemporaryDirectory(prefix="slipway-warm-up-") as scratch:
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder.absolute()), "TMPDIR": scratch}
        command = [sys.executable, "-m", "exporter.aoti.warm_up", *(arguments.targets or ["cpu"])]
        return subprocess.run(command, env=inherited_environment(environment), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
