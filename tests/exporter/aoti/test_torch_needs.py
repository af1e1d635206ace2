"""What Slipway needs of torch: the table is complete, and what a torch lacks of it is named."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.aoti.probe import check, start
from exporter.aoti.probe.check import find_missing
from exporter.aoti.probe.needs import NEEDS, home_of
from exporter.errors import TorchUnsupported
from exporter.torch_releases import DEFAULT, SUPPORTED, installed_release, release_of

AOTI = Path(check.__file__).parents[1]
USERS = {user: AOTI / f"{user.replace('.', '/')}.py" for user in NEEDS}
PRIVATE = (
    "torch._",
    "torch.export._",
    "torch.export.pt2_archive",
    "torch.fx.experimental._",
    "torch.utils._",
)
UNLISTED = {"torch._ops", "torch.utils._python_dispatch"}  # not banned either: pyproject.toml


def uses(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each private module of torch that a file names, with the name that it imports from there."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PRIVATE):
            yield from ((str(node.module), each.name) for each in node.names)
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.startswith(PRIVATE))


def is_listed(user: str, module: str, name: str) -> bool:
    """Return whether the table has the name, or a module whose names are used through it."""
    listed = {each: names for key, names in NEEDS[user].items() for each in key.split(" | ")}
    in_module = {re.split(r"[.(]", each)[0] for each in listed.get(module, "").split()}
    return f"{module}.{name}" in listed or name in in_module or (not name and module in listed)


@pytest.mark.parametrize("user", NEEDS)
def test_every_private_name_that_a_module_imports_is_in_the_table(user: str) -> None:
    lacking = [(module, name) for module, name in uses(USERS[user]) if not is_listed(user, module, name)]
    assert lacking == []


def test_every_module_that_uses_private_names_has_its_part_of_the_table() -> None:
    others = {
        "torch._ops",
        "torch.utils._python_dispatch",
        "torch.utils._pytree",
    }  # not banned: pyproject.toml
    files = {file for file in AOTI.rglob("*.py") if any(module not in others for module, _ in uses(file))}
    assert files <= set(USERS.values())


def test_the_installed_torch_lacks_nothing() -> None:
    assert find_missing() == ()


def test_what_is_missing_is_named_with_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        NEEDS,
        "torch_private",
        {
            "torch._gone": "anything",
            "torch.fx.experimental._config": "backed_size_oblivious no_such_option",
            "torch.fx.proxy": "TracerBase.no_such_method TracerBase.create_node(self,no_such_parameter)",
        },
    )
    assert [each for each in find_missing() if each.endswith("(for torch_private)")] == [
        "torch._gone.anything (for torch_private)",
        "torch.fx.experimental._config.no_such_option (for torch_private)",
        "torch.fx.proxy.TracerBase.no_such_method (for torch_private)",
        "parameter no_such_parameter of torch.fx.proxy.TracerBase.create_node (for torch_private)",
    ]


def test_a_name_that_moved_is_found_where_it_is_now() -> None:
    home = home_of("torch._gone | torch.fx.proxy | torch.fx", "TracerBase")
    assert home is not None and home.__name__ == "torch.fx.proxy"
    assert home_of("torch._gone", "TracerBase") is None


def test_a_supported_release_costs_no_process_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert installed_release() in SUPPORTED
    start.require_usable_torch()


@pytest.mark.slow  # imports torch in a process of its own
def test_another_release_is_asked_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(start, "installed_release", lambda: "9.9")
    start.require_usable_torch()
    (tmp_path / "fbgemm_gpu.py").write_text('raise OSError("undefined symbol: of_another_torch")\n')
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{AOTI.parents[1]}")
    with pytest.raises(TorchUnsupported, match="operators of fbgemm.*undefined symbol: of_another_torch"):
        start.require_usable_torch()


def test_a_version_belongs_to_a_release() -> None:
    versions = ("2.13.0+cpu", "2.13.1", "2.14.0.dev20260801+cu130", "2.15", "unknown")
    assert [release_of(each) for each in versions] == ["2.13", "2.13", "2.14", "2.15", None]


def test_the_default_release_is_a_supported_one() -> None:
    assert DEFAULT in SUPPORTED
