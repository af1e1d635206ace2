"""Hosts that would not make one export together all say so before any rank begins."""

import platform
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from exporter.distributed.hosts import Hosts
from exporter.distributed.rendezvous import Rendezvous
from exporter.errors import InvalidSpec
from exporter.manifest import Versions
from exporter.outcome import Failure
from exporter.spec import ExportSpec
from exporter.storage.places import EVERYWHERE
from tests.jobs.factories import CONFIG_TEXT, make_job
from worker.attempt.workspace import open_workspace
from worker.hosts.host import HostOfRanks
from worker.hosts.host_consistency import AgreedJob, HostFacts, collect_host_facts, digest_checkpoint

VERSIONS = Versions(
    slipway="1.0", python="3.11", torch="2.13", torchrec="1.8", fbgemm="1.8", triton="3.7", cuda=None
)
COMMON = HostFacts(hosts=2, ranks=4, spec="s", checkpoint="c", architecture="x86_64 avx2", versions=VERSIONS)
PLACE = Rendezvous(hosts=2, address="127.0.0.1", port=1, time_limit=timedelta(seconds=1))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"hosts": 3}, "host 1 was given 3 hosts with 4 ranks in all, and the first host 2 with 4"),
        ({"ranks": 2}, "host 1 was given 2 hosts with 2 ranks in all, and the first host 2 with 4"),
        ({"spec": "t"}, "host 1 was asked for another export than the first host"),
        ({"checkpoint": "d"}, "host 1 reads another checkpoint than the first host"),
        ({"architecture": "aarch64"}, "host 1 compiles for aarch64, and the first host for x86_64 avx2"),
        ({"versions": VERSIONS.model_copy(update={"torch": "2.12"})}, "host 1 has torch 2.12, and the first"),
    ],
)
def test_all_hosts_are_told_what_one_has_otherwise(
    own: dict[str, object], said: str, worker_dir: Path, tmp_path: Path
) -> None:
    spec = make_job().spec.model_copy(update={"output_uri": str(tmp_path)})
    job, store = make_job().model_copy(update={"spec": spec}), dist.HashStore()

    def read_failure(index: int) -> Failure | None:
        common = COMMON.model_copy(update=own) if index else COMMON
        with open_workspace(job, CONFIG_TEXT, worker_dir / str(index)) as workspace:
            return HostOfRanks(Hosts(store, index, 2), PLACE, workspace, 4, common).run()

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(read_failure, index) for index in range(2)]
        other, first = ends[1].result(30), ends[0].result(30)
    assert first is not None and first.code == "invalid_spec" and said in first.message
    assert other == first
    assert not list(tmp_path.glob("*.meeting"))


def test_what_another_release_tells_is_no_riddle() -> None:
    text = AgreedJob(job_id="j", folder="f", common=COMMON).model_dump_json().replace("ranks", "processes")
    with pytest.raises(InvalidSpec, match="host 1 has slipway .* the first host another release"):
        AgreedJob.read(text, 1)


def test_copies_of_a_checkpoint_are_told_from_other_weights(tmp_path: Path) -> None:
    def digest(content: bytes) -> str:
        (tmp_path / "w.safetensors").write_bytes(content)
        return digest_checkpoint(str(tmp_path))

    earlier = digest(bytes(1 << 20))
    assert digest(bytes(1 << 20)) == earlier
    assert digest(bytes((1 << 20) - 1) + b"x") != earlier


def test_a_host_knows_what_it_has(tmp_path: Path) -> None:
    spec = ExportSpec(config="c", checkpoint_uri=str(tmp_path), output_uri=str(tmp_path))
    common = collect_host_facts(spec, EVERYWHERE, hosts=2, ranks=4)
    assert isinstance(common, HostFacts), common
    assert (common.hosts, common.ranks) == (2, 4)
    assert common.architecture.startswith(platform.machine())
