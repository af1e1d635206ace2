"""A server loads a tower, calls it from many threads, and is told in words what is wrong with inputs."""

import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._inductor import aoti_load_package  # noqa: TID251  what servers without the loader call

from exporter.spec import Device
from slipway.loader import (
    ArtifactInvalid,
    CallFailed,
    InputRefused,
    LoadedTower,
    LoaderError,
    MachineUnfit,
    OperatorsMissing,
    SignatureRefused,
    SwapRefused,
    TowerMissing,
    VersionsDiffer,
    load,
)
from tests.slipway.loading.artifacts import INPUTS, change_manifest, read_manifest, write_manifest
from tests.slipway.loading.conftest import Artifacts

pytestmark = pytest.mark.slow


def torchs_answer(artifact: Path) -> Tensor:
    """What torch's own loader computes from the published packages."""
    tensors: dict[str, Tensor] = INPUTS
    for name in ("sparse_model.pt2", "aoti_model.pt2"):
        if (artifact / "user" / "aoti" / name).exists():
            tensors = aoti_load_package(str(artifact / "user" / "aoti" / name))(tensors)
    return tensors["emb"]


@pytest.fixture
def tower(artifacts: Artifacts) -> Iterator[LoadedTower]:
    with load(artifacts.prepared("old"), "user") as loaded:
        yield loaded


@pytest.mark.parametrize("name", ["old", "two"])
@pytest.mark.parametrize("kind", ["published", "prepared"])
def test_it_gives_the_same_bits_as_torchs_loader(artifacts: Artifacts, name: str, kind: str) -> None:
    folder = artifacts.published(name) if kind == "published" else artifacts.prepared(name)
    with load(folder, "user") as tower:
        assert torch.equal(tower(INPUTS)["emb"], torchs_answer(artifacts.published(name)))
        assert tower.await_check(30)


def test_the_order_of_the_dict_does_not_matter(tower: LoadedTower) -> None:
    turned = dict(reversed(INPUTS.items()))
    assert torch.equal(tower(turned)["emb"], tower(INPUTS)["emb"])


def test_an_input_that_is_a_view_counts_as_its_values(tower: LoadedTower) -> None:
    view = {name: torch.stack([value, value], dim=1)[:, 0] for name, value in INPUTS.items()}
    assert torch.equal(tower(view)["emb"], tower(INPUTS)["emb"])


