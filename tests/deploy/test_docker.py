"""The images and compose.yaml, as far as they can be judged without an engine."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.compose import services_in
from deploy.dockerfile import BuildStage, Follower, stages_of
from tests.architecture.tree import PROGRAMS, ROOT
from tests.deploy.conftest import CHART, tool

DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
PIN = re.compile(r"^([a-z0-9-]+)==([\w.+]+) --hash=sha256:[0-9a-f]{64}$")
LOCK = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([\w.]+)", re.MULTILINE)
BY_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = ("api", "worker")
GIVEN = {
    "REDIS_PASSWORD": "one",
    "S3_ROOT_SECRET": "the-root-secret",
    "S3_API_SECRET": "the-secret-of-the-api",
    "S3_WORKER_SECRET": "the-secret-of-workers",
}


def stages() -> Iterator[BuildStage]:
    for path in DOCKERFILES:
        yield from stages_of(path.read_text()).values()


def pins(image: str) -> dict[str, str]:
    lines = (ROOT / "docker" / "pins" / f"{image}.txt").read_text().splitlines()[1:]
    matches = [PIN.match(line) for line in lines]
    assert all(matches), image
    return {match[1]: match[2] for match in matches if match}


def locked(*names: str) -> dict[str, str]:
    text = "\n".join((ROOT / "requirements" / f"{name}.txt").read_text() for name in names)
    return {re.sub("[-_.]+", "-", name): version for name, version in LOCK.findall(text)}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_hadolint_finds_nothing(path: Path) -> None:
    found = tool("hadolint", str(path))
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_every_base_is_pinned_by_digest(path: Path) -> None:
    known = stages_of(path.read_text())
    assert [
        each.base for each in known.values() if each.base not in known and not BY_DIGEST.search(each.base)
    ] == []


def test_every_program_is_in_every_wheel() -> None:
    for path in DOCKERFILES:
        copied = set(re.findall(r"^COPY (\w+) \1$", path.read_text(), re.MULTILINE))
        assert set(PROGRAMS) | {"protos"} <= copied, path.name
        assert {f"!{name}" for name in copied} <= set((ROOT / ".dockerignore").read_text().split())


def test_what_runs_is_not_root_and_says_how_it_is() -> None:
    texts = [(ROOT / "docker" / name).read_text() for name in ("service.Dockerfile", "worker.Dockerfile")]
    for text in texts:
        words = [line.split()[0] for line in text.splitlines() if re.match("[A-Z]+ ", line)]
        assert "HEALTHCHECK" in words and "USER 10001:10001" in text


def test_a_workers_first_process_keeps_the_environment_to_itself() -> None:
    """Attempts run as its user, and it holds the container's environment."""
    machine = stages_of((ROOT / "docker" / "worker.Dockerfile").read_text())["machine"]
    first = [each.rest for each in machine.instructions if each.word == "ENTRYPOINT"]
    assert first == ['["python", "-m", "worker.init"]']
    worker = services_in((ROOT / "compose.yaml").read_text(), GIVEN)["worker"]
    assert worker.command[:4] == ("python", "-m", "worker.init", "celery")  # what deploy.prove runs


def test_a_worker_starts_where_no_attempt_writes() -> None:
    """`python -m` and Celery look there for modules first, probes with the container's environment."""
    machine = stages_of((ROOT / "docker" / "worker.Dockerfile").read_text())["machine"]
    (place,) = [each.rest for each in machine.instructions if each.word == "WORKDIR"]
    mounted = [volume.partition(":")[2] for volume in COMPOSE["services"]["worker"]["volumes"]]
    assert not place.startswith((*mounted, "/tmp", "/var/cache"))


def test_nothing_is_installed_that_has_no_digest() -> None:
    for stage in stages():
        for instruction in stage.instructions:
            for install in re.findall(r"pip install ([^&]*)", instruction.rest):
                assert "--require-hashes" in install or "dist/*.whl" in install, install


