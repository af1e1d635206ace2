"""Map from ids of any size to row numbers of a table, as training left it: nothing is admitted or evicted.

V ids, R rows of the table.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from exporter.checkpoint.errors import IdMapBroken
from exporter.checkpoint.keymap import FREE_ID, ID_MAP_IDS, ID_MAP_ROWS
from exporter.checkpoint.mapped_tensor import room_for
from exporter.checkpoint.tensors import Piece, TensorMeta

_CHECKED = 1 << 20  # ids that are compared at a time

PiecesOfTensor = Callable[[str], Sequence[Piece]]


class IdMap(nn.Module):
    """Ids in ascending order, each with its row; every other id has the table's last row.

    Serves TorchRec's `MCHManagedCollisionModule` in evaluation (`remap`, `_match_indices`), whichever policy
    of eviction it was trained with, and has the names of its tensors.
    """

    # Tensors of the checkpoint beside the map that only training reads; the policy decides which there are.
    TRAINING_ONLY: ClassVar = (
        "_current_iter_tensor",
        "_output_segments_tensor",
        "_mch_counts",
        "_mch_last_access_iter",
    )

    _mch_sorted_raw_ids: Tensor  # (R,)
    _mch_remapped_ids_mapping: Tensor  # (R,)

    def __init__(self, rows: int) -> None:
        """Make a map that holds no id, for a table of as many rows."""
        super().__init__()
        self.register_buffer(ID_MAP_IDS, torch.full((rows,), FREE_ID))
        self.register_buffer(ID_MAP_ROWS, torch.arange(rows))

    def forward(self, ids_V: Tensor) -> Tensor:
        """Return the row number of each id: (V,)."""
        ids_R, rows_R = self._mch_sorted_raw_ids, self._mch_remapped_ids_mapping
        places_V = torch.searchsorted(ids_R[:-1], ids_V)
        return torch.where(ids_R[places_V] == ids_V, rows_R[places_V], len(rows_R) - 1)

    def sample_ids(self, count: int) -> Tensor:
        """Return the id of the lowest row, up to `count` ascending ids, and the id of the highest row."""
        held = int((self._mch_sorted_raw_ids != FREE_ID).sum())
        ids, rows = self._mch_sorted_raw_ids[:held], self._mch_remapped_ids_mapping[:held]
        if not held:
            return ids.cpu()
        places = torch.linspace(0, held - 1, min(held, count), dtype=torch.float64).round().long()
        return torch.cat([ids[rows.argmin()][None], ids[places], ids[rows.argmax()][None]]).cpu()

    def settle(self, stored_ids: Sequence[Piece], name: str) -> None:
        """Check the map that was loaded, and merge the parts that several ranks wrote into one order.

        Every rank sorts its own part; together they are sorted as training does on loading, stably.

        Raises:
            IdMapBroken: a rank's ids are not in order, or an entry names no row of the table.
        """
        ids_R, rows_R = self._mch_sorted_raw_ids, self._mch_remapped_ids_mapping
        parts = sorted({(piece.offset[0], piece.offset[0] + piece.shape[0]) for piece in stored_ids})
        for first, end in parts:
            if (place := _first_descent(ids_R[first:end])) is not None:
                raise IdMapBroken(
                    f"{name}: the ids are not in ascending order: {int(ids_R[first + place])} is followed by "
                    f"{int(ids_R[first + place + 1])} at {first + place + 1}",
                    where=name,
                )
        low, high = (int(bound) for bound in torch.aminmax(rows_R))
        if low < 0 or high >= len(rows_R):
            odd = low if low < 0 else high
            raise IdMapBroken(
                f"{name}: the map names row {odd} of a table that has {len(rows_R)} rows", where=name
            )
        if _first_descent(ids_R) is not None:
            self._sort()

    def _sort(self) -> None:
        ids_R, order_R = torch.sort(self._mch_sorted_raw_ids, stable=True)
        self._mch_sorted_raw_ids = _keep(ids_R)
        self._mch_remapped_ids_mapping = _keep(self._mch_remapped_ids_mapping[order_R])


def id_maps(module: nn.Module) -> Iterator[tuple[str, IdMap]]:
    """Yield every map of a tower or of its parts, by path."""
    for path, child in module.named_modules():
        if isinstance(child, IdMap):
            yield path, child


def settle_id_maps(module: nn.Module, pieces_of: PiecesOfTensor) -> None:
    """Check and merge all maps of a loaded tower; `pieces_of` takes a name of its state dict.

    Raises:
        IdMapBroken: a map is not in order, or names rows that its table does not have.
    """
    for path, id_map in id_maps(module):
        name = f"{path}.{ID_MAP_IDS}"
        id_map.settle(pieces_of(name), name)


def id_map_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of all maps of a tower, by their names in its state dict."""
    return {
        f"{path}.{name}": id_map.get_buffer(name)
        for path, id_map in id_maps(module)
        for name in (ID_MAP_IDS, ID_MAP_ROWS)
    }


def fill_id_maps(module: nn.Module, tensor_of: Callable[[str], Tensor]) -> None:
    """Fill the maps of a tower on any device; `tensor_of` takes a name of its state dict."""
    for path, id_map in id_maps(module):
        tensors = {name: tensor_of(f"{path}.{name}") for name in (ID_MAP_IDS, ID_MAP_ROWS)}
        id_map.load_state_dict(tensors, assign=True)


def training_only_names(module: nn.Module) -> frozenset[str]:
    """Return the names of tensors that a checkpoint may have beside a model's maps and no tower reads."""
    return frozenset(f"{path}.{name}" for path, _ in id_maps(module) for name in IdMap.TRAINING_ONLY)


def _first_descent(ids: Tensor) -> int | None:
    """Return the first place whose successor is smaller, or None."""
    for first in range(0, len(ids) - 1, _CHECKED):
        some = ids[first : first + _CHECKED + 1]
        descents = (some[1:] < some[:-1]).nonzero()
        if len(descents):
            return first + int(descents[0])
    return None


def _keep(values: Tensor) -> Tensor:
    """Return the values in a tensor that is paged out of memory while nobody reads it, if it is large."""
    return room_for(TensorMeta(shape=tuple(values.shape), dtype=values.dtype)).copy_(values)
