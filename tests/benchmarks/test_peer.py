"""The peer bench: what it asks of another program, what it says of one that fails, and what it leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from benchmarks import peer
from benchmarks.__main__ import main as run_all
from benchmarks.contest.contest import (
    FRESH,
    NEW_MODEL,
    NEW_WEIGHTS,
    Contest,
    ExportRatios,
    LatencyRatios,
)
from benchmarks.contest.contract import (
    BatchTimes,
    Contender,
    ContenderFailed,
    ExportOrder,
    LatencyOrder,
    parse_command,
    require_same,
)
from benchmarks.contest.models import ContestModel
from benchmarks.harness.command import Run
from benchmarks.harness.statistics import Spread
from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.read import open_checkpoint

# A whole program of the contract. WORDS changes what it does: a failure, or twice the outputs or the time.
PROGRAM = """
import argparse, json, os, pathlib, socket, sys, time, zlib
parser = argparse.ArgumentParser()
parser.add_argument("verb")
for name in ("config", "checkpoint", "rows", "items", "output", "caches", "tower", "batches", "seconds"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
words = WORDS
if "hang" in words:
    time.sleep(600)
if given.verb == "export":
    if "fail" in words and words[-1] in given.config:
        sys.exit("no such operator: hstu::attend")
    known = pathlib.Path(given.caches, "known")
    os.chdir(given.caches)  # for a short name of the socket, which is left behind
    if not os.path.exists("left"):
        socket.socket(socket.AF_UNIX).bind("left")
    pathlib.Path(given.output).mkdir()
    pathlib.Path(given.output, "package").write_text(known.read_text() if known.exists() else "")
    known.open("a").write(pathlib.Path(given.config).parent.name + "\\n")
    if "record" in words:
        found = pathlib.Path(given.output, "package").read_text().split()
        weights = pathlib.Path(given.checkpoint, "model", "__0_0.distcp").read_bytes()
        line = json.dumps([found, zlib.crc32(weights)])
        pathlib.Path(words[-1]).open("a").write(line + "\\n")
else:
    sizes = sorted({int(file.name.split("-")[0]) for file in pathlib.Path(given.batches).iterdir()})
    print("loading the package")
    for size in sizes:
        line = {"batch": size, "p50_ms": size * (2.0 if "slow" in words else 1.0)}
        print(json.dumps({**line, "outputs": {"logits": float(size) * (2 if "twice" in words else 1)}}))
"""


def contender(folder: Path, *words: str, name: str = "peer", limit_s: float = 60) -> Contender:
    program = folder / f"{name}.py"
    program.write_text(PROGRAM.replace("WORDS", repr(list(words)), 1))
    return shell(folder, f"{sys.executable} {program}", name=name, limit_s=limit_s)


def shell(folder: Path, command: str, *, name: str = "peer", limit_s: float = 60) -> Contender:
    limit = timedelta(seconds=limit_s)
    return Contender(name=name, command=parse_command(command), limit=limit, scratch=folder / name)


def order(folder: Path) -> ExportOrder:
    paths = {name: folder / name for name in ("config", "checkpoint", "rows", "output", "caches")}
    return ExportOrder(**paths, items=None)


def latency_order(folder: Path, sizes: tuple[int, ...] = (1, 8)) -> LatencyOrder:
    batches = folder / "batches"
    batches.mkdir()
    for size in sizes:
        (batches / f"{size}-0.safetensors").touch()
    return LatencyOrder(output=folder, tower="model", batches=batches, sizes=(1, 8), seconds=0.1)


def contest(folder: Path, other: Contender) -> Contest:
    ours = contender(folder, name="slipway")
    run = Run(rounds=2, quick=False, folder=folder)
    return Contest(run=run, ours=ours, peer=other, timed=other, cores=1)


def test_an_export_tells_its_seconds_and_those_of_the_processors(tmp_path: Path) -> None:
    taken = contender(tmp_path).export(order(tmp_path), cores=1)
    assert 0 < taken.work < 2 * taken.wall


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo broken; exit 3", r"exit 3' export` ended with status 3; printed at its end: broken$"),
        ("exit 4", r"ended with status 4; it printed nothing$"),
        ("echo done", r"ended well, but left nothing in its output; "),
        ("printf '\\377'; exit 5", r"ended with status 5; printed at its end: �$"),
    ],
)
def test_an_export_that_fails_is_one_line_with_the_command_and_what_it_printed(
    script: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ContenderFailed, match=message) as failed:
        shell(tmp_path, f'sh -c "{script}"').export(order(tmp_path), cores=1)
    assert str(failed.value).startswith("peer: `sh -c ")
    assert "\n" not in str(failed.value)


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = f"30.{os.getpid()}"
    hanging = shell(tmp_path, f'sh -c "echo waiting; sleep {mark} & wait"', limit_s=1)
    with pytest.raises(ContenderFailed, match="did not end within 1 seconds; .*: waiting$"):
        hanging.export(order(tmp_path), cores=1)
    assert subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False).returncode == 1


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("rubbish", "gave no line for batches of 1, 8; printed at its end: rubbish$"),
        ('{"batch": 1, "p50_ms": 1, "outputs": {"y": 1}}', "gave no line for batches of 8; "),
        ('{"batch": 1', "gave no such line: line: Invalid JSON"),
        ('{"batch": 1, "p50_ms": 0, "outputs": {"y": 1}}', "gave no such line: p50_ms: .* greater than 0"),
        ('{"batch": 1, "p50_ms": 1, "outputs": {}}', "gave no such line: outputs: "),
        ('{"batch": 1, "p50_ms": 1, "outputs": {"y": NaN}}', "gave no such line: outputs.y: .*finite"),
        ('{"batch": 1, "p50_ms": "fast", "outputs": {"y": 1}}', "gave no such line: p50_ms: "),
    ],
)
def test_other_lines_than_those_of_the_contract_are_refused(
    printed: str, message: str, tmp_path: Path
) -> None:
    script = tmp_path / "latency.sh"
    script.write_text(f"cat <<'END'\n{printed}\nEND\n")
    with pytest.raises(ContenderFailed, match=message):
        shell(tmp_path, f"sh {script}").time_batches(latency_order(tmp_path), threads=1)


def test_a_program_runs_on_the_cores_and_threads_that_it_is_given(tmp_path: Path) -> None:
    script = tmp_path / "export.sh"
    script.write_text(
        'mkdir "$9"; echo $OMP_NUM_THREADS $(nproc --all) $(env -u OMP_NUM_THREADS nproc) > "$9/x"'
    )
    shell(tmp_path, f"bash {script}").export(order(tmp_path), cores=1)
    before = os.sched_getaffinity(0)
    threads, _, cores = (tmp_path / "output" / "x").read_text().split()
    assert (threads, cores) == ("1", "1")
    assert os.sched_getaffinity(0) == before


def line(outputs: Mapping[str, float]) -> Mapping[int, BatchTimes]:
    return {8: BatchTimes(batch=8, p50_ms=1, outputs=outputs)}


def test_programs_that_compute_something_else_are_not_compared(tmp_path: Path) -> None:
    other = shell(tmp_path, "true")
    require_same(line({"a": 1.0, "only_ours": 3.0}), line({"a": 1.001}), other)
    with pytest.raises(ContenderFailed, match="something else: .* of 8, .* of a is 1.2, and Slipway's 1$"):
        require_same(line({"a": 1.0}), line({"a": 1.2}), other)
    with pytest.raises(ContenderFailed, match="its outputs are b, and Slipway's a$"):
        require_same(line({"a": 1.0}), line({"b": 1.0}), other)


def test_exports_find_the_caches_that_their_situation_is_about(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    found = contest(tmp_path, contender(tmp_path, "record", str(seen))).compare_exports("dlrm_hstu-64")
    assert [each.situation for each in found] == [FRESH, NEW_WEIGHTS, NEW_MODEL]
    assert all(len(each.wall.values) == 2 and each.wall.low > 0 for each in found)
    lines = [json.loads(each) for each in seen.read_text().splitlines()]
    round_one, made = [[], ["dlrm_hstu-64"]], [[], ["dlrm_hstu"]]
    others = ["dlrm_hstu", "hstu_match"]  # exported once, before the first round's new model
    assert [caches for caches, _ in lines] == [*round_one, *made, others, *round_one, others]
    fresh, new, _, _, known, *second, _ = (weights for _, weights in lines)
    assert fresh == known
    assert len({fresh, new, *second}) == 4


def test_an_installation_is_made_among_the_caches_and_says_why_if_it_fails(tmp_path: Path) -> None:
    makes = (sys.executable, "-c", "import os; open(os.environ['TORCHINDUCTOR_CACHE_DIR'], 'w')")
    replace(shell(tmp_path, "true"), installation=makes).install(order(tmp_path))
    assert (tmp_path / "caches" / "compiler").exists()
    shell(tmp_path, "true").install(order(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(ContenderFailed, match="installation` ended with status 1; it printed nothing"):
        replace(shell(tmp_path, "true"), installation=("false",)).install(order(tmp_path))


def test_new_weights_are_another_checkpoint_that_an_export_reads(tmp_path: Path) -> None:
    model = ContestModel.of("dlrm_hstu", tmp_path / "models")
    values = []
    for seed in (0, 1, 1):
        given = model.order(seed=seed, output=tmp_path / "output", caches=tmp_path / "caches")
        weights = open_checkpoint(given.checkpoint)
        assert all(name.startswith(PREFIX) for name in weights.tensors())
        values.append(torch.cat([weights.read(name).flatten() for name in sorted(weights.tensors())]))
    assert torch.equal(values[1], values[2])
    assert not torch.equal(values[0], values[1])


def test_a_peer_that_fails_in_one_situation_is_compared_in_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = contest(tmp_path, contender(tmp_path, "fail", "hstu_match-64"))
    assert held.compare_exports("hstu_match-64") == []
    assert [each.situation for each in held.compare_exports("dlrm_hstu")] == [FRESH, NEW_WEIGHTS]
    assert all("ended with status 1; printed at its end: no such operator" in each for each in held.failures)
    assert held.failures == capsys.readouterr().err.splitlines()
    assert len(held.failures) == 3  # fresh, and twice the new model: itself, and one of those before it


def test_calls_are_ratios_of_each_round(tmp_path: Path) -> None:
    held = contest(tmp_path, contender(tmp_path, "slow"))
    found = held.compare_calls("hstu_match", (1,))
    assert [(each.tower, each.size) for each in found][:6] == [
        *(("user", size) for size in (1, 8, 32, 128, 512)),
        ("item", 1),
    ]
    assert {each.p50.values for each in found} == {(0.5, 0.5)}
    assert held.failures == []


def test_calls_that_compute_something_else_are_no_ratio(tmp_path: Path) -> None:
    held = contest(tmp_path, contender(tmp_path, "twice"))
    assert held.compare_calls("dlrm_hstu", (1,)) == []
    assert "it computes something else" in held.failures[0]


def test_without_a_peer_the_bench_is_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["peer"])
    assert peer.main() == 0
    assert capsys.readouterr().out.startswith("peer: skipped, because --peer COMMAND is not given")
    monkeypatch.setattr("sys.argv", ["benchmarks", "peer"])
    assert run_all() == 0
    assert capsys.readouterr().out.startswith("peer: skipped, because --peer COMMAND is not given")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--peer", "no-such-program"], "there is no program no-such-program"),
        (["--peer", ""], "argument --peer: invalid parse_command value: ''"),
        (["--peer", "true", "--cores", "4096"], "there are not as many cores"),
        (["--peer", "true", "--situations", "new-weights"], "new-weights follows the export of fresh"),
        (["--peer", "true", "--models", "dssm"], "argument --models: invalid choice: 'dssm'"),
    ],
)
def test_options_that_cannot_be_carried_out_are_refused_at_once(
    options: Sequence[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["peer", *options])
    with pytest.raises(SystemExit, match="2"):
        peer.main()
    assert message in capsys.readouterr().err


def test_failures_stand_in_the_report_beside_the_ratios(tmp_path: Path) -> None:
    one = Spread.of([0.5, 0.6, 0.7])
    figures = peer.PeerFigures(
        exports=(ExportRatios(model="dlrm_hstu-64", situation=FRESH, wall=one, work=one),),
        latencies=(LatencyRatios(model="dlrm_hstu-64", tower="model", threads=1, size=8, p50=one),),
        failures=("peer: `a | b` ended with status 1",),
    )
    exports, calls, failures = (table.to_markdown() for table in peer.tables(figures))
    row = "| dlrm_hstu-64 | fresh | 3 | 0.600 (0.500 to 0.700) | 0.600 (0.500 to 0.700) | 1.2 | 0.5 |"
    assert row in exports
    assert "| expected |  |  | 0.82 |" in calls
    assert "`a \\| b`" in failures
    peer.draw(figures, Figure())


@pytest.mark.slow
def test_an_interrupt_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    """The bench is interrupted while Slipway exports, which is the first thing that it does."""
    work = tmp_path / "work"
    folders = ["--folder", str(work), "--results", str(tmp_path / "results")]
    words = ["--peer", "true", "--models", "dlrm_hstu", "--quick", *folders]
    bench = subprocess.Popen([sys.executable, "-m", "benchmarks.peer", *words])
    try:
        deadline = time.monotonic() + 120
        while not list(work.glob("peer-*/scratch-slipway/log")):
            assert bench.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        bench.send_signal(signal.SIGINT)
        assert bench.wait(60) == 130
    finally:
        bench.kill()
        bench.wait()
    assert list(work.iterdir()) == []
    assert not (tmp_path / "results").exists()
    assert subprocess.run(["pgrep", "-f", str(work)], check=False).returncode == 1
