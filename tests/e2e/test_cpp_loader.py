"""The C++ header serves prepared artifacts: the bits and the refusals of the loader in Python, and swaps."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cli.main import main
from tests.cpp_runner import CAN_BUILD, build_runner, copy_prepared, outputs_of, rewrite_json, run_tower
from tests.e2e.conftest import Export, export_command, new_weights
from tests.exporter.models.recorded import read_batch
from tests.shared import fill_once

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CAN_BUILD, reason="no C++ compiler")]

Prepared = Callable[[str], Path]
# Answers each (prepared artifact, tower, inputs) of a file: with outputs, or with the words of a refusal.
IN_PYTHON = """
import sys, torch
from slipway.loader import LoaderError, load
loaded, answers = {}, []
for prepared, tower, inputs in torch.load(sys.argv[1]):
    if (prepared, tower) not in loaded:
        loaded[prepared, tower] = load(prepared, tower)
    try:
        answers.append(loaded[prepared, tower](inputs))
    except LoaderError as error:
        answers.append(f"{error.code}: {error.message}")
torch.save(answers, sys.argv[2])
"""


@pytest.fixture(scope="session")
def runner(run_folder: Path) -> Path:
    return fill_once(run_folder, "cpp_runner", build_runner) / "cpp_runner"


@pytest.fixture(scope="session")
def prepared(run_folder: Path, artifact_of: Export, two_stage_of: Export) -> Prepared:
    """The prepared artifact of a recorded model: of dlrm_hstu in two stages, of others as one package."""

    def prepare(model: str) -> Path:
        artifact = (two_stage_of if model == "dlrm_hstu" else artifact_of)(model)
        return _prepare_once(run_folder, f"prepared-{model}", lambda _: artifact)

    return prepare


@pytest.fixture(scope="session")
def newer(run_folder: Path, prepared: Prepared) -> Prepared:
    """The same with other weights, and, as it is exported after the first one, with that one's code."""

    def prepare(model: str) -> Path:
        prepared(model)
        options = ("--mode", "two_stage") if model == "dlrm_hstu" else ()

        def export(folder: Path) -> str:
            command = [*export_command(model, folder / "exported"), *options]
            assert main([*command, "--checkpoint", str(new_weights(model, folder))]) == 0
            [artifact] = (folder / "exported").iterdir()
            return str(artifact)

        return _prepare_once(run_folder, f"prepared-newer-{model}", export)

    return prepare


def _prepare_once(run_folder: Path, name: str, export: Callable[[Path], str]) -> Path:
    def prepare(folder: Path) -> None:
        assert main(["prepare", export(folder), str(folder / "prepared")]) == 0

    return fill_once(run_folder, name, prepare) / "prepared"


