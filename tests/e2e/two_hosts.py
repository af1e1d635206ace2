"""Two hosts on one machine: network namespaces joined by a cable; or, where the kernel refuses, one loopback.

There both meet at 127.0.0.2, and their ranks connect at 127.0.0.1: gloo takes an interface's first address,
so that neither can have one of its own. `pytest --loopback` does so where the kernel would not refuse.
"""

import contextlib
import itertools
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_names = itertools.count()


@dataclass(frozen=True, kw_only=True)
class TwoHosts:
    """Two hosts to run commands on, each seeing itself alone; the first has the address to meet at."""

    prefixes: tuple[tuple[str, ...], tuple[str, ...]]
    address: str
    logs: Path
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, host: int, command: Sequence[str]) -> "Command":
        """Start `slipway COMMAND` on a host."""
        log = self.logs / f"{next(_names)}.txt"
        program = [*self.prefixes[host], sys.executable, "-m", "cli.main", *command]
        with log.open("wb") as output:
            process = subprocess.Popen(program, stdout=output, stderr=subprocess.STDOUT)
        self.started.append(process)
        return Command(process=process, log=log)

    def meeting(self) -> tuple[str, ...]:
        """The options of two hosts that meet, at a port that is free."""
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            return ("--nodes", "2", "--rdzv", f"{self.address}:{trial.getsockname()[1]}")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One that was started, and what it has written."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def status(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def two_hosts(logs: Path, *, loopback: bool) -> Iterator[TwoHosts]:
    """Two hosts, which are gone afterwards with all that runs on them; of the `loopback` range if need be."""
    with contextlib.ExitStack() as stack:
        hosts = TwoHosts(prefixes=((), ()), address="127.0.0.2", logs=logs)
        if not loopback:
            try:
                hosts = _namespaces(stack, logs)
            except (OSError, subprocess.CalledProcessError):  # the kernel refuses, or this is not root
                stack.close()
        try:
            yield hosts
        finally:
            for process in hosts.started:
                process.terminate()
            for process in hosts.started:
                process.wait(30)


def _namespaces(stack: contextlib.ExitStack, logs: Path) -> TwoHosts:
    tag = f"{os.getpid() % 10_000}{secrets.token_hex(1)}"
    names, cables = (f"sw{tag}a", f"sw{tag}b"), (f"sv{tag}a", f"sv{tag}b")
    for name in names:
        _ip("netns", "add", name)
        stack.callback(_ip, "netns", "del", name)  # takes the cable along
    _ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", cables[1], "netns", names[1])
    for number, (name, cable) in enumerate(zip(names, cables, strict=True), start=1):
        _ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", cable)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", cable, "up")
    first, second = (("ip", "netns", "exec", name) for name in names)
    return TwoHosts(prefixes=(first, second), address="10.77.0.1", logs=logs)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)
