"""Warm up a machine's compiler when Slipway is installed: `python -m worker.warm_up [target ...]`.

The compiler's headers and the interface of all packages are compiled: twenty seconds, which save five of
every export that compiles. Exports find them where this program leaves them, and make no headers themselves.
Running it again costs little, and is needed after a change of torch or g++.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from processes.settings import CompilerSettings, inherited_environment


def main() -> int:
    """Warm up for the given targets; report each one that this machine cannot compile for."""
    parser = argparse.ArgumentParser(prog="worker.warm_up", description=__doc__)
    parser.add_argument("targets", nargs="*", help="cpu, avx2, avx512; default: cpu")
    parser.add_argument("--folder", type=Path, help="for an image; default: where attempts look")
    arguments = parser.parse_args()
    folder = arguments.folder or CompilerSettings().torchinductor_cache_dir
    with tempfile.TemporaryDirectory(prefix="slipway-warm-up-") as scratch:
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(folder.absolute()), "TMPDIR": scratch}
        command = [sys.executable, "-P", "-m", "exporter.aoti.warm_up", *(arguments.targets or ["cpu"])]
        return subprocess.run(command, env=inherited_environment(environment), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
