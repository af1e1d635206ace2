"""compose.yaml as its programs would meet it; deploy.prove runs them together."""

from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from deploy.compose import Places, Service, interpolate, services_in
from deploy.torch_source import CPU_WHEELS
from processes.settings import user_cache
from service.settings import ServiceSettings
from tests.architecture.tree import ROOT
from tests.deploy.test_docker import COMPOSE, GIVEN
from worker.settings import WorkerSettings

TEXT = (ROOT / "compose.yaml").read_text()


@pytest.fixture(scope="module")
def services() -> Mapping[str, Service]:
    return services_in(TEXT, GIVEN)


def test_variables_are_read_as_compose_reads_them() -> None:
    text = "${A:?set it} ${B:-default} $${C} ${D}"
    assert interpolate(text, {"A": "1", "D": "4"}) == "1 default ${C} 4"
    with pytest.raises(KeyError, match="set it"):
        interpolate(text, {"B": "2"})


@pytest.mark.parametrize("missing", GIVEN)
def test_what_must_be_set_is_asked_for(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        services_in(TEXT, {name: value for name, value in GIVEN.items() if name != missing})


@pytest.mark.parametrize(("name", "settings"), [("api", ServiceSettings), ("worker", WorkerSettings)])
def test_the_programs_take_what_they_are_told(
    services: Mapping[str, Service], name: str, settings: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in services[name].environment.items():
        monkeypatch.setenv(variable, value)
    told = settings().model_dump(mode="json")
    assert told["redis_url"] == "redis://:one@redis:6379/0" and told["log_format"] == "json"


def test_links_lead_to_a_port_that_is_published(services: Mapping[str, Service]) -> None:
    """`s3` is a name for containers only."""
    endpoint = services["api"].environment["SLIPWAY_LINK_ENDPOINT"]
    assert endpoint.startswith("http://127.0.0.1:")
    assert f"{endpoint.removeprefix('http://')}:9000" in COMPOSE["services"]["s3"]["ports"]
    elsewhere = services_in(TEXT, {**GIVEN, "S3_PUBLIC_URL": "https://files.example.com"})
    assert elsewhere["api"].environment["SLIPWAY_LINK_ENDPOINT"] == "https://files.example.com"


def test_the_bucket_is_there_before_anybody_needs_it(services: Mapping[str, Service]) -> None:
    assert services["bucket"].command == ("sh", "/etc/slipway/set-up.sh")
    for name in ("api", "worker"):
        waits = COMPOSE["services"][name]["depends_on"]
        assert waits["bucket"] == {"condition": "service_completed_successfully"}


def test_whatever_a_worker_writes_lies_in_a_volume(
    services: Mapping[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = services["worker"].environment
    monkeypatch.setenv("XDG_CACHE_HOME", told["XDG_CACHE_HOME"])
    written = [told[name] for name in ("TMPDIR", "HOME", "SLIPWAY_WORK_DIR", "SLIPWAY_ALIVE_FILE")]
    written += [str(user_cache(name)) for name in ("code", "compiler")]
    mounted = [volume.partition(":")[2] for volume in COMPOSE["services"]["worker"]["volumes"]]
    assert [path for path in written if not path.startswith(tuple(mounted))] == []


def test_images_are_built_with_an_index_that_has_torch_for_cpu(services: Mapping[str, Service]) -> None:
    """The pins of a worker for CPU are on no other page than PyTorch's."""
    built = [each["build"] for each in COMPOSE["services"].values() if "build" in each]
    assert [each["secrets"] for each in built] == [["pip"], ["pip"]]
    steps = [step for each in built for step in (ROOT / each["dockerfile"]).read_text().split("\nRUN ")]
    downloads = [step for step in steps if "--require-hashes" in step]
    assert downloads and all(
        step.startswith("--mount=type=secret,id=pip,target=/etc/pip.conf") for step in downloads
    )
    assert COMPOSE["secrets"]["pip"] == {"file": "${PIP_CONF:-./docker/pip.conf}"}
    configured = ConfigParser()
    configured.read(ROOT / "docker" / "pip.conf")
    assert configured["global"]["find-links"] == CPU_WHEELS


def test_names_of_containers_become_places_of_this_machine() -> None:
    places = Places(folder=Path("/here"), addresses={"redis:6379": "127.0.0.1:40000"})
    service = Service(command=("sh", "-c", "cat /run/x '/data'"), environment={"URL": "redis://redis:6379/0"})
    assert places.command(service) == ["sh", "-c", "cat /here/run/x '/here/data'"]
    assert places.environment(service) == {"URL": "redis://127.0.0.1:40000/0"}
