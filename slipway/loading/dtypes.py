"""torch's dtypes by the names that manifests use."""

import torch


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a name such as "float32"; raise ValueError if torch has none of it."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {name}")  # noqa: TRY004  the text is wrong, not its type
    return dtype
