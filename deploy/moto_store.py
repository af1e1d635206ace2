"""Run moto in place of compose.yaml's MinIO: buckets, users, and rights that it can enforce."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.compose import ROOT, Service
from deploy.mc_for_moto import AccessKey, read_keys
from processes.settings import inherited_environment

_START_S = 120.0


@dataclass(frozen=True)
class MotoStore:
    """A running server."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write_mc(self) -> Path:
        """Write a program `mc` that works on this server, and return the folder that holds it."""
        program = self.folder / "bin" / "mc"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={ROOT}\n"
            f'exec {sys.executable} -m deploy.mc_for_moto "$MC_HOST_store" {self._keys} "$@"\n'
        )
        program.chmod(0o755)
        return program.parent

    def key_of(self, service: Service) -> AccessKey:
        """Return the credentials of the user that this service of compose.yaml names."""
        return read_keys(self._keys)[service.environment["AWS_ACCESS_KEY_ID"]]

    def enforce_rights(self, *, on: bool = True) -> None:
        """Let users do what their policies allow and nothing else; or, when off, everything.

        moto cannot judge links that carry their signature: whoever follows one has to turn this off.
        """
        count = b"0" if on else b"inf"  # requests that are answered before signatures and policies count
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", data=count, headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request, timeout=10).close()

    @property
    def _keys(self) -> Path:
        return self.folder / "moto-keys.json"


@contextmanager
def running_moto(port: int, folder: Path) -> Iterator[MotoStore]:
    """Run moto on this port until the block ends, with its log and users' keys in the folder."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=inherited_environment({}))
    try:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/data.json", timeout=2).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                break
        yield MotoStore(port, folder)
    finally:
        server.terminate()
        server.wait(timeout=30)
