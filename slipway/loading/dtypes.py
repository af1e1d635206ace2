"""torch's dtypes by the names that manifests, and files of safetensors, use."""

import torch

SAFETENSORS_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a name such as "float32"; raise ValueError if torch has none of it."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {name}")  # noqa: TRY004  the text is wrong, not its type
    return dtype
