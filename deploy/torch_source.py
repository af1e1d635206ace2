"""Choose where `make install` takes torch from: `python -m deploy.torch_source requirements/torch.txt`.

It is run before anything is installed. Standard output gets pip's options, usually none; standard error says
what is about to be downloaded where no index has the build for CPU.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Where PyTorch publishes its builds for CPU; asked if no index that pip is configured with has one.
CPU_WHEELS = "https://download.pytorch.org/whl/cpu/torch/"
_AT_ONCE = ("--retries", "0", "--timeout", "10")
_PIN = re.compile(r"^torch==[0-9.]+", re.MULTILINE)


def main() -> int:
    """Print the options that make pip take torch's build for CPU, if that is what this machine needs."""
    found = _PIN.search(Path(sys.argv[1]).read_text())
    assert found, f"{sys.argv[1]} pins no torch"
    if shutil.which("nvidia-smi"):  # a machine with a GPU takes what its index has
        return 0
    options, told = choose(found[0])
    sys.stdout.write(" ".join(options))
    sys.stderr.write(told)
    return 0


def choose(pin: str) -> tuple[Sequence[str], str]:
    """Return pip's options for `pin`, and what to tell the person who waits."""
    usual = _would_take(pin)
    if usual.endswith("+cpu"):
        return (), ""
    page = ("--find-links", CPU_WHEELS)
    if _would_take(pin, *page, *_AT_ONCE).endswith("+cpu"):
        return page, f"  taking torch for CPU from {CPU_WHEELS}\n"
    return (), (
        f"  no index that pip is configured with, nor {CPU_WHEELS}, has torch for CPU.\n"
        f"  Downloading {pin} for CUDA with its libraries, several GB; they work without a GPU, too.\n"
        "  To avoid it, interrupt now and name an index that has +cpu builds in PIP_EXTRA_INDEX_URL.\n"
    )


def _would_take(pin: str, *options: str) -> str:
    """Return the version that pip would install, or nothing if it finds none."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
    pip += ["--ignore-installed", "--no-deps", "--report", "-", pin, *options]
    asked = subprocess.run(pip, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        return ""
    (install,) = json.loads(asked.stdout)["install"]
    version: str = install["metadata"]["version"]
    return version


if __name__ == "__main__":
    sys.exit(main())
