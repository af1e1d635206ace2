"""The Helm chart: that it renders, is valid, and keeps what an operator relies on."""

import json
import re

import kubernetes_validate
import pytest
from pydantic import JsonValue
from pydantic_settings import BaseSettings

from docs.configuration import variables_of_all
from exporter.torch_releases import DEFAULT
from service.settings import ServiceSettings
from tests.deploy.conftest import CHART, MATRIX, Manifest, helm, rendered, settings
from worker.settings import WorkerSettings

KUBERNETES = ("1.29.0", "1.33.0", "1.37.0")
NOT_KUBERNETES = {"ScaledObject", "ServiceMonitor"}  # of KEDA and of Prometheus' operator
SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|REDIS_URL|AUTH|ACCESS_KEY")
REDIS_URL = "redis://:$(REDIS_PASSWORD)@test-slipway-redis:6379/0"  # the password comes by reference


def named(manifests: list[Manifest], kind: str, ending: str) -> Manifest:
    (found,) = (each for each in manifests if each.kind == kind and each.name.endswith(ending))
    return found


def variables(container: Manifest) -> dict[str, Manifest]:
    listed = container.at("env")
    entries = listed if isinstance(listed, list) else []
    each = [Manifest(entry) for entry in entries if isinstance(entry, dict)]
    return {str(variable.at("name")): variable for variable in each}


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_it_passes_lint(values: tuple[str, ...]) -> None:
    linted = helm("lint", "--strict", str(CHART), *settings(values))
    assert linted.returncode == 0, linted.stdout


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_every_object(case: list[Manifest], version: str) -> None:
    for manifest in case:
        if manifest.kind not in NOT_KUBERNETES:
            kubernetes_validate.validate(dict(manifest.fields), version, strict=True)


@pytest.mark.parametrize(
    "wrong",
    [
        "api.keysSecret=",
        "workers.cpu.targets={sm90}",
        "workers.cpu.replcias=2",
        "redis.internal=false,networkPolicy.enabled=false",
        "redis.internal=false,redis.urlSecret=url",
        "ingress.enabled=true,ingress.host=slipway.example.com,ingress.trustedProxies={10.3.0.0/16}",
        "ingress.enabled=true,networkPolicy.enabled=false,ingress.trustedProxies={10.3.0.0/16}",
        "ingress.trustedProxies={*}",
        "ingress.trustedProxies={0.0.0.0/0}",
        "monitoring.enabled=true,monitoring.credentialsSecret=scrape",
        "storage.endpoint=http://minio.storage:9000",
        "storage.endpoint=minio:443",
        "storage.endpoint=https://minio.storage.svc",
        "storage.endpoint=https://10.1.2.3",
        "storage.endpoint=https://100.100.2.3:443",
        "api.oidc.jwksUrl=https://keys.identity.svc.cluster.local/keys",
        "tracing.endpoint=http://collector:4317",
        "api.oidc.jwksUrl=https://id.example.com:8443/keys",
        "workers.cpu.codeCache.kind=prefix",
        "workers.cpu.codeCache.kind=claim",
        "networkPolicy.callbacks=null,api.callbackNetworks={10.0.0.0/8}",
        "networkPolicy.storage[0].cidr=null",
        "images.api.digest=sha256:1",
        "keda.enabled=true",
    ],
)
def test_what_cannot_work_is_refused_before_it_is_installed(wrong: str) -> None:
    result = helm("template", "test", str(CHART), *settings((wrong,)))
    assert result.returncode != 0
    assert "nil pointer" not in result.stderr and "panic" not in result.stderr, result.stderr


def test_every_value_is_described() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(undescribed(schema, "values")) == []


def undescribed(schema: JsonValue, path: str) -> list[str]:
    if not isinstance(schema, dict):
        return []
    found = []
    properties = schema.get("properties")
    for name, value in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(value, dict) and "$ref" not in value and not value.get("description"):
            found.append(f"{path}.{name}")
        found += undescribed(value, f"{path}.{name}")
    definitions = schema.get("$defs")
    for name, value in (definitions if isinstance(definitions, dict) else {}).items():
        found += undescribed(value, f"{path}:{name}")
    return found


