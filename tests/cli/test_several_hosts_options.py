"""The options of an export on several hosts must agree with each other."""

from pathlib import Path

import pytest

from cli.main import main

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torcheasyrec"
COMMAND = [
    *("export", "--config", str(FIXTURES / "hstu_match" / "pipeline.config")),
    *("--checkpoint", "w.safetensors", "--output", "out"),
]
PLACE = ["--rdzv", "127.0.0.1:29400"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            ["--nodes", "2"],
            "invalid_command",
            "--rdzv is required with --nodes of two or more, and only then",
        ),
        (PLACE, "invalid_command", "--rdzv is required with --nodes of two or more, and only then"),
        (["--nodes", "2", *PLACE, "--rdzv-timeout", "0"], "invalid_command", "above 0"),
        (["--nodes", "2", *PLACE, "--rdzv-timeout", "nan"], "invalid_command", "above 0"),
        (["--nodes", "2", *PLACE, "--rdzv-timeout", "1e99"], "invalid_command", "a day at most"),
        (["--nodes", "2", "--rdzv", ":1"], "invalid_spec", "not HOST:PORT"),
        (["--nodes", "2", *PLACE, "--target", "avx2", "--target", "cpu"], "invalid_spec", "one target"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: list[str], code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, *options]) != 0
    line = capsys.readouterr().err
    assert f"[{code}]" in line and said in line
