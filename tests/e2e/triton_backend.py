"""Triton's part in serving a model repository, as far as it can be had without the server.

It follows the sources of Triton's AOTInductor backend and of its core, release 26.05: configurations are
read by Triton's own messages, a package is opened by the same loader of torch, its tensors get their names
from the package's call specification, and warm-up requests are read from their files. Run as a program it
answers one request: `python -m tests.e2e.triton_backend REPOSITORY MODEL INPUTS OUTPUTS`. It imports no
operators: they must be in the process already, by LD_PRELOAD.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from google.protobuf import text_format
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch._inductor import aoti_load_package  # noqa: TID251  the loader that Triton's backend has
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput

_DTYPES = {
    "TYPE_INT64": torch.int64,
    "TYPE_INT32": torch.int32,
    "TYPE_FP32": torch.float32,
    "TYPE_FP16": torch.float16,
    "TYPE_BOOL": torch.bool,
    "TYPE_UINT8": torch.uint8,
}


def names_in(spec: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The names of all tensors of a call specification, in the order in which a package takes them."""
    if spec.get("type") is None:
        yield prefix
        return
    keys = json.loads(spec["context"]) if isinstance(spec["context"], str) else spec["context"]
    keys = keys if spec["type"] == "builtins.dict" else range(len(spec["children_spec"]))
    for key, child in zip(keys, spec["children_spec"], strict=True):
        yield from names_in(child, f"{prefix}[{key}]")


def positions(names: list[str], ordinal: str) -> dict[str, int]:
    """Where a tensor is in a call, by either of its names."""
    return {each: at for at, name in enumerate(names) for each in (name, f"{ordinal}__{at}")}


class Package:
    """A model that is one package."""

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        path = folder / "1" / (config.default_model_filename or "model.pt2")
        self._loader = aoti_load_package(str(path)).loader
        takes, returns = (json.loads(text)[1] for text in self._loader.get_call_spec())
        arguments, keywords = takes["children_spec"]
        assert not keywords["children_spec"]
        inputs, outputs = list(names_in(arguments, "ARGS")), list(names_in(returns, "RESULT"))
        assert len(inputs) == len(config.input)
        self._inputs, self._outputs = positions(inputs, "INPUT"), positions(outputs, "OUTPUT")
        assert self._inputs.keys() >= {each.name for each in config.input}
        assert self._outputs.keys() >= {each.name for each in config.output}

    def infer(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        returned = self._loader.boxed_run(
            [inputs[name] for name in sorted(inputs, key=self._inputs.__getitem__)]
        )
        return {name: returned[at] for name, at in self._outputs.items()}


class Repository:
    """All models of a repository, which are ready once their warm-up requests were answered."""

    def __init__(self, folder: Path) -> None:
        self.configs = {
            path.parent.name: text_format.Parse(path.read_text(), ModelConfig())
            for path in folder.glob("*/config.pbtxt")
        }
        assert {each.name for each in folder.iterdir() if each.is_dir()} == self.configs.keys()
        assert all((folder / name / "1").is_dir() for name in self.configs)
        self._packages = {
            name: Package(folder / name, config)
            for name, config in self.configs.items()
            if (config.backend, config.platform) == ("pytorch", "torch_aoti")
        }
        for name in self._packages:
            for request in self.warm_ups(folder, name):
                self.infer(name, request)

    def warm_ups(self, folder: Path, model: str) -> Iterator[dict[str, Tensor]]:
        for warm_up in self.configs[model].model_warmup:
            assert warm_up.batch_size == 1  # of 0 Triton makes no request
            request = {}
            for name, given in warm_up.inputs.items():
                dtype = _DTYPES[DataType.Name(given.data_type)]
                data = (
                    b""
                    if given.zero_data
                    else (folder / model / "warmup" / given.input_data_file).read_bytes()
                )
                tensor = (
                    torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.zeros(0, dtype=dtype)
                )
                request[name] = tensor.reshape(tuple(given.dims))
            yield request

    def infer(self, model: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        config = self.configs[model]
        check(config.input, inputs)
        if model in self._packages:
            outputs = self._packages[model].infer(inputs)
        else:
            known = dict(inputs)
            for step in config.ensemble_scheduling.step:
                found = self.infer(step.model_name, {name: known[of] for name, of in step.input_map.items()})
                known |= {of: found[name] for name, of in step.output_map.items()}
            outputs = known
        answer = {each.name: outputs[each.name] for each in config.output}
        check(config.output, answer)
        return answer


def check(described: "list[ModelInput] | list[ModelOutput]", tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those of a configuration, as Triton does for inputs and for outputs."""
    assert {each.name for each in described} == tensors.keys()
    for each in described:
        tensor = tensors[each.name]
        assert tensor.dtype == _DTYPES[DataType.Name(each.data_type)], each.name
        assert len(each.dims) == tensor.dim(), each.name
        assert all(size in (-1, actual) for size, actual in zip(each.dims, tensor.shape, strict=True)), (
            each.name
        )


def main(repository: str, model: str, inputs: str, outputs: str) -> None:
    answer = Repository(Path(repository)).infer(model, load_file(inputs))
    save_file({name: tensor.contiguous() for name, tensor in answer.items()}, outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