@pytest.fixture
def copy(prepared: Prepared, tmp_path: Path) -> Iterator[Path]:
    """A prepared hstu_match whose files a test may change."""
    yield copy_prepared(prepared("hstu_match"), tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy")


def user_inputs(batch: str = "b1") -> dict[str, Tensor]:
    return read_batch("hstu_match", f"user_tower__{batch}", "in")


def items() -> dict[str, Tensor]:
    return read_batch("hstu_match", "item_tower__items_b7", "in")


# Changes of the inputs of one row; None takes an input away.
WRONG_INPUTS: dict[str, tuple[str, Tensor | None]] = {
    "missing": ("user_id.values", None),
    "unknown": ("user_name.values", torch.zeros(1)),
    "other_dtype": ("user_id.values", torch.zeros(1)),
    "other_rank": ("user_id.values", torch.zeros(1, 1, dtype=torch.int64)),
    "other_fixed_size": ("request_time.values", torch.zeros(1, 2)),
    "unequal_sizes": ("user_id.lengths", torch.ones(2, dtype=torch.int64)),
    "id_outside_the_table": ("user_id.values", torch.tensor([10**9])),
    "lengths_exceed_values": ("uih_seq__video_id.lengths", torch.tensor([38])),
    "lengths_of_a_sequence_differ": ("uih_seq__watch_time.lengths", torch.tensor([36], dtype=torch.int32)),
    "overflowing_lengths": ("user_id.lengths", torch.tensor([2**62])),
}
TAKEN = {
    "one_row": ("hstu_match", "user", "user_tower__b1"),
    "rows": ("hstu_match", "user", "user_tower__b32"),
    "items": ("hstu_match", "item", "item_tower__items_b7"),
    "one_row_of_two_packages": ("dlrm_hstu", "model", "model__b1"),
    "rows_of_two_packages": ("dlrm_hstu", "model", "model__b32"),
}
Case = tuple[Path, str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def cases(prepared: Prepared) -> dict[str, Case]:
    """Inputs, and who takes or refuses them."""
    found: dict[str, Case] = {}
    for name, (model, tower, batch) in TAKEN.items():
        found[name] = (prepared(model), tower, read_batch(model, batch, "in"))
    for name, (changed, value) in WRONG_INPUTS.items():
        inputs = {key: each for key, each in user_inputs().items() if key != changed}
        found[name] = (prepared("hstu_match"), "user", inputs | ({} if value is None else {changed: value}))
    inputs = read_batch("dlrm_hstu", "model__b1", "in")
    inputs["user_id.values"] = torch.tensor([-1])
    found["id_that_the_first_of_two_packages_refuses"] = (prepared("dlrm_hstu"), "model", inputs)
    return found


@pytest.fixture(scope="module")
def in_python(
    cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Tensor] | str]:
    """The outputs or the refusal of each case, by the loader in a Python process."""
    given, found = (tmp_path_factory.mktemp("python") / name for name in ("given.pt", "found.pt"))
    torch.save([(str(folder), tower, inputs) for folder, tower, inputs in cases.values()], given)
    command = [sys.executable, "-c", IN_PYTHON, str(given), str(found)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(zip(cases, torch.load(found), strict=True))


@pytest.mark.parametrize("case", TAKEN)
def test_answers_are_the_bits_of_the_loader_in_python(
    case: str, cases: dict[str, Case], in_python: dict[str, dict[str, Tensor]], runner: Path, tmp_path: Path
) -> None:
    outputs = outputs_of(run_tower(runner, *cases[case], tmp_path))
    assert list(outputs) == list(in_python[case])
    for name, value in in_python[case].items():
        assert torch.equal(outputs[name], value.float()), name


@pytest.mark.parametrize("case", [*WRONG_INPUTS, "id_that_the_first_of_two_packages_refuses"])
def test_wrong_inputs_are_refused_in_the_words_of_the_loader_in_python(
    case: str, cases: dict[str, Case], in_python: dict[str, str], runner: Path, tmp_path: Path
) -> None:
    ran = run_tower(runner, *cases[case], tmp_path)
    assert ran.returncode == 1 and in_python[case].startswith("input_refused: ")
    assert ran.stderr.splitlines()[-1] == in_python[case]


def test_weights_can_all_be_checked_first(runner: Path, prepared: Prepared, tmp_path: Path) -> None:
    outputs_of(run_tower(runner, prepared("hstu_match"), "item", items(), tmp_path, "--check", "all"))


def test_a_server_may_do_the_lookups_itself(
    cases: dict[str, Case], in_python: dict[str, dict[str, Tensor]], tmp_path: Path
) -> None:
    """As with sharded tables: here the first of two packages plays the server's part."""
    prepared, tower, inputs = cases["rows_of_two_packages"]

    def only(package: int) -> Callable[[dict[str, Any]], None]:
        def change(index: dict[str, Any]) -> None:
            for entry in index["towers"]:
                entry["packages"] = entry["packages"][package : package + 1]

        return change

    def look_up(manifest: dict[str, Any]) -> None:
        for entry in manifest["towers"]:
            entry["outputs"] = entry.pop("sparse")["tensors"]

    def have_looked_up(manifest: dict[str, Any]) -> None:
        for entry in manifest["towers"]:
            entry["tables"] = entry.pop("sparse")

    lookups, dense = (copy_prepared(prepared, tmp_path / name) for name in ("lookups", "dense"))
    for folder, package, change in ((lookups, 0, look_up), (dense, 1, have_looked_up)):
        rewrite_json(folder, "prepared.json", only(package))
        rewrite_json(folder, "manifest.json", change)
    (tmp_path / "build").mkdir()
    build_runner(tmp_path / "build", program="tests/slipway/look_up.cpp")
    torch.save(inputs, tmp_path / "inputs.pt")
    command = [str(tmp_path / "build" / "cpp_runner"), str(dense), str(lookups), tower]
    ran = subprocess.run([*command, str(tmp_path / "inputs.pt")], capture_output=True, text=True, check=False)
    for name, value in outputs_of(ran).items():
        assert torch.equal(value, in_python["rows_of_two_packages"][name].float().flatten()), name


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def weights_of(prepared: Path, tower: str = "item") -> Path:
    return prepared / tower / "packages" / "0" / "weights.bin"


def refusal_of(ran: subprocess.CompletedProcess[str], code: str) -> str:
    assert ran.returncode == 1, ran.stdout + ran.stderr
    line = ran.stderr.splitlines()[-1]
    assert line.startswith(f"{code}: "), ran.stderr
    return line


@pytest.mark.parametrize("at", [0, -1])
def test_a_flipped_bit_of_the_weights_is_found(at: int, runner: Path, copy: Path, tmp_path: Path) -> None:
    flip(weights_of(copy), at)
    ran = run_tower(runner, copy, "item", items(), tmp_path, "--check", "all")
    assert "weights.bin is damaged between bytes" in refusal_of(ran, "artifact_damaged")


def test_a_flipped_bit_is_found_while_it_serves(runner: Path, copy: Path, tmp_path: Path) -> None:
    flip(weights_of(copy), 0)
    options = ("--threads", "1", "--calls", "200000")  # for seconds, of which the check needs one
    ran = run_tower(runner, copy, "item", items(), tmp_path, *options)
    assert "weights.bin is damaged between bytes" in refusal_of(ran, "artifact_damaged")


def test_shorter_weights_are_not_mapped(runner: Path, copy: Path, tmp_path: Path) -> None:
    with weights_of(copy).open("r+b") as file:
        file.truncate(weights_of(copy).stat().st_size - 4096)
    refusal_of(run_tower(runner, copy, "item", items(), tmp_path), "artifact_damaged")


@pytest.mark.parametrize(
    "pattern",
    ["manifest.json", "prepared.json", "item/packages/0/weights.leaves", "item/packages/0/**/*.wrapper.so"],
)
def test_a_flipped_bit_elsewhere_is_found_before_anything_is_loaded(
    pattern: str, runner: Path, copy: Path, tmp_path: Path
) -> None:
    [file] = copy.glob(pattern)
    flip(file, file.stat().st_size // 2)
    refusal_of(run_tower(runner, copy, "item", items(), tmp_path), "artifact_damaged")


@pytest.mark.parametrize(
    "pattern", ["manifest.json", "prepared.json", "item/packages/0/weights.bin", "item/packages/0/**/*.so"]
)
def test_a_missing_file_is_named(pattern: str, runner: Path, copy: Path, tmp_path: Path) -> None:
    [file] = copy.glob(pattern)
    file.unlink()
    ran = run_tower(runner, copy, "item", items(), tmp_path)
    assert ran.returncode == 1 and file.name in ran.stderr


def other_architecture(manifest: dict[str, Any]) -> None:
    manifest["architecture"] = "x86_64 avx512 amx_of_tomorrow"


def other_machine(manifest: dict[str, Any]) -> None:
    manifest["architecture"] = "vax"


def for_a_gpu(manifest: dict[str, Any]) -> None:
    manifest.update(device="cuda", architecture="sm_90")


def other_torch(manifest: dict[str, Any]) -> None:
    manifest["versions"]["torch"] = "2.99.0+cpu"


def other_operators(manifest: dict[str, Any]) -> None:
    manifest["op_libraries"] = ["operators_of_nobody"]


def tables_in_shards(manifest: dict[str, Any]) -> None:
    for tower in manifest["towers"]:
        tower["tables"] = {"tensors": []}


def no_inputs(manifest: dict[str, Any]) -> None:
    for tower in manifest["towers"]:
        del tower["inputs"]


def other_output(manifest: dict[str, Any]) -> None:
    for tower in manifest["towers"]:
        tower["outputs"][0]["name"] = "no_such_output"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (other_architecture, "machine_unfit", "this machine lacks amx_of_tomorrow"),
        (other_machine, "machine_unfit", "was built for vax"),
        (for_a_gpu, "machine_unfit", "sm_90"),
        (other_torch, "versions_differ", "was compiled by torch 2.99.0+cpu"),
        (other_operators, "operators_missing", "operators_of_nobody"),
        (tables_in_shards, "artifact_invalid", "give load a look_up"),
        (no_inputs, "artifact_invalid", "has no inputs"),
        (other_output, "artifact_invalid", "there is no no_such_output"),
    ],
)
def test_what_this_process_cannot_run_is_refused(
    change: Callable[[dict[str, Any]], None],
    code: str,
    words: str,
    runner: Path,
    copy: Path,
    tmp_path: Path,
) -> None:
    rewrite_json(copy, "manifest.json", change)
    assert words in refusal_of(run_tower(runner, copy, "item", items(), tmp_path), code)


def test_a_path_out_of_the_artifact_is_refused(runner: Path, copy: Path, tmp_path: Path) -> None:
    def change(index: dict[str, Any]) -> None:
        for tower in index["towers"]:
            tower["packages"][0]["library"] = "../../lib.so"

    rewrite_json(copy, "prepared.json", change)
    ran = run_tower(runner, copy, "item", items(), tmp_path)
    assert "leads out of the artifact: ../../lib.so" in refusal_of(ran, "artifact_invalid")


def test_a_weight_outside_its_file_is_refused(runner: Path, copy: Path, tmp_path: Path) -> None:
    def change(index: dict[str, Any]) -> None:
        for tower in index["towers"]:
            tower["packages"][0]["weights"]["tensors"][0]["offset"] = 2**40

    rewrite_json(copy, "prepared.json", change)
    ran = run_tower(runner, copy, "item", items(), tmp_path)
    assert "lies outside" in refusal_of(ran, "artifact_invalid")


def test_a_weight_that_is_not_listed_is_refused(runner: Path, copy: Path, tmp_path: Path) -> None:
    def change(index: dict[str, Any]) -> None:
        for tower in index["towers"]:
            tower["packages"][0]["weights"]["tensors"].pop()

    rewrite_json(copy, "prepared.json", change)
    ran = run_tower(runner, copy, "item", items(), tmp_path)
    assert "has no weight" in refusal_of(ran, "artifact_invalid")


def test_a_missing_tower_is_named_with_those_there_are(
    runner: Path, prepared: Prepared, tmp_path: Path
) -> None:
    ran = run_tower(runner, prepared("hstu_match"), "model", items(), tmp_path)
    assert "has no model tower; it has: user, item" in refusal_of(ran, "tower_missing")


def test_an_artifact_must_be_prepared(runner: Path, artifact_of: Export, tmp_path: Path) -> None:
    ran = run_tower(runner, Path(artifact_of("hstu_match")), "item", items(), tmp_path)
    assert "run slipway prepare" in refusal_of(ran, "artifact_invalid")


SERVED = re.compile(r"by older (\d+), by newer (\d+), torn 0, failed 0, swaps (\d+), longest [\d.]+ ms")


@pytest.mark.parametrize(
    ("model", "tower", "batch", "calls"),
    [
        ("hstu_match", "item", "item_tower__items_b7", 5000),
        ("hstu_match", "user", "user_tower__b1", 1000),
        ("dlrm_hstu", "model", "model__b1", 1000),  # of two packages, which must be of one artifact
    ],
)
def test_every_answer_during_swaps_is_a_whole_one(  # one artifact's, bit by bit
    model: str,
    tower: str,
    batch: str,
    calls: int,
    runner: Path,
    prepared: Prepared,
    newer: Prepared,
    tmp_path: Path,
) -> None:
    options = ("--threads", "4", "--calls", str(calls), "--swap", str(newer(model)))
    inputs = read_batch(model, batch, "in")
    ran = run_tower(runner, prepared(model), tower, inputs, tmp_path, *options)
    served = SERVED.search(ran.stdout)
    assert ran.returncode == 0 and served, ran.stdout[-300:] + ran.stderr
    older_answers, newer_answers, swaps = map(int, served.groups())
    assert older_answers + newer_answers == 4 * calls
    assert min(older_answers, newer_answers, swaps) > 1


@pytest.mark.planted  # beside CI: building takes a minute
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_swaps_under_load_touch_nothing_they_should_not(
    sanitizer: str, prepared: Prepared, newer: Prepared, tmp_path: Path
) -> None:
    (tmp_path / "build").mkdir()
    build_runner(tmp_path / "build", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=undefined", "-g")
    options = ("--threads", "3", "--calls", "300", "--swap", str(newer("dlrm_hstu")))
    inputs = read_batch("dlrm_hstu", "model__b1", "in")
    runner = tmp_path / "build" / "cpp_runner"
    ran = run_tower(runner, prepared("dlrm_hstu"), "model", inputs, tmp_path, *options)
    assert ran.returncode == 0 and SERVED.search(ran.stdout) and "Sanitizer" not in ran.stderr, ran.stderr


def test_an_artifact_with_other_tensors_is_not_swapped_in(
    runner: Path, prepared: Prepared, copy: Path, tmp_path: Path
) -> None:
    def change(manifest: dict[str, Any]) -> None:
        for tower in manifest["towers"]:
            tower["outputs"][0]["dtype"] = "float64"

    rewrite_json(copy, "manifest.json", change)
    options = ("--threads", "1", "--swap", str(copy))
    ran = run_tower(runner, prepared("hstu_match"), "item", items(), tmp_path, *options)
    assert "takes or returns other tensors" in refusal_of(ran, "swap_refused")