def test_nothing_secret_stands_in_the_environment(case: list[Manifest]) -> None:
    plain = {
        f"{manifest.name}: {name}"
        for manifest in case
        for container in manifest.containers
        for name, variable in variables(container).items()
        if SECRET_NAME.search(name) and variable.at("valueFrom", "secretKeyRef", "name") is None
        if variable.at("value") != REDIS_URL and not name.endswith("_FILE")
    }
    assert plain == set()


def test_nobody_is_root_and_no_root_folder_is_written(case: list[Manifest]) -> None:
    for manifest in case:
        if manifest.pod is None:
            continue
        assert manifest.pod.at("spec", "securityContext", "runAsNonRoot") is True, manifest.name
        assert manifest.pod.at("spec", "securityContext", "seccompProfile", "type") == "RuntimeDefault"
        assert manifest.pod.at("spec", "automountServiceAccountToken") is False, manifest.name
        for container in manifest.containers:
            assert container.at("securityContext", "readOnlyRootFilesystem") is True, manifest.name
            assert container.at("securityContext", "allowPrivilegeEscalation") is False
            assert container.at("securityContext", "capabilities", "drop") == ["ALL"]


def test_every_program_is_probed_and_bounded(case: list[Manifest]) -> None:
    for manifest in case:
        if manifest.pod is None:
            continue
        assert manifest.containers[-1].at("livenessProbe") is not None, manifest.name
        assert manifest.containers[-1].at("startupProbe") is not None, manifest.name
        for container in manifest.containers:
            assert container.at("resources", "limits", "memory"), manifest.name
            assert container.at("resources", "requests", "cpu"), manifest.name
        volumes = manifest.pod.at("spec", "volumes")
        for volume in volumes if isinstance(volumes, list) else []:
            assert isinstance(volume, dict)
            empty = volume.get("emptyDir")
            assert empty is None or (isinstance(empty, dict) and empty["sizeLimit"]), volume


def test_everything_is_denied_that_no_policy_names(everything: list[Manifest]) -> None:
    policies = {each.name: each for each in everything if each.kind == "NetworkPolicy"}
    deny = policies["test-slipway-default-deny"]
    assert deny.at("spec", "policyTypes") == ["Ingress", "Egress"]
    assert deny.at("spec", "ingress") is None and deny.at("spec", "egress") is None
    assert policies["test-slipway-worker"].at("spec", "ingress") is None
    assert policies["test-slipway-redis"].at("spec", "egress") is None
    labels = deny.at("spec", "podSelector", "matchLabels")
    assert isinstance(labels, dict)
    for manifest in everything:
        if manifest.pod is not None:
            own = manifest.at("spec", "template", "metadata", "labels")
            assert isinstance(own, dict) and labels.items() <= own.items(), manifest.name


def test_each_group_takes_its_targets_only(everything: list[Manifest]) -> None:
    groups = {
        each.name.removeprefix("test-slipway-worker-"): variables(each.containers[0])["SLIPWAY_TARGETS"]
        for each in everything
        if each.kind == "Deployment" and "-worker-" in each.name
    }
    assert {name: targets.at("value") for name, targets in groups.items()} == {
        "cpu": "cpu",
        "avx512": "avx512",
        "next": "cpu",
        "sm-80": "sm_80,cuda",
        "sm-90": "sm_90",
    }


def test_groups_with_gpus_ask_for_one(everything: list[Manifest]) -> None:
    for name, gpus in (("worker-sm-80", 1), ("worker-cpu", None)):
        container = named(everything, "Deployment", name).containers[0]
        assert container.at("resources", "limits", "nvidia.com/gpu") == gpus
        assert ("worker-cuda" in str(container.at("image"))) is (gpus is not None)


def test_workers_are_scaled_on_queued_and_running_jobs(everything: list[Manifest]) -> None:
    query = query_of(named(everything, "ScaledObject", "worker-sm-80"))
    assert 'slipway_target_jobs{namespace="models"' in query
    assert 'target=~"sm_80|cuda"' in query and 'state=~"queued|running"' in query
    assert named(everything, "Deployment", "worker-sm-80").at("spec", "replicas") is None


def query_of(scaled: Manifest) -> str:
    return str(scaled.at("spec", "triggers", 0, "metadata", "query"))


