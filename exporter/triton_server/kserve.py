"""Manifest for KServe: a runtime that starts Triton, and a service of one tower on it."""

import json
import re

from exporter.spec import Device

KSERVE_NAME = "kserve.yaml"

# KServe's own prefixes of places; what lies elsewhere is copied to a volume first.
_PLACES = ("s3://", "gs://", "pvc://", "https://", "http://")
_VOLUME = "pvc://models"


def render_kserve(model: str, repository_uri: str, device: Device, *, package_bytes: int) -> bytes:
    """Return the manifest of a runtime and a service of the repository at this URI.

    The container's memory is what two copies of the packages take, and 2 GiB.
    """
    name = _resource_name(model)
    memory = f"{2 + -(-2 * package_bytes // (1 << 30))}Gi"
    gpu = '\n          nvidia.com/gpu: "1"' if device is Device.CUDA else ""
    place = json.dumps(_place(repository_uri))
    return _MANIFEST.format(name=name, memory=memory, gpu=gpu, place=place).encode()


def _resource_name(model: str) -> str:
    """Return a name that Kubernetes accepts, of at most 40 characters: KServe appends to it."""
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return f"slipway-{name}"[:40].strip("-")


def _place(uri: str) -> str:
    """Return a URI that KServe can read: as it is, or the artifact's folder and below, on a volume."""
    return uri if uri.startswith(_PLACES) else f"{_VOLUME}/{'/'.join(uri.split('/')[-3:])}"


_MANIFEST = """\
# A tower as a KServe InferenceService on Triton Inference Server. Slipway's docs/triton.md says how the image
# is made. Change the image's name, the place of the repository, and the resources to yours.
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata:
  name: {name}
spec:
  annotations:
    prometheus.kserve.io/port: "8002"
    prometheus.kserve.io/path: /metrics
  supportedModelFormats:
    - name: torch-aoti
      version: "1"
  protocolVersions:
    - v2
    - grpc-v2
  containers:
    - name: kserve-container
      image: tritonserver-slipway:latest
      args:
        - tritonserver
        - --model-store=/mnt/models
        - --http-port=8080
        - --grpc-port=9000
      env:
        - name: AOTI_RUNTIME_CHECK_INPUTS
          value: "1"
      securityContext:
        allowPrivilegeEscalation: false
        runAsNonRoot: true
        runAsUser: 1000
        capabilities:
          drop:
            - ALL
      resources:
        requests:
          cpu: "1"
          memory: {memory}
        limits:
          memory: {memory}{gpu}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {name}
spec:
  predictor:
    model:
      modelFormat:
        name: torch-aoti
        version: "1"
      runtime: {name}
      protocolVersion: v2
      storageUri: {place}
"""
