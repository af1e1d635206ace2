"""The file of a package's weights in a prepared folder: the blob's tensors, each at an aligned place."""

from collections.abc import Iterator
from dataclasses import replace
from os import SEEK_CUR
from pathlib import Path
from typing import BinaryIO

from slipway.loading.dtypes import dtype_of
from slipway.loading.errors import ArtifactInvalid
from slipway.loading.layout.archive import Blob
from slipway.loading.layout.digests import CHUNK, read_leaves, root_of
from slipway.loading.layout.index import PlacedTensor, PreparedWeights

PAGE = 4096
_ALIGNMENT = 64  # of tensors smaller than a page
_ZEROS = bytes(CHUNK)


def write_weights(archive: Path, blob: Blob, folder: Path, below: str) -> PreparedWeights:
    """Copy the weights out of a package's file to the folder `below` that of the preparation.

    Raises:
        ArtifactInvalid: the package's table of constants and its weights do not fit each other.
    """
    path, leaves = f"{below}/weights.bin", f"{below}/weights.leaves"
    tensors, end = [], 0
    for tensor in tensors_in(blob, archive):
        end += -end % (PAGE if tensor.nbytes >= PAGE else _ALIGNMENT)
        tensors.append((tensor.offset, replace(tensor, offset=end)))
        end += tensor.nbytes
    size = end + -end % PAGE
    with archive.open("rb") as packed, (folder / path).open("wb") as file:
        for start, tensor in tensors:
            packed.seek(start)
            file.seek(tensor.offset)
            _copy_bytes(packed, file, tensor.nbytes, archive)
        file.truncate(size)
    digests = read_leaves(folder / path)
    (folder / leaves).write_bytes(digests)
    return PreparedWeights(
        path=path,
        size=size,
        leaves=leaves,
        root=root_of(size, digests),
        tensors=tuple(tensor for _, tensor in tensors),
    )


def tensors_in(blob: Blob, archive: Path) -> Iterator[PlacedTensor]:
    """Yield the tensors of a blob with their places in the package's file.

    Raises:
        ArtifactInvalid: a tensor does not fit into its place.
    """
    start = blob.start
    for row in blob.rows:
        try:
            nbytes = row.elements * dtype_of(row.dtype).itemsize
        except ValueError as error:
            raise ArtifactInvalid(f"{archive}: {row.fqn}: {error}", where=str(archive)) from error
        if nbytes > row.size or row.offset:
            raise ArtifactInvalid(f"{archive}: {row.fqn} has no room among the weights", where=str(archive))
        yield PlacedTensor(
            name=row.fqn, dtype=row.dtype, shape=row.shape, stride=row.stride, offset=start, nbytes=nbytes
        )
        start += row.size


def _copy_bytes(source: BinaryIO, target: BinaryIO, size: int, where: Path) -> None:
    """Copy bytes, and leave holes in place of pieces that are all zeros."""
    while size:
        data = source.read(min(size, CHUNK))
        if not data:
            raise ArtifactInvalid(f"{where} is cut short", where=str(where))
        if data == _ZEROS:
            target.seek(len(data), SEEK_CUR)
        else:
            target.write(data)
        size -= len(data)
