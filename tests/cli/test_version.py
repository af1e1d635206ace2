"""`slipway --version` shows what packages depend on, and refuses a torch that Slipway cannot use."""

import pytest

from cli import main as cli
from cli.main import main
from exporter.errors import TorchUnsupported
from exporter.version import __version__


def test_the_versions_that_packages_depend_on_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    first, versions = capsys.readouterr().out.splitlines()
    assert (ended.value.code, first) == (0, f"slipway {__version__}")
    assert [each.split()[0] for each in versions.split(", ")] == [
        "python",
        "torch",
        "torchrec",
        "fbgemm-gpu-cpu",
        "triton",
    ]


def test_a_torch_that_cannot_be_used_is_refused_with_its_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise TorchUnsupported("torch 9.9 lacks what Slipway needs: everything")

    monkeypatch.setattr(cli, "require_usable_torch", refuse)
    assert main(["--version"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"slipway {__version__}\n")
    assert "error [torch_unsupported]: torch 9.9 lacks what Slipway needs" in shown.err
