"""One release of a tower, loaded: its manifest, its packages, and the check of its weights."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor

from slipway.loading.errors import ArtifactInvalid
from slipway.loading.inputs import InputCheck
from slipway.loading.layout.digests import check_trees
from slipway.loading.layout.index import is_prepared, read_index
from slipway.loading.layout.manifest import (
    MANIFEST_NAME,
    Manifest,
    Tower,
    parse_manifest,
    read_manifest_bytes,
)
from slipway.loading.layout.signature import check_signature
from slipway.loading.layout.source import find_prepared, unpack
from slipway.loading.machine import import_operators, require_machine, require_versions
from slipway.loading.native_calls import NativeCalls
from slipway.loading.package import Package
from slipway.loading.page_check import PageCheck
from slipway.loading.settings import switch_on_input_checks

Check: TypeAlias = Literal["all", "lazily", "never"]
LookUp: TypeAlias = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The wishes of a caller of `load`, which also hold for later releases."""

    check: Check
    key: Path | None
    calls_at_once: int
    device: torch.device | None
    lookup: LookUp | None

    @classmethod
    def of(
        cls,
        *,
        check: Check,
        key: Path | str | None,
        calls_at_once: int | None,
        device: torch.device | str | None,
        lookup: LookUp | None,
    ) -> Self:
        """Fill in what a caller may leave out; raise ValueError for what cannot be meant."""
        if check not in ("all", "lazily", "never"):
            raise ValueError(f'check is "all", "lazily" or "never", not {check!r}')
        if calls_at_once is not None and calls_at_once < 1:
            raise ValueError("calls_at_once is at least 1")
        return cls(
            check=check,
            key=Path(key) if key is not None else None,
            calls_at_once=calls_at_once or os.cpu_count() or 1,
            device=torch.device(device) if device is not None else None,
            lookup=lookup,
        )

    def with_key(self, key: Path | str | None) -> "Options":
        """Return these options with another key, if there is one."""
        return self if key is None else replace(self, key=Path(key))


class Release:
    """A loaded release; it never changes, so that a call that holds it sees one release only."""

    def __init__(
        self,
        manifest: Manifest,
        tower: Tower,
        packages: tuple[Package, ...],
        options: Options,
        device: torch.device,
    ) -> None:
        """Take loaded packages, and begin to check their weights if that is to be done lazily.

        Raises:
            ArtifactInvalid: the packages do not fit each other or the manifest.
        """
        self.manifest, self.tower, self.packages, self.device = manifest, tower, packages, device
        self._lookup = options.lookup if tower.tables and len(packages) == 1 else None
        if tower.tables and len(packages) == 1 and options.lookup is None:
            raise ArtifactInvalid(
                f"the {tower.name} tower looks up rows in sharded tables, and none of its packages does that",
                hint="give `load` a lookup: docs/loader.md",
            )
        order = tuple(entry.name for entry in tower.inputs) if self._lookup else packages[0].takes
        self.input_check = InputCheck(tower, order, device)
        for first, second in pairwise(packages):
            if set(second.takes) - set(first.gives):
                raise ArtifactInvalid(f"the {tower.name} tower's packages do not fit each other")
        if {entry.name for entry in tower.outputs} != set(packages[-1].gives):
            raise ArtifactInvalid(f"the {tower.name} tower returns other tensors than the manifest lists")
        files = [
            (package.source.weights.tree, package.mapped)
            for package in packages
            if package.mapped and package.source.weights and package.source.weights.tree
        ]
        is_lazy = options.check == "lazily" and files
        self.page_check = PageCheck(files) if is_lazy else None

        self.native = _native_calls(packages, calls_at_once=options.calls_at_once)

    def call(self, values: list[Tensor], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Call all packages, one after the other; raise RuntimeError if one refuses its inputs or fails."""
        if self._lookup is not None:
            found = self._lookup(inputs)
            values = [found[name] for name in self.packages[0].takes]
        if self.native is not None:
            return dict(zip(self.packages[-1].gives, self.native.call(values), strict=True))
        first, *others = self.packages
        outputs = first.call(values)
        for package in others:
            outputs = package.call([outputs[name] for name in package.takes])
        return outputs

    def __del__(self) -> None:
        """End the check before the files are unmapped."""
        page_check: PageCheck | None = self.__dict__.get("page_check")
        if page_check is not None:
            page_check.stop()


def _native_calls(packages: Sequence[Package], *, calls_at_once: int) -> NativeCalls | None:
    """Return calls of the packages without Python's lock; None where one of them cannot be called so."""
    native = [package.native for package in packages if package.native is not None]
    links = tuple(pairwise(packages))
    if len(native) < len(packages) or any(len(first.gives) != len(second.takes) for first, second in links):
        return None
    orders = [[first.gives.index(name) for name in second.takes] for first, second in links]
    return NativeCalls(native, orders, calls_at_once=calls_at_once)


def open_release(folder: Path, name: str, options: Options, older: Release | None = None) -> Release:
    """Open a tower of the artifact in a folder; code that an `older` release has loaded is not loaded again.

    Raises:
        LoaderError: as `load` says.
    """
    data = read_manifest_bytes(folder)
    if options.key is not None:  # before the bytes are parsed
        check_signature(data, folder, options.key)
    manifest = parse_manifest(data, str(folder / MANIFEST_NAME))
    tower = manifest.tower(name, str(folder))
    require_machine(manifest)
    require_versions(manifest)
    loaded = {package.code.code_sha256: package.code for package in older.packages} if older else {}
    if is_prepared(folder):
        sources = find_prepared(folder, read_index(folder, data).tower(name, folder), loaded)
    else:
        sources = unpack(folder, tower, checked=options.check != "never")
    if options.check == "all":
        check_trees([each.weights.tree for each in sources if each.weights and each.weights.tree])
    import_operators(manifest.op_libraries)
    switch_on_input_checks()
    device = options.device or torch.device(manifest.device)
    packages = tuple(
        Package(
            source,
            calls_at_once=options.calls_at_once,
            device=device,
            code=loaded.get(source.code_sha256),
        )
        for source in sources
    )
    return Release(manifest, tower, packages, options, device)
