"""Modules that must run without torch are imported without it, each in a fresh interpreter."""

import subprocess
import sys

import pytest

TORCH_FREE = [
    "cli.main",
    "exporter.config.parse",
    "exporter.dims.plan",
    "exporter.errors",
    "exporter.manifest",
    "exporter.outcome",
    "exporter.towers.plan",
    "exporter.spec",
    "exporter.stages",
    "jobs.model",
    "jobs.stores.job_store",
    "launcher.__main__",
    "service.app",
    "slipway.client",
    "worker.app",
    "worker.tasks",
]


@pytest.mark.parametrize("module", TORCH_FREE)
def test_it_imports_without_torch(module: str) -> None:
    program = f"import sys, {module}; print(*{{'torch', 'torchrec', 'fbgemm_gpu'}} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_what_runs_packages_imports_no_compiler() -> None:
    compiler = "{'torch._inductor', 'torch._dynamo'}"
    program = f"import sys, exporter.verify.reload; print(*{compiler} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


@pytest.mark.parametrize("module", ["slipway", "slipway.families"])
def test_the_library_imports_nothing_by_itself(module: str) -> None:
    program = f"import sys; before = {{*sys.modules}}; import {module}; print(*{{*sys.modules}} - before)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in loaded.stdout.split()} <= {"slipway", *sys.stdlib_module_names}


def test_the_client_needs_httpx_and_nothing_of_the_programs() -> None:
    program = "import sys, slipway.client; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"pydantic", "exporter", "service", "jobs", "torch"}.isdisjoint(loaded.stdout.split())


@pytest.mark.parametrize("module", ["service.app", "jobs.control.control"])
def test_the_front_end_reads_no_rows(module: str) -> None:
    program = f"import sys, {module}; print(*{{'pyarrow', 'numpy', 'safetensors'}} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
