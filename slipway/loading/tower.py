"""A loaded tower: called by any number of threads, and exchanged for a newer one while they call."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from slipway.loading.errors import CallFailed, InputRefused, LoaderError, SwapRefused
from slipway.loading.inputs import explain_refusal
from slipway.loading.layout.manifest import TensorEntry
from slipway.loading.release import Check, LookUp, Options, Release, open_release

_OUT_OF_MEMORY = re.compile(r"out of memory|DefaultCPUAllocator: |std::bad_alloc", re.IGNORECASE)


def load(
    artifact: Path | str,
    tower: str,
    *,
    key: Path | str | None = None,
    check: Check = "lazily",
    calls_at_once: int | None = None,
    device: torch.device | str | None = None,
    lookup: LookUp | None = None,
) -> "LoadedTower":
    """Load a tower of an artifact, which is a local folder: as published, or as `slipway prepare` wrote it.

    Weights are mapped. A prepared folder's code is checked before it is loaded, and `check` says when its
    weights are: "all" before this returns, "lazily" each part once a call has brought it into memory,
    "never" not at all. Of an artifact as published all files are read and checked, unless it is "never".

    Args:
        artifact: the folder that has manifest.json.
        tower: "user", "item", "model", ...
        key: a public key (Ed25519, PEM); what it has not signed is refused.
        check: when the weights are checked.
        calls_at_once: calls that compute at the same time, by default as many as the machine has processors.
        device: a GPU among several, as "cuda:1"; by default the manifest's kind of device.
        lookup: for a tower with sharded tables: returns the inputs of the package for those of the tower.

    Raises:
        ArtifactInvalid: there is no such tower, or the artifact is incomplete, damaged or contradicts itself.
        SignatureRefused: `key` has not signed it.
        MachineUnfit, VersionsDiffer, OperatorsMissing: it cannot run here.
    """
    options = Options.of(check=check, key=key, calls_at_once=calls_at_once, device=device, lookup=lookup)
    return LoadedTower(tower, open_release(Path(artifact), tower, options), options)


class LoadedTower:
    """A tower, called with a dict of inputs as the manifest lists them; returns a dict of outputs."""

    def __init__(self, name: str, release: Release, options: Options) -> None:
        """Serve this release; use `load`."""
        self.name = name
        self._release: Release | None = release
        self._options = options
        self._swapping = threading.Lock()

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute; a call that overlaps a swap uses one release only, the older or the newer.

        Raises:
            InputRefused: the inputs are not those that the manifest describes.
            ArtifactDamaged: weights have turned out to be damaged since they were loaded.
            CallFailed: the package failed for another reason.
        """
        release = self._release
        if release is None:
            raise CallFailed(f"the {self.name} tower is closed", hint="load it again")
        if release.page_check is not None:
            release.page_check.require_intact()
        values = release.input_check.in_order(inputs)
        try:
            return release.call(values, inputs)
        except RuntimeError as error:
            raise _explain(release, inputs, error) from error

    def swap(self, artifact: Path | str, *, key: Path | str | None = None) -> None:
        """Answer from a newer artifact from now on; calls that have begun end with the older one.

        Where the code is equal, only weights change. Nothing changes if this raises. What the older one holds
        is given back when its last call has ended.

        Args:
            artifact: as of `load`.
            key: by default that of `load`.

        Raises:
            SwapRefused: it takes or returns other tensors.
            LoaderError: as `load` does.
        """
        options = self._options.with_key(key)
        with self._swapping:
            current = self._current()
            newer = open_release(Path(artifact), self.name, options, current)
            if difference := _difference(current, newer):
                raise SwapRefused(f"{artifact}: {difference}", where=str(artifact))
            self._release = newer

    def await_check(self, seconds: float | None = None) -> bool:
        """Wait until all weights have been checked, at most so long; return whether that is so.

        Parts that no call has brought into memory are not checked, so that this may take forever.

        Raises:
            ArtifactDamaged: a part is damaged.
        """
        page_check = self._current().page_check
        if page_check is None:
            return True
        has_ended = page_check.wait(seconds)
        page_check.require_intact()
        return has_ended

    @property
    def job_id(self) -> str:
        """The job that published the release that answers now."""
        return self._current().manifest.job_id

    @property
    def device(self) -> torch.device:
        """The device of inputs and outputs."""
        return self._current().device

    @property
    def inputs(self) -> tuple[TensorEntry, ...]:
        """Names, dtypes and shapes of the inputs."""
        return self._current().tower.inputs

    @property
    def outputs(self) -> tuple[TensorEntry, ...]:
        """Names, dtypes and shapes of the outputs."""
        return self._current().tower.outputs

    @property
    def calls_without_lock(self) -> bool:
        """True if calls compute without Python's lock, so that they overlap with other threads."""
        return self._current().native is not None

    def close(self) -> None:
        """Let go of code and weights once the last call has ended; later calls are refused."""
        self._release = None

    def _current(self) -> Release:
        release = self._release
        if release is None:
            raise CallFailed(f"the {self.name} tower is closed", hint="load it again")
        return release

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _explain(release: Release, inputs: Mapping[str, Tensor], error: RuntimeError) -> LoaderError:
    """Return the error to raise instead of a package's."""
    text = str(error).strip()
    if _OUT_OF_MEMORY.search(text):
        return CallFailed(f"the {release.tower.name} tower: {text}")
    found = release.input_check.misplaced(inputs) or explain_refusal(release.tower, inputs, text)
    return found or InputRefused(f"the {release.tower.name} tower refuses the inputs: {text}")


def _difference(current: Release, newer: Release) -> str:
    """Describe how inputs, outputs or device differ; return "" if they are the same."""
    if newer.manifest.device != current.manifest.device:
        return f"it is for {newer.manifest.device}, not {current.manifest.device}"
    for kind, older_entries, newer_entries in (
        ("takes", current.tower.inputs, newer.tower.inputs),
        ("returns", current.tower.outputs, newer.tower.outputs),
    ):
        if older_entries != newer_entries:
            older_words, newer_words = (set(map(str, each)) for each in (older_entries, newer_entries))
            added, gone = sorted(newer_words - older_words), sorted(older_words - newer_words)
            return f"it {kind} {', '.join(added) or 'another order'}, not {', '.join(gone) or 'this one'}"
    return ""
