"""The chart as Kubernetes would get it, rendered by Helm itself."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from pydantic import JsonValue

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "slipway"

# Values as operators set them, from the least to the most.
MATRIX: Mapping[str, tuple[str, ...]] = {
    "least": (),
    "no_policies": ("networkPolicy.enabled=false", "disruptionBudgets.enabled=false", "api.replicas=1"),
    "external_redis": (
        "redis.internal=false",
        "redis.urlSecret=redis-url",
        "networkPolicy.externalRedis[0].cidr=10.9.0.0/16",
        "networkPolicy.externalRedis[0].ports={6380}",
        "workers.cpu.codeCache.kind=prefix",
        "workers.cpu.codeCache.uri=s3://models/code",
    ),
    "own_rights": (
        "storage.apiSecret=reading",
        "storage.workerSecret=exporting",
        "serviceAccount.workers.create=true",
        "serviceAccount.workers.annotations.role=exporting",
    ),
    "everything": (
        "workers.cpu.targets={cpu}",
        "workers.avx512.targets={avx512}",
        "workers.next.targets={cpu}",
        "workers.next.torch=2.14",
        "workers.next.image.repository=mirror/worker",
        "workers.sm-80.device=cuda",
        "workers.sm-80.targets={sm_80,cuda}",
        "workers.sm-80.surge=0",
        "workers.sm-80.nodeSelector.gpu=a100",
        "workers.sm-90.device=cuda",
        "workers.sm-90.targets={sm_90}",
        "workers.sm-90.codeCache.kind=claim",
        "workers.sm-90.codeCache.claim=code",
        "workers.sm-90.scaling.min=0",
        "keda.enabled=true",
        "keda.prometheusAddress=http://prometheus:9090",
        "monitoring.enabled=true",
        "monitoring.credentialsSecret=scrape",
        "ingress.enabled=true",
        "ingress.host=slipway.example.com",
        "ingress.tlsSecret=tls",
        "ingress.trustedProxies={10.3.0.0/16,10.4.0.7}",
        "storage.secret=s3",
        "storage.endpoint=https://s3.example.com",
        "api.oidc.issuer=https://id.example.com",
        "api.oidc.audience=slipway",
        "api.oidc.jwksUrl=https://id.example.com/keys",
        "api.webhookSecretsSecret=hooks",
        "api.callbackSecretsSecret=callbacks",
        "api.callbackNetworks={10.7.0.0/16}",
        "storage.publicEndpoint=https://files.example.com",
        "tracing.endpoint=http://collector.tracing:4318",
        "networkPolicy.callers[0].namespaceSelector.matchLabels.name=ingress",
        "networkPolicy.scrapers[0].namespaceSelector.matchLabels.name=monitoring",
    ),
}


@dataclass(frozen=True)
class Manifest:
    """One object that the chart makes."""

    fields: Mapping[str, JsonValue]

    @property
    def kind(self) -> str:
        return str(self.fields["kind"])

    @property
    def name(self) -> str:
        return str(self.at("metadata", "name"))

    def at(self, *steps: str | int) -> JsonValue:
        """Return the value at a path, or None if there is none."""
        here: JsonValue = dict(self.fields)
        for step in steps:
            if isinstance(here, list) and isinstance(step, int):
                here = here[step] if step < len(here) else None
            else:
                here = here.get(str(step)) if isinstance(here, dict) else None
        return here

    @property
    def pod(self) -> "Manifest | None":
        """The pod that it makes, if it does."""
        spec = self.at("spec", "template", "spec")
        return Manifest({"kind": "Pod", "metadata": self.fields["metadata"], "spec": spec}) if spec else None

    @property
    def containers(self) -> list["Manifest"]:
        """The containers of its pod, init containers first."""
        found: list[JsonValue] = []
        for key in ("initContainers", "containers"):
            listed = self.pod.at("spec", key) if self.pod else None
            found += listed if isinstance(listed, list) else []
        return [Manifest({"kind": "Container", **each}) for each in found if isinstance(each, dict)]


Render = Callable[..., list[Manifest]]


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that came with a package of this environment, which need not be on the PATH."""
    command = [str(Path(sys.executable).parent / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return tool("helm", *arguments)


def settings(values: tuple[str, ...]) -> Iterator[str]:
    for value in ("api.keysSecret=keys", *values):
        yield from ("--set", value)


def rendered(*values: str, release: str = "test") -> list[Manifest]:
    result = helm("template", release, str(CHART), "--namespace", "models", *settings(values))
    assert result.returncode == 0, result.stderr
    return [Manifest(each) for each in yaml.safe_load_all(result.stdout) if each]


def with_values(values: Mapping[str, JsonValue]) -> list[Manifest]:
    """The chart with a file of values."""
    command = [str(Path(sys.executable).parent / "helm"), "template", "test", str(CHART), "--values", "-"]
    result = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [Manifest(each) for each in yaml.safe_load_all(result.stdout) if each]


@pytest.fixture(scope="session", params=list(MATRIX))
def case(request: pytest.FixtureRequest) -> list[Manifest]:
    """The chart with each of the matrix's values."""
    return rendered(*MATRIX[request.param])


@pytest.fixture(scope="session")
def everything() -> list[Manifest]:
    return rendered(*MATRIX["everything"])
