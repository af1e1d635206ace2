"""The lines on a job's page that load its towers into servers."""

import argparse
import ast
import inspect
import re
import shlex
import subprocess
from html import unescape
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient
from torch.utils import cpp_extension

import slipway.loader
from cli.main import build_parser
from exporter.options.layout import Layout
from exporter.options.tables import Tables
from exporter.spec import Mode
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dashboard.job.loading import LoadLines, load_lines
from tests.architecture.tree import ROOT
from tests.dashboard import sample

CODE = re.compile(r"<pre[^>]*>(.*?)</pre>", re.DOTALL)


@pytest.fixture
def released(store: MemoryJobStore, tmp_path: Path) -> Job:
    """A job that has published two towers."""
    job = sample.published(tmp_path)
    store.add(job, sample.CONFIG_TEXT)
    return job


def lines_of(job: Job, **changes: object) -> tuple[LoadLines, ...]:
    return load_lines(job.model_copy(update={"spec": job.spec.model_copy(update=changes)}))


def test_the_page_has_the_lines_that_load_each_tower(client: TestClient, released: Job) -> None:
    blocks = [unescape(block) for block in CODE.findall(client.get(f"/jobs/{released.id}").text)]
    wanted = [
        text for lines in load_lines(released) for text in (lines.command, lines.python, lines.cpp) if text
    ]
    assert len(wanted) == 6 and [block for block in blocks if block in wanted] == wanted


def test_the_command_is_one_that_slipway_takes(released: Job) -> None:
    uri = "s3://models/it's $(rm -rf) here"
    job = released.model_copy(update={"manifest_uri": f"{uri}/manifest.json"})
    program, *arguments = shlex.split(load_lines(job)[0].command)
    parsed = build_parser().parse_args(arguments)
    assert isinstance(parsed, argparse.Namespace)
    assert (program, parsed.artifact, parsed.folder) == ("slipway", uri, Path("models", job.id))


@pytest.mark.parametrize(
    "changes", [{}, {"sample_rows": 0}, {"mode": Mode.TWO_STAGE, "tables": Tables(layout="sharded")}]
)
def test_the_lines_of_python_name_what_there_is(released: Job, changes: dict[str, object]) -> None:
    for lines in lines_of(released, **changes):
        tree = ast.parse(lines.python)
        names: dict[str, object] = {}
        for imported in (node for node in tree.body if isinstance(node, ast.ImportFrom)):
            exec(compile(ast.Module([imported], []), "lines", "exec"), names)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {call.func.id: call for call in calls if isinstance(call.func, ast.Name)}
        assert called.keys() - names.keys() == {"tower"}  # which is what `load` returns
        assert ("prove" in called) == (changes.get("sample_rows") != 0)
        for name in called.keys() & names.keys():
            function = names[name]
            assert callable(function)
            keywords = {keyword.arg: keyword for keyword in called[name].keywords if keyword.arg}
            inspect.signature(function).bind(*called[name].args, **keywords)
        inspect.signature(slipway.loader.LoadedTower.__call__).bind("self", *called["tower"].args)
        assert callable(slipway.loader.LoadedTower) and "inputs" in dir(slipway.loader.LoadedTower)


@pytest.mark.slow
def test_the_lines_of_cpp_compile(released: Job, tmp_path: Path) -> None:
    includes = [ROOT / "slipway" / "include", *map(Path, cpp_extension.include_paths())]
    for lines in load_lines(released):
        head, body = lines.cpp.split("\n\n")
        program = tmp_path / "main.cpp"
        program.write_text(
            f"{head}\nint run(const slipway::Tensors& inputs) {{ {body} return outputs.size(); }}"
        )
        flags = [f"-I{each}" for each in includes] + [
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        ]
        built = subprocess.run(
            ["g++", "-std=c++17", "-fsyntax-only", *flags, str(program)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stderr


def test_what_cannot_be_loaded_so_has_no_such_lines(released: Job) -> None:
    for lines in lines_of(released, mode=Mode.TWO_STAGE, layout=Layout.TORCHEASYREC):
        assert (lines.command, lines.python, lines.cpp) == ("", "", "")
        assert "TorchEasyRec's own loader" in lines.remark
    for lines in lines_of(released, target=("sm_90",)):
        assert lines.python and not lines.cpp
    assert load_lines(sample.job(JobState.CANCELLED)) == ()


def test_a_job_that_published_nothing_offers_nothing_to_load(
    client: TestClient, store: MemoryJobStore
) -> None:
    job = sample.failed("it broke")
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}").text
    assert "Load it in a server" not in text and "/files" not in text and "/diff" not in text
