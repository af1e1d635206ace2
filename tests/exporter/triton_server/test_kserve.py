"""The manifest for KServe is one that Kubernetes accepts, as far as KServe's types are Kubernetes's own."""

from collections.abc import Mapping
from typing import Any

import kubernetes_validate
import pytest
import yaml

from exporter.spec import Device
from exporter.triton_server.kserve import render_kserve

S3 = "s3://models/01jd6v7x4mzq3w8c5kftn2rbha/item/triton"


def documents(
    model: str = "feed_item", uri: str = S3, device: Device = Device.CPU, size: int = 5_000_000_000
) -> list[Mapping[str, Any]]:
    return list(yaml.safe_load_all(render_kserve(model, uri, device, package_bytes=size)))


def test_a_service_runs_on_the_runtime_beside_it() -> None:
    runtime, service = documents()
    assert (runtime["apiVersion"], runtime["kind"]) == ("serving.kserve.io/v1alpha1", "ServingRuntime")
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"] == service["metadata"]["name"]
    [served] = runtime["spec"]["supportedModelFormats"]
    assert model["modelFormat"] == {"name": served["name"], "version": served["version"]}
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]


@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA])
def test_its_container_is_one_of_kubernetes(device: Device) -> None:
    runtime, service = documents(device=device)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": service["metadata"]["name"]},
        "spec": {"containers": runtime["spec"]["containers"]},
    }
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    limits = runtime["spec"]["containers"][0]["resources"]["limits"]
    assert ("nvidia.com/gpu" in limits) == (device is Device.CUDA)


def test_memory_is_for_two_copies_of_the_packages() -> None:
    [container] = documents()[0]["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == "12Gi"


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        (S3, S3),
        ("gs://models/01j/item/triton", "gs://models/01j/item/triton"),
        ("/srv/exports/01j/item/triton", "pvc://models/01j/item/triton"),
        ("oss://bucket/a/01j/item/triton", "pvc://models/01j/item/triton"),
    ],
)
def test_what_kserve_cannot_read_is_expected_on_a_volume(uri: str, place: str) -> None:
    assert documents(uri=uri)[1]["spec"]["predictor"]["model"]["storageUri"] == place


@pytest.mark.parametrize("model", ["Feed_Item", "a.b_item", "x" * 70 + "_item"])
def test_names_are_those_of_kubernetes(model: str) -> None:
    name = documents(model)[0]["metadata"]["name"]
    assert name.replace("-", "").isalnum()
    assert name == name.lower()
    assert len(name) <= 40
