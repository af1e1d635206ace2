"""The check of torch as programs start that never import it: see `probe.check`."""

import subprocess
import sys

from pydantic import ValidationError

from exporter.errors import TorchUnsupported
from exporter.outcome import Failure
from exporter.torch_releases import SUPPORTED, installed_release

_TIME_LIMIT_S = 300


def require_usable_torch() -> None:
    """Refuse a torch that Slipway cannot use.

    The supported releases are known to be usable. Any other one is checked in a child process, for seconds.

    Raises:
        TorchUnsupported: it names what is missing.
    """
    if installed_release() in SUPPORTED:
        return
    command = [sys.executable, "-P", "-m", "exporter.aoti.probe.check"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT_S)
    if answer.returncode == 0:
        return
    last_line = answer.stderr.strip().rpartition("\n")[2]
    try:
        message = Failure.model_validate_json(last_line).message
    except ValidationError:  # importing torch has failed
        message = f"torch {installed_release() or ''} could not be asked what it has: {last_line}"
    raise TorchUnsupported(message)
