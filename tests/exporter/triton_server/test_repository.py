"""A repository is what Triton's own messages and rules accept."""

import pytest
from tritonclient.grpc import model_config_pb2 as messages

from exporter.errors import InvalidSpec
from exporter.manifest import TensorEntry
from exporter.spec import Device
from exporter.triton_server.model_config import require_tensors
from exporter.triton_server.repository import PackageModel, RawTensor, render_repository
from tests.exporter.triton_server.model_repository import models_of, problems_of

IDS = TensorEntry(name="clicks.values", dtype="int64", shape=("seq_clicks",))
PRICE = TensorEntry(name="price.values", dtype="float32", shape=("batch", 1))
EMBEDDING = TensorEntry(name="embedding", dtype="float32", shape=("batch", 16))
SCORE = TensorEntry(name="clicks.values", dtype="float32", shape=("batch",))  # named as an input is
REQUEST = {
    "clicks.values": RawTensor(shape=(0,), data=b""),
    "price.values": RawTensor(shape=(2, 1), data=bytes(8)),
}


def package(name: str, inputs: tuple[TensorEntry, ...], outputs: tuple[TensorEntry, ...]) -> PackageModel:
    requests = {"batch_2": {each.name: REQUEST.get(each.name, REQUEST["price.values"]) for each in inputs}}
    return PackageModel(name=name, inputs=inputs, outputs=outputs, requests=requests)


ONE = (package("item", (IDS, PRICE), (SCORE,)),)
TWO = (
    package("item_sparse", (IDS, PRICE), (EMBEDDING, PRICE)),
    package("item_dense", (EMBEDDING,), (SCORE,)),
)


def test_a_package_is_a_model_of_tensors_whose_sizes_vary() -> None:
    files = render_repository("item", ONE, Device.CPU)
    config = models_of(files)["item"]
    assert list(problems_of(config)) == []
    assert (config.name, config.backend, config.platform) == ("item", "pytorch", "torch_aoti")
    assert [(each.name, each.data_type, list(each.dims)) for each in config.input] == [
        ("ARGS[0][clicks.values]", messages.TYPE_INT64, [-1]),
        ("ARGS[0][price.values]", messages.TYPE_FP32, [-1, 1]),
    ]
    [output] = config.output
    assert (output.name, list(output.dims)) == ("RESULT[clicks.values]", [-1])


@pytest.mark.parametrize(
    ("device", "kind"),
    [(Device.CPU, messages.ModelInstanceGroup.KIND_CPU), (Device.CUDA, messages.ModelInstanceGroup.KIND_GPU)],
)
def test_one_instance_runs_on_the_device_it_was_compiled_for(device: Device, kind: int) -> None:
    [group] = models_of(render_repository("item", ONE, device))["item"].instance_group
    assert (group.count, group.kind) == (1, kind)


def test_warm_up_requests_are_read_from_files_unless_they_are_empty() -> None:
    files = render_repository("item", ONE, Device.CPU)
    [warm_up] = models_of(files)["item"].model_warmup
    empty, price = (warm_up.inputs[f"ARGS[0][{name}]"] for name in ("clicks.values", "price.values"))
    assert (empty.zero_data, list(empty.dims)) == (True, [0])
    assert (files[f"triton/item/warmup/{price.input_data_file}"], list(price.dims)) == (bytes(8), [2, 1])


def test_equal_inputs_of_warm_up_requests_share_a_file() -> None:
    other = TensorEntry(name="other", dtype="float32", shape=("batch", 1))
    files = render_repository("item", [package("item", (PRICE, other), (SCORE,))], Device.CPU)
    [warm_up] = models_of(files)["item"].model_warmup
    assert len({each.input_data_file for each in warm_up.inputs.values()}) == 1
    assert len([path for path in files if "/warmup/" in path]) == 1


def test_two_packages_are_joined_by_an_ensemble() -> None:
    files = render_repository("item", TWO, Device.CPU)
    models = models_of(files)
    assert models.keys() == {"item", "item_sparse", "item_dense"}
    assert [problem for config in models.values() for problem in problems_of(config)] == []
    ensemble = models["item"]
    assert (ensemble.platform, ensemble.backend) == ("ensemble", "")
    sparse, dense = ensemble.ensemble_scheduling.step
    assert [step.model_name for step in (sparse, dense)] == ["item_sparse", "item_dense"]
    assert dict(sparse.input_map) == {each.name: each.name for each in models["item_sparse"].input}
    assert dict(sparse.output_map) == {"RESULT[embedding]": "item_dense:ARGS[0][embedding]"}
    assert dict(dense.input_map) == {"ARGS[0][embedding]": "item_dense:ARGS[0][embedding]"}
    assert dict(dense.output_map) == {"RESULT[clicks.values]": "RESULT[clicks.values]"}


def test_every_model_has_a_folder_of_a_version_with_something_in_it() -> None:
    files = render_repository("item", TWO, Device.CPU)
    assert [path for path in files if path.startswith("triton/item/1/")] == ["triton/item/1/ensemble.txt"]


def test_clients_call_one_and_two_packages_alike() -> None:
    one = models_of(render_repository("item", ONE, Device.CPU))["item"]
    two = models_of(render_repository("item", TWO, Device.CPU))["item"]
    assert (list(one.input), list(one.output)) == (list(two.input), list(two.output))


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (TensorEntry(name="x", dtype="bfloat16", shape=("batch",)), "x is bfloat16"),
        (TensorEntry(name="x", dtype="float32", shape=()), "x is a single number without an axis"),
        (TensorEntry(name="x", dtype="float32", shape=("batch", 0)), r"x has shape \['batch', 0\]"),
    ],
)
def test_tensors_that_triton_does_not_take_are_refused(tensor: TensorEntry, reason: str) -> None:
    with pytest.raises(InvalidSpec, match=f"`layout: triton`: {reason}") as refusal:
        render_repository("item", [package("item", (IDS,), (tensor,))], Device.CPU)
    assert refusal.value.where == "layout"
    with pytest.raises(InvalidSpec, match=reason):  # and before anything is compiled
        require_tensors([IDS, tensor])