LENGTHS, VALUES = INPUTS["id.lengths"], INPUTS["id.values"]
REFUSED: dict[str, tuple[dict[str, object], str, str]] = {
    "missing": ({"id.values": VALUES}, "there is no id.lengths", "id.lengths"),
    "unknown": ({**INPUTS, "x": VALUES}, "the tower takes no x", "x"),
    "no tensor": ({**INPUTS, "id.values": [1]}, "id.values is no tensor: list", "id.values"),
    "dtype": (
        {**INPUTS, "id.values": VALUES.float()},
        "id.values: int64 [values_id] on cpu is taken, not float32 [5] on cpu",
        "id.values",
    ),
    "rank": ({**INPUTS, "id.values": VALUES[:, None]}, "not int64 [5, 1] on cpu", "id.values"),
    "device": ({**INPUTS, "id.values": VALUES.to("meta")}, "not int64 [5] on meta", "id.values"),
    "id": (
        {**INPUTS, "id.values": VALUES + 1},
        "id.values has an id outside the 2,000 rows of table id_emb",
        "id.values",
    ),
    "lengths": (
        {**INPUTS, "id.lengths": LENGTHS + 1},
        "id.lengths has a negative length, or does not add up to the number of values; "
        "they add up to 9, and exceed the 5 values",
        "id.lengths",
    ),
    "too many rows": (
        {"id.lengths": torch.ones(65, dtype=torch.int64), "id.values": torch.ones(65, dtype=torch.int64)},
        "id.lengths: batch is 65, and must be 0 to 64",
        "id.lengths",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("name", ["old", "two"])
def test_a_refusal_names_the_input_in_the_manifests_words(artifacts: Artifacts, name: str, case: str) -> None:
    inputs, words, where = REFUSED[case]
    with load(artifacts.prepared(name), "user") as tower:
        with pytest.raises(InputRefused) as refused:
            tower(inputs)  # type: ignore[arg-type]  # one is no tensor
        assert words in refused.value.message
        assert (refused.value.where, refused.value.code) == (where, "input_refused")
        assert torch.equal(tower(INPUTS)["emb"], torchs_answer(artifacts.published(name)))


def test_inputs_that_are_no_dict_are_refused(tower: LoadedTower) -> None:
    with pytest.raises(InputRefused, match="a dict of tensors by name, not list"):
        tower([LENGTHS, VALUES])  # type: ignore[arg-type]  # what is refused


def test_threads_that_call_and_are_refused_at_once_get_their_own_answers(artifacts: Artifacts) -> None:
    """With fewer places than threads: a refusal must wake those who wait."""
    wrong: queue.SimpleQueue[object] = queue.SimpleQueue()
    with load(artifacts.prepared("two"), "user", calls_at_once=2) as tower:

        def call(rows: int) -> None:
            ids = torch.arange(rows)
            inputs = {"id.lengths": torch.ones(rows, dtype=torch.int64), "id.values": ids}
            alone = tower(inputs)["emb"]
            for turn in range(200):
                try:
                    answer = tower(inputs if turn % 3 else {**inputs, "id.values": ids - 1})["emb"]
                except InputRefused:
                    if turn % 3:
                        wrong.put("refused")
                else:
                    if not turn % 3 or not torch.equal(answer, alone):
                        wrong.put(answer)

        threads = [threading.Thread(target=call, args=(rows,)) for rows in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
    assert wrong.empty()


def test_a_call_lets_other_threads_run(tower: LoadedTower) -> None:
    """The package is called without Python's lock where the pinned torch runs."""
    assert tower.calls_without_lock


def test_a_closed_tower_answers_no_more(artifacts: Artifacts) -> None:
    tower = load(artifacts.prepared("old"), "user")
    tower.close()
    with pytest.raises(CallFailed, match="closed"):
        tower(INPUTS)


class TestSwap:
    @pytest.mark.parametrize("newer", ["new", "wider"])
    @pytest.mark.parametrize("kind", ["published", "prepared"])
    def test_a_newer_artifact_answers(self, artifacts: Artifacts, newer: str, kind: str) -> None:
        folder = artifacts.published(newer) if kind == "published" else artifacts.prepared(newer)
        with load(artifacts.prepared("old"), "user") as tower:
            tower(INPUTS)
            tower.swap(folder)
            assert torch.equal(tower(INPUTS)["emb"], torchs_answer(artifacts.published(newer)))
            assert tower.job_id == {"new": "job2", "wider": "job3"}[newer]

    def test_equal_code_is_loaded_once(self, artifacts: Artifacts) -> None:
        program = f"""
from pathlib import Path
from slipway.loader import load
tower = load({str(artifacts.prepared("old"))!r}, "user")
tower.swap({str(artifacts.prepared("new"))!r})
lines = Path("/proc/self/maps").read_text().splitlines()
print(len({{line.split()[-1] for line in lines if "wrapper.so" in line}}))
"""
        assert printed_by(program) == ["1"]

    def test_what_the_older_one_held_is_given_back(self, artifacts: Artifacts) -> None:
        program = f"""
from pathlib import Path
import torch
from slipway.loader import load
from tests.slipway.loading.artifacts import INPUTS
tower = load({str(artifacts.prepared("old"))!r}, "user")
for name in ("new", "old") * 20:
    tower.swap({str(artifacts.root / "prepared")!r} + "/" + name)
    tower(INPUTS)
maps = Path("/proc/self/maps").read_text()
print(maps.count("weights.bin"), maps.count("prepared/new"))
"""
        assert printed_by(program) == ["1", "0"]

    def test_calls_under_way_see_one_release_of_both_packages(self, artifacts: Artifacts) -> None:
        answers = [torchs_answer(artifacts.published(name)) for name in ("two", "two-new")]
        torn: queue.SimpleQueue[Tensor] = queue.SimpleQueue()
        seen: set[int] = set()
        stop = threading.Event()
        with load(artifacts.prepared("two"), "user") as tower:

            def call() -> None:
                while not stop.is_set():
                    answer = tower(INPUTS)["emb"]
                    which = [number for number, each in enumerate(answers) if torch.equal(answer, each)]
                    if len(which) == 1:
                        seen.add(which[0])
                    else:
                        torn.put(answer)

            threads = [threading.Thread(target=call) for _ in range(3)]
            for thread in threads:
                thread.start()
            for turn in range(20):
                tower.swap(artifacts.prepared("two-new" if turn % 2 == 0 else "two"))
            stop.set()
            for thread in threads:
                thread.join()
        assert torn.empty() and seen == {0, 1}

    def test_other_tensors_are_refused_and_the_older_one_answers(self, copied: Artifacts) -> None:
        manifest = read_manifest(copied.published("old"))
        [entry] = manifest.towers
        wider = entry.outputs[0].model_copy(update={"shape": ("batch", 4)})
        newer = copied.root / "newer"
        shutil.copytree(copied.published("old"), newer)
        towers = (entry.model_copy(update={"outputs": (wider,)}),)
        write_manifest(newer, manifest.model_copy(update={"towers": towers}))
        with load(copied.prepared("old"), "user") as tower:
            before = tower(INPUTS)["emb"]
            with pytest.raises(SwapRefused, match=r"returns emb: float32 \[batch, 4\], not emb: float32"):
                tower.swap(newer)
            assert torch.equal(tower(INPUTS)["emb"], before)


UNLOADABLE: dict[str, tuple[Callable[[Path], None], type[LoaderError], str]] = {
    "cpu": (
        lambda folder: change_manifest(folder, architecture="x86_64 avx512 amx_bf99"),
        MachineUnfit,
        "lacks amx_bf99",
    ),
    "gpu": (
        lambda folder: change_manifest(folder, device=Device.CUDA, architecture="sm_999"),
        MachineUnfit,
        "sm_999",
    ),
    "torch": (
        lambda folder: change_manifest(
            folder, versions=read_manifest(folder).versions.model_copy(update={"torch": "2.9.1"})
        ),
        VersionsDiffer,
        "torch 2.9.1",
    ),
    "fbgemm": (
        lambda folder: change_manifest(
            folder, versions=read_manifest(folder).versions.model_copy(update={"fbgemm": "fbgemm-gpu 0.1"})
        ),
        VersionsDiffer,
        "fbgemm 0.1",
    ),
    "operators": (
        lambda folder: change_manifest(folder, op_libraries=("no_such_operators",)),
        OperatorsMissing,
        "no_such_operators",
    ),
}


@pytest.mark.parametrize("case", UNLOADABLE)
def test_what_does_not_run_here_is_refused(copied: Artifacts, case: str) -> None:
    change, error, words = UNLOADABLE[case]
    change(copied.published("old"))
    with pytest.raises(error, match=words):
        load(copied.published("old"), "user")


def test_a_tower_that_is_not_there_is_refused_with_those_that_are(artifacts: Artifacts) -> None:
    with pytest.raises(TowerMissing, match="has no tower 'item'; it has: user"):
        load(artifacts.prepared("old"), "item")


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match=r"it has no manifest\.json"):
        load(tmp_path, "user")


def test_what_the_key_has_not_signed_is_refused(copied: Artifacts) -> None:
    folder, private, public = copied.prepared("old"), copied.root / "key.pem", copied.root / "key.pub"
    for command in (
        f"openssl genpkey -algorithm ed25519 -out {private}",
        f"openssl pkey -in {private} -pubout -out {public}",
    ):
        subprocess.run(command.split(), check=True)
    with pytest.raises(SignatureRefused, match="not signed"):
        load(folder, "user", key=public)
    signing = f"openssl pkeyutl -sign -inkey {private} -rawin -in {folder / 'manifest.json'}"
    subprocess.run([*signing.split(), "-out", str(folder / "manifest.json.sig")], check=True)
    load(folder, "user", key=public).close()
    (folder / "manifest.json").chmod(0o644)
    change_manifest(folder, job_id="another")
    with pytest.raises(SignatureRefused, match="does not match its signature"):
        load(folder, "user", key=public)


def printed_by(program: str) -> list[str]:
    """The words that a program prints in a fresh process."""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()
