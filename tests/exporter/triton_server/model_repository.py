"""A Triton model repository as Triton's own messages read it."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelWarmup


def parse_config(text: bytes) -> ModelConfig:
    """A configuration; a field that Triton does not have is an error."""
    return text_format.Parse(text.decode(), ModelConfig())


def models_of(files: Mapping[str, bytes]) -> dict[str, ModelConfig]:
    """Configurations by the names of their folders."""
    found = {}
    for path, content in files.items():
        folder = PurePosixPath(path)
        if folder.name == "config.pbtxt":
            assert folder.parent.parent.name == "triton"
            found[folder.parent.name] = parse_config(content)
    return found


def problems_of(config: ModelConfig) -> Iterator[str]:
    """What Triton's core refuses in a configuration of a model without batching, by its sources."""
    for tensor in (*config.input, *config.output):
        if not tensor.name or not tensor.data_type or not tensor.dims:
            yield f"{tensor.name} lacks a name, a dtype or dims"
        if any(size < 1 and size != -1 for size in tensor.dims):
            yield f"{tensor.name} has dims {list(tensor.dims)}"
    names = [tensor.name for tensor in config.input]
    if len(set(names)) != len(names):
        yield "an input is named twice"
    if config.max_batch_size != 0:
        yield "Triton would put requests together"
    for warm_up in config.model_warmup:
        yield from problems_of_warm_up(warm_up, names)


def problems_of_warm_up(warm_up: ModelWarmup, names: Collection[str]) -> Iterator[str]:
    """What Triton's core refuses in a warm-up request, or leaves out."""
    if warm_up.batch_size == 0:
        yield f"{warm_up.name} is skipped"
    if set(warm_up.inputs) != set(names):
        yield f"{warm_up.name} lacks an input"
    for name, tensor in warm_up.inputs.items():
        if tensor.WhichOneof("input_data_type") is None:
            yield f"{warm_up.name}: {name} has no data"
        if min(tensor.dims, default=0) < 0:
            yield f"{warm_up.name}: {name} has no size"
