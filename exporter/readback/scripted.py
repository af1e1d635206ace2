"""A scripted half read back: every byte of its tensors, as they are loaded, held against the checkpoint."""

import zipfile
import zlib

import torch
from torch.fx import GraphModule

from exporter.aoti.assemble import WrittenFile
from exporter.aoti.constants import Constant
from exporter.checkpoint.tensors import raw_of
from exporter.manifest import ReadBack
from exporter.readback.compare import Found, Place, as_rows, compare_boxes
from exporter.readback.errors import ArchiveDiffers
from exporter.readback.expected import Expected
from exporter.readback.tower_weights import TowerWeights, expect_own
from exporter.torcheasyrec.scripted_file import load_scripted


def read_back_scripted(
    title: str, file: WrittenFile, graph: GraphModule, origin: TowerWeights | None, before: ReadBack
) -> ReadBack:
    """Compare a file with the graph that it was made of and with the checkpoint; add that to `before`.

    Without `origin`, as for a tower that was made by hand, the tensors are held against the graph's.

    Raises:
        ArchiveDiffers: an entry of the archive is damaged, or the file has other tensors than the graph.
        WeightsDiffer: names the tensor, the row, the column, and both values.
    """
    place = Place(title=title, file=file.path.name)
    entries = _require_sound(place, file)
    weights = graph.state_dict()
    loaded = load_scripted(file.path, torch.device("cpu")).state_dict()
    tensors = {name: value.contiguous() for name, value in loaded.items()}
    for name in sorted(tensors.keys() ^ weights.keys()):
        raise ArchiveDiffers(f"{title}: {place.file}: {name} is missing, or no table's", where=name)
    found = {name: _as_found(value) for name, value in tensors.items()}
    seen: set[str] = set()
    from_checkpoint = 0
    for name, value in tensors.items():
        if name in seen:
            continue
        constant = _as_constant(name, value)
        expected: Expected = (
            origin.expect(constant, "", edited=False)
            if origin is not None
            else expect_own(constant, weights, "the module")
        )
        own = {each: found[each] for each in expected.names if each in found}
        rows = max(each.raw.shape[0] for each in own.values())
        compare_boxes(own, expected.boxes(0, rows), place, expected.reference)
        from_checkpoint += len(own) if expected.from_checkpoint else 0
        seen.update(expected.names)
    return ReadBack(
        entries=before.entries + entries,
        tensors=before.tensors + len(found),
        from_checkpoint=before.from_checkpoint + from_checkpoint,
        bytes=before.bytes + sum(each.raw.numel() for each in found.values()),
    )


def _require_sound(place: Place, file: WrittenFile) -> int:
    """Compare every entry of the archive with its checksum; return their number."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            damaged = archive.testzip()
            count = len(archive.infolist())
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, OSError, EOFError) as error:
        raise ArchiveDiffers(f"{place.title}: {place.file}: {error}", where=place.file) from error
    if damaged is not None:
        raise ArchiveDiffers(f"{place.title}: {place.file}: {damaged} is damaged", where=damaged)
    return count


def _as_found(value: torch.Tensor) -> Found:
    raw = as_rows(raw_of(value), value.dtype.itemsize)
    return Found(raw=raw, dtype=value.dtype, is_flat=value.dim() < 2)


def _as_constant(name: str, value: torch.Tensor) -> Constant:
    return Constant(
        fqn=name,
        dtype=value.dtype,
        shape=tuple(value.shape),
        stride=value.stride(),
        offset=0,
        size=value.nbytes,
    )