@pytest.mark.parametrize(
    ("image", "lists"),
    [
        ("service", ["service"]),
        ("worker-cpu", ["worker", "exporter", "torch", "cpu"]),
        ("worker-cuda", ["worker", "exporter", "torch", "cuda"]),
    ],
)
def test_the_pins_are_what_was_tested(image: str, lists: list[str]) -> None:
    """Run `make image-pins` after `make lock`."""
    pinned = {name: version.removesuffix("+cpu") for name, version in pins(image).items()}
    wanted = locked(*lists)
    assert {name: version for name, version in wanted.items() if pinned.get(name) != version} == {}
    assert all(re.match("nvidia-|cuda-", name) for name in pinned.keys() - wanted.keys())


def test_the_service_has_no_torch() -> None:
    assert not {"torch", "triton", "numpy", "pyarrow"} & pins("service").keys()


def test_a_dockerfile_is_followed_without_an_engine(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("text")
    text = (
        "FROM debian AS first\nENV HOME=/scratch\nWORKDIR /build\nCOPY given given\n"
        "RUN mkdir -p /opt/slipway \\\n    && cp given/file /opt/slipway/\nRUN apt-get update\n"
        "FROM first AS second\nENV PATH=/opt/slipway/bin:$PATH\nRUN echo $HOME $PATH >/opt/slipway/told\n"
        "FROM debian\nCOPY --from=second /opt/slipway /opt/slipway\n"
    )
    follower = Follower(stages=stages_of(text), context=tmp_path, folder=tmp_path / "roots", left_out=[])
    assert (follower.follow("final") / "opt/slipway/file").read_text() == "text"
    root = tmp_path / "roots" / "second"
    told = (root / "opt/slipway/told").read_text()
    assert told.startswith(f"{root}/scratch {root}/opt/slipway/bin:/") and ":/usr/bin" in told
    assert follower.left_out == ["apt-get update"]


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_of_compose_is_bounded_and_writes_no_root(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and "mem_limit" in service
    assert name in OURS or BY_DIGEST.search(service["image"])
    assert name in OURS or "healthcheck" in service


def test_compose_holds_no_secret() -> None:
    for name, service in COMPOSE["services"].items():
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|AUTH|REDIS_URL|MC_HOST", variable):
                assert "${" in value, f"{name}: {variable}"


def test_compose_keeps_redis_and_publishes_on_this_host_only() -> None:
    redis = COMPOSE["services"]["redis"]
    told = " ".join(redis["command"])
    assert "appendonly yes" in told and "noeviction" in told and redis["volumes"] == ["redis:/data"]
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_composes_redis_refuses_writes_before_its_container_is_full() -> None:
    """Writing its log anew takes room beside what it holds; past the limit the kernel would end it."""
    redis = COMPOSE["services"]["redis"]
    most = re.search(r"maxmemory (\d+)gb\\n", " ".join(redis["command"]))
    assert most and 2 * int(most[1]) <= int(redis["mem_limit"].removesuffix("g"))


def test_compose_and_chart_run_the_same_redis() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    image = values["images"]["redis"]
    assert f"maxmemory {values['redis']['maxMemory']}\\n" in " ".join(COMPOSE["services"]["redis"]["command"])
    assert COMPOSE["services"]["redis"]["image"] == f"{image['repository']}:{image['tag']}@{image['digest']}"


@pytest.mark.parametrize(
    ("dockerfile", "image"), [("service", "service"), ("worker", "worker-cpu"), ("worker", "worker-cuda")]
)
def test_nothing_that_is_pinned_is_removed_again(dockerfile: str, image: str) -> None:
    """Torch compiles with setuptools: without it a worker's every export would fail."""
    text = (ROOT / "docker" / f"{dockerfile}.Dockerfile").read_text()
    removed = {name for words in re.findall(r"pip uninstall -y ([\w -]+)", text) for name in words.split()}
    assert removed and removed & pins(image).keys() == set()