def test_a_group_keeps_to_its_release_of_torch(everything: list[Manifest]) -> None:
    workers = named(everything, "Deployment", "worker-next").containers[0]
    assert variables(workers)["SLIPWAY_TORCH"].at("value") == "2.14"
    assert re.fullmatch(r"mirror/worker:[^@]+-torch2\.14", str(workers.at("image")))
    assert 'torch=~"2[.]14"' in query_of(named(everything, "ScaledObject", "worker-next"))


def test_other_groups_take_jobs_that_name_no_release_or_the_images(everything: list[Manifest]) -> None:
    assert "SLIPWAY_TORCH" not in variables(named(everything, "Deployment", "worker-cpu").containers[0])
    query = query_of(named(everything, "ScaledObject", "worker-cpu"))
    assert f'torch=~"|{DEFAULT.replace(".", "[.]")}"' in query


def test_a_job_may_name_every_release_that_a_group_has(everything: list[Manifest]) -> None:
    api = named(everything, "Deployment", "-api").containers[0]
    assert variables(api)["SLIPWAY_TORCH_RELEASES"].at("value") == f"{DEFAULT},2.14"


def test_no_busy_worker_is_ended(everything: list[Manifest]) -> None:
    """Who is to go, by scaling, upgrade or drained node, ends its job first, and has the time to."""
    for manifest in everything:
        if manifest.kind != "Deployment" or "-worker-" not in manifest.name:
            continue
        container = manifest.containers[0]
        limit = int(str(variables(container)["SLIPWAY_ATTEMPT_TIME_LIMIT"].at("value")))
        grace = manifest.at("spec", "template", "spec", "terminationGracePeriodSeconds")
        assert container.at("lifecycle", "preStop", "exec", "command") == ["python", "-m", "worker.drain"]
        assert isinstance(grace, int) and grace > limit
        assert container.at("livenessProbe", "exec", "command") == ["python", "-m", "worker.alive"]
        assert "SLIPWAY_ALIVE_FILE" in variables(container)
        down = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleDown")
        kept = manifest.at("spec", "template", "metadata", "annotations")
        assert isinstance(kept, dict)
        assert kept["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
        scaled = named(everything, "ScaledObject", manifest.name)
        assert scaled.at(*down, "stabilizationWindowSeconds") == 600


def test_redis_keeps_what_it_is_given(everything: list[Manifest]) -> None:
    config = str(named(everything, "ConfigMap", "redis").at("data", "redis.conf"))
    assert "appendonly yes" in config and "maxmemory-policy noeviction" in config
    assert named(everything, "StatefulSet", "redis").at("spec", "volumeClaimTemplates", 0) is not None


@pytest.mark.parametrize("between", [True, False])
def test_workers_reach_each_other_only_where_that_is_wanted(between: bool) -> None:
    chart = rendered(f"networkPolicy.betweenWorkers={str(between).lower()}")
    policy = named(chart, "NetworkPolicy", "slipway-worker")
    assert (policy.at("spec", "ingress") is not None) is between
    to_workers = [to for to, ports in egress(chart, "slipway-worker") if 'component": "worker"' in to]
    assert bool(to_workers) is between


def egress(manifests: list[Manifest], ending: str) -> list[tuple[str, list[int]]]:
    """Where a program may go, as text, and to which ports."""
    rules = named(manifests, "NetworkPolicy", ending).at("spec", "egress")
    found = [Manifest({"kind": "", "rule": rule}) for rule in (rules if isinstance(rules, list) else [])]
    return [(json.dumps(each.at("rule", "to")), ports_of(each.at("rule", "ports"))) for each in found]


def ports_of(listed: JsonValue) -> list[int]:
    ports = [port["port"] for port in (listed if isinstance(listed, list) else []) if isinstance(port, dict)]
    return [port for port in ports if isinstance(port, int)]


def test_what_is_configured_can_be_reached(everything: list[Manifest]) -> None:
    """Collector, issuer's keys, object store and callbacks, each by those who need it."""
    api, worker = egress(everything, "slipway-api"), egress(everything, "slipway-worker")
    for rules in (api, worker):
        assert [ports for to, ports in rules if to == '[{"namespaceSelector": {}}]'] == [[4318]]
        assert [ports for to, ports in rules if "kube-dns" in to] == [[53, 53]]
    public = [ports for to, ports in api if '"except"' in to]
    assert public == [[443], [443], [443]]  # object store, callbacks, and the issuer's keys
    assert [ports for to, ports in worker if '"except"' in to] == [[443]]  # object store
    assert [ports for to, ports in api if "10.7.0.0/16" in to] == [[443]]
    assert not any('"10.7' in to for to, _ in worker)
    told = variables(named(everything, "Deployment", "-api").containers[0])
    assert told["SLIPWAY_CALLBACK_NETWORKS"].at("value") == "10.7.0.0/16"


def test_what_is_not_configured_cannot_be_reached() -> None:
    least = rendered()
    for ending, public in (("slipway-api", 2), ("slipway-worker", 1)):
        rules = egress(least, ending)
        assert not any(4318 in ports for _, ports in rules)
        assert sum('"except"' in to for to, _ in rules) == public  # object store; callbacks


def test_nothing_private_is_reached_that_no_value_names() -> None:
    """Rules add up: one without exceptions would undo those of all others."""
    private = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
    oidc = (
        "api.oidc.issuer=https://id.test.org",
        "api.oidc.audience=us",
        "api.oidc.jwksUrl=https://id.test.org/k",
    )
    for ending in ("slipway-api", "slipway-worker"):
        blocks = [to for to, _ in egress(rendered(*oidc), ending) if "ipBlock" in to]
        assert blocks and all(each in to for each in private for to in blocks), ending


@pytest.mark.parametrize(
    ("endpoint", "rule", "shown"),
    [
        (
            "https://minio.storage.svc",
            "peers[0].namespaceSelector.matchLabels.name=storage",
            '"name": "storage"',
        ),
        ("https://10.1.2.3", "cidr=10.1.2.0/24", '"cidr": "10.1.2.0/24"'),
    ],
)
def test_a_private_store_is_reached_once_it_is_named(endpoint: str, rule: str, shown: str) -> None:
    named_rule = (f"networkPolicy.storage[0].{rule}", "networkPolicy.storage[0].ports={443}")
    chart = rendered(f"storage.endpoint={endpoint}", *named_rule)
    assert [ports for to, ports in egress(chart, "slipway-worker") if shown in to] == [[443]]


def test_an_external_redis_can_be_reached() -> None:
    for ending in ("slipway-api", "slipway-worker"):
        rules = egress(rendered(*MATRIX["external_redis"]), ending)
        assert [ports for to, ports in rules if "10.9.0.0/16" in to] == [[6380]]


def test_the_code_cache_is_a_volume_or_a_prefix(everything: list[Manifest]) -> None:
    """What the compiler finds out about a processor stays on its node either way."""
    shared = named(everything, "Deployment", "worker-sm-90")
    volumes = {str(each["name"]): each for each in objects(shared.at("spec", "template", "spec", "volumes"))}
    assert volumes["code-cache"]["persistentVolumeClaim"] == {"claimName": "code"}
    assert "emptyDir" in volumes["compiler-cache"]
    prefix = named(rendered(*MATRIX["external_redis"]), "Deployment", "worker-cpu")
    assert variables(prefix.containers[0])["SLIPWAY_CODE_CACHE"].at("value") == "s3://models/code"
    names = {each["name"] for each in objects(prefix.at("spec", "template", "spec", "volumes"))}
    assert "code-cache" not in names and "compiler-cache" in names


def objects(listed: JsonValue) -> list[dict[str, JsonValue]]:
    return [each for each in (listed if isinstance(listed, list) else []) if isinstance(each, dict)]


def test_whatever_a_worker_writes_lies_on_a_volume_with_a_limit(case: list[Manifest]) -> None:
    for manifest in case:
        if manifest.kind == "Deployment" and "-worker-" in manifest.name:
            container = manifest.containers[0]
            mounts = {str(each["mountPath"]) for each in objects(container.at("volumeMounts"))}
            told = variables(container)
            for name in ("TMPDIR", "HOME", "SLIPWAY_WORK_DIR", "SLIPWAY_ALIVE_FILE"):
                assert str(told[name].at("value")).startswith("/scratch"), name
            assert {"/scratch", "/tmp", "/dev/shm", "/var/cache/slipway"} <= mounts
            assert told["XDG_CACHE_HOME"].at("value") == "/var/cache"  # Slipway's caches: /var/cache/slipway


def test_routes_lead_to_the_api(everything: list[Manifest]) -> None:
    rule = named(everything, "Ingress", "api").at("spec", "rules", 0)
    backend = Manifest({"kind": "", "rule": rule}).at("rule", "http", "paths", 0, "backend", "service")
    assert backend == {"name": "test-slipway-api", "port": {"name": "http"}}
    service = named(everything, "Service", "api")
    assert service.at("spec", "ports", 0, "targetPort") == "http"
    assert named(everything, "Deployment", "api").containers[0].at("ports", 0, "containerPort") == 8080


def test_the_api_believes_the_proxies_of_the_ingress(
    everything: list[Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = variables(named(everything, "Deployment", "-api").containers[0])
    for name in ("FORWARDED_ALLOW_IPS", "SLIPWAY_SECURE_COOKIE"):
        monkeypatch.setenv(name, str(told[name].at("value")))
    api = ServiceSettings()
    assert api.secure_cookie
    assert [str(network) for network in api.trusted_proxies] == ["10.3.0.0/16", "10.4.0.7/32"]
    least = variables(named(rendered(), "Deployment", "-api").containers[0])
    assert not {"FORWARDED_ALLOW_IPS", "SLIPWAY_SECURE_COOKIE"} & set(least)


def test_an_ingress_without_trusted_proxies_says_why_it_is_refused() -> None:
    open_ingress = ("ingress.enabled=true", "ingress.host=slipway.example.com", "networkPolicy.enabled=false")
    result = helm("template", "test", str(CHART), *settings(open_ingress))
    assert result.returncode != 0 and "ingress.trustedProxies names the networks" in result.stderr
    assert rendered(*open_ingress, "ingress.trustedProxies={10.3.0.0/16}")


def test_every_program_has_a_disruption_budget(everything: list[Manifest]) -> None:
    budgets = {each.name for each in everything if each.kind == "PodDisruptionBudget"}
    assert {each.name for each in everything if each.pod is not None} == budgets


def test_every_variable_is_a_setting_of_ours_or_of_a_library(everything: list[Manifest]) -> None:
    told = {name for each in everything for container in each.containers for name in variables(container)}
    assert {name for name in told if name.startswith("SLIPWAY_")} - variables_of_all() == set()


@pytest.mark.parametrize(("program", "settings"), [("api", ServiceSettings), ("worker", WorkerSettings)])
def test_the_programs_start_with_what_the_chart_tells_them(
    program: str, settings: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in rendered():
        if each.kind == "Deployment" and f"-{program}" in each.name:
            for name, variable in variables(each.containers[0]).items():
                if variable.at("value") is not None:
                    monkeypatch.setenv(name, str(variable.at("value")))
    told = settings().model_dump(mode="json")
    assert told["log_format"] == "json" and told["redis_url"].startswith("redis://")


def test_two_releases_in_a_namespace_have_nothing_in_common() -> None:
    first, second = (rendered(*MATRIX["everything"], release=name) for name in ("slipway", "slipway-2"))
    assert {(each.kind, each.name) for each in first} & {(each.kind, each.name) for each in second} == set()
    selectors = [
        (each.name, found)
        for each in first
        for path in (("selector", "matchLabels"), ("podSelector", "matchLabels"), ("selector",))
        if isinstance(found := each.at("spec", *path), dict) and "matchLabels" not in found
    ]
    assert len(selectors) > 10
    for each in second:
        labels = each.at("spec", "template", "metadata", "labels")
        if isinstance(labels, dict):
            assert [name for name, wanted in selectors if wanted.items() <= labels.items()] == []


def test_a_groups_own_values_stand_even_where_they_are_nothing(everything: list[Manifest]) -> None:
    strategy = ("spec", "strategy", "rollingUpdate")
    assert named(everything, "Deployment", "worker-sm-80").at(*strategy, "maxSurge") == 0
    assert named(everything, "ScaledObject", "worker-sm-90").at("spec", "minReplicaCount") == 0
