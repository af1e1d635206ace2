"""Programs load only the modules that they need, each in a fresh interpreter."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("service.app", {"torch", "torchrec", "pyarrow"}),
        ("service.commands.parser", {"torch", "fastapi", "celery", "uvicorn"}),
        ("jobs.model", {"torch", "fastapi", "celery", "redis"}),
        ("worker.app", {"torch", "fastapi"}),
    ],
)
def test_it_imports_without(module: str, absent: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert absent & set(loaded.stdout.split()) == set()
