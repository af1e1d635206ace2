"""Check that the hosts of one attempt have the same spec, checkpoint, target and versions.

Hosts that differ would each make an export of their own.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from exporter.construction.input_limits import list_checkpoint_files
from exporter.distributed.isolation import run_isolated
from exporter.errors import AttemptFailed, ExportError, InvalidSpec
from exporter.manifest import Versions
from exporter.outcome import Failure
from exporter.spec import ExportSpec, Frozen
from exporter.storage.places import Places
from exporter.version import __version__

_SAME_COMMAND_HINT = "start the same command on every host"
_SAMPLE_BYTES = 1 << 16  # read at start, middle and end of a file that each host may have a copy of


class HostFacts(Frozen):
    """Facts about one host that must be the same on all hosts."""

    hosts: int
    ranks: int  # of all hosts
    spec: str  # digest of the spec
    checkpoint: str  # digest of its files' names and sizes, and of samples of local files
    architecture: str  # the architecture that packages compiled there run on
    versions: Versions

    @classmethod
    def collect(cls, spec: ExportSpec, places: Places, *, hosts: int, ranks: int) -> Self:
        """Collect the facts of this host.

        Raises:
            ExportError: this host may not, or cannot, read the checkpoint.
        """
        from exporter.aoti.architecture import architecture  # these take seconds to import
        from exporter.aoti.compile import versions

        places.require_within(spec)
        return cls(
            hosts=hosts,
            ranks=ranks,
            spec=_digest([spec.model_dump_json(exclude={"config_uri", "nodes", "ranks"}).encode()]),
            checkpoint=digest_checkpoint(spec.checkpoint_uri),
            architecture=architecture(spec.device, spec.targets[0]),
            versions=versions(),
        )

    def require_same_as(self, first: "HostFacts", host: int) -> None:
        """Raise InvalidSpec, naming the first difference from the first host's facts."""
        own, others = self.versions.model_dump(), first.versions.model_dump()
        for name, version in own.items():
            if version != others[name]:
                raise InvalidSpec(
                    f"host {host} has {name} {version}, and the first host {others[name]}",
                    hint="run the same image on every host",
                )
        for is_same, difference, hint, where in (
            (
                (self.hosts, self.ranks) == (first.hosts, first.ranks),
                f"was given {self.hosts} hosts with {self.ranks} ranks in all, and the first host "
                f"{first.hosts} with {first.ranks}",
                _SAME_COMMAND_HINT,
                "nodes",
            ),
            (
                self.spec == first.spec,
                "was asked for another export than the first host",
                _SAME_COMMAND_HINT,
                "",
            ),
            (
                self.checkpoint == first.checkpoint,
                "reads another checkpoint than the first host",
                "name an object store, or copy the same files to every host",
                "checkpoint_uri",
            ),
            (
                self.architecture == first.architecture,
                f"compiles for {self.architecture}, and the first host for {first.architecture}",
                "name a target that all of them have, such as avx2",
                "target",
            ),
        ):
            if not is_same:
                raise InvalidSpec(f"host {host} {difference}", hint=hint, where=where)


class AgreedJob(Frozen):
    """The job that all hosts of an attempt work on: that of the host of rank 0."""

    job_id: str
    folder: str
    common: HostFacts

    @property
    def mark(self) -> str:
        """The name of a file that lies where artifacts go until all hosts have found it."""
        return f"{self.job_id}.meeting"

    @classmethod
    def read(cls, message: str, host: int) -> Self:
        """Parse the first host's message; InvalidSpec where another release of Slipway wrote it."""
        try:
            return cls.model_validate_json(message)
        except ValidationError as error:
            raise InvalidSpec(
                f"host {host} has slipway {__version__}, and the first host another release",
                hint="run the same image on every host",
            ) from error


def collect_host_facts(spec: ExportSpec, places: Places, *, hosts: int, ranks: int) -> HostFacts | Failure:
    """Collect this host's facts in a child process, as that imports a compiler and may start a driver."""

    def collect() -> HostFacts | Failure:
        try:
            return HostFacts.collect(spec, places, hosts=hosts, ranks=ranks)
        except ExportError as error:
            return Failure.of(error)

    return run_isolated(
        collect, on_death=lambda how: Failure.of(AttemptFailed(f"the process that looked at this host {how}"))
    )


def digest_checkpoint(uri: str) -> str:
    """Return a digest of the checkpoint's files without reading any file whole."""
    return _digest(_identify_files(uri))


def _identify_files(uri: str) -> Iterator[bytes]:
    for file in sorted(list_checkpoint_files(uri), key=lambda file: file.name):
        yield f"{file.name} {file.size}".encode()
        if file.local is not None:
            yield from _read_samples(file.local, file.size)


def _read_samples(file: Path, size: int) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for at in sorted({0, max(0, size // 2), max(0, size - _SAMPLE_BYTES)}):
            opened.seek(at)
            yield opened.read(_SAMPLE_BYTES)


def _digest(parts: Iterator[bytes] | list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
