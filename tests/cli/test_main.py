"""The command line: examples, exit codes, and one readable line per error."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main
from processes.settings import inherited_environment
from tests.signals import HEARS_HANGUP

CONFIG = Path(__file__).parents[1] / "fixtures" / "torcheasyrec" / "hstu_match" / "pipeline.config"
COMMANDS = [
    *("plan", "export", "predict", "inspect", "submit", "watch", "logs", "list", "cancel", "retry", "delete"),
    *("download", "bundle", "models", "promote", "roll-back", "workers", "show"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"example: slipway {command}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["no-such-command"], ["inspect"], ["predict", "--tower", "x"]])
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("slipway: error [invalid_command]: ") and said.count("\n") == 1


@pytest.mark.parametrize("command", ["triggers", "subscriptions", "deliveries"])
def test_a_group_of_commands_lists_them(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "show" in capsys.readouterr().out


def test_the_bare_command_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr()
    assert "usage: slipway" in shown.out and "roll-back" in shown.out and not shown.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["submt"], "did you mean submit?"),
        (["export", "--chekpoint", "x"], "did you mean --checkpoint?"),
        (["list", "--state", "queud"], "did you mean queued?"),
        (["triggers", "tets"], "did you mean test?"),
        (["export", "--nothing-like-it"], "see slipway export --help"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"; {meant}")


def test_all_missing_options_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit"]) == 1
    assert "missing: --config, --checkpoint, --output" in capsys.readouterr().err
    assert main(["submit", "--config", str(CONFIG), "--output", "out"]) == 1
    assert "missing: --checkpoint" in capsys.readouterr().err


def test_a_wrong_command_line_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--json", "--nonsense", "x"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "invalid_command"


@pytest.mark.parametrize(("options", "shown"), [([], False), (["--traceback"], True)])
def test_an_unforeseen_error_is_a_line_and_its_traceback_only_on_demand(
    options: list[str],
    shown: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_down(uri: str) -> None:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr("cli.inspect.read_manifest", break_down)
    assert main([*options, "inspect", "x"]) == 1
    said = capsys.readouterr().err
    assert "slipway: error [internal_error]: ZeroDivisionError: nobody thought of this" in said
    assert ("Traceback" in said) is shown


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    plan = f"{sys.executable} -m cli.main plan --config {CONFIG} --json"
    piped = subprocess.run(["bash", "-c", f"{plan} | true"], capture_output=True, text=True, check=True)
    assert piped.stderr == ""


def test_a_terminal_that_knows_few_characters_gets_the_others_by_number() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "cli.main", "plan", "--config", str(CONFIG), "--tower", "item"],
        env=inherited_environment({"PYTHONIOENCODING": "ascii"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2,000 \\xd7 16" in shown.stdout


@pytest.mark.parametrize("command", [("export", "--bundles"), ("check", "--shrink")])
def test_where_findings_cannot_be_kept_is_told_before_anything_runs(
    command: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    model = ["--config", str(CONFIG), "--checkpoint", "/x", "--item-input", "/x", "--tower", "item"]
    output = ["--output", str(tmp_path / "out")] if "export" in command else []
    assert main([*command, str(tmp_path / "file"), *model, *output]) == 1
    assert "error [storage_error]: nothing can be written to" in capsys.readouterr().err


def test_an_interrupt_while_the_program_is_loaded_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("print('loading', flush=True); import time; time.sleep(60)")
    with subprocess.Popen(
        [sys.executable, "-c", "from cli.start import main; main()"],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == "loading\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate()[1] == ""
    assert program.returncode == -signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_as_an_interrupt_does(number: signal.Signals, tmp_path: Path) -> None:
    program = (
        "import os, sys, tempfile, cli.main, cli.inspect as inspect\n"
        "def run(uri):\n"
        f"    with tempfile.TemporaryDirectory(dir=sys.argv[1]): os.kill(os.getpid(), {int(number)})\n"
        "inspect.read_manifest = run\n"
        "sys.exit(cli.main.main(['inspect', 'x']))"
    )
    command = [*HEARS_HANGUP, sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, check=False)
    assert (ended.returncode, list(tmp_path.iterdir())) == (130, [])


@pytest.mark.parametrize(("given", "kept"), [("", "1"), ("export PYTORCH_NVML_BASED_CUDA_CHECK=0; ", "0")])
def test_asking_whether_there_is_a_gpu_starts_no_driver(given: str, kept: str) -> None:
    program = "import os, cli.main as c; c.main(['x']); print(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])"
    command = f'unset PYTORCH_NVML_BASED_CUDA_CHECK; {given}{sys.executable} -c "{program}"'
    asked = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == kept


def test_an_error_is_one_line_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "no/such/artifact"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("slipway: error [invalid_artifact]: no/such/artifact is not an artifact")
    assert said.count("\n") == 1


def test_an_error_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "no/such/artifact", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "invalid_artifact"


def test_a_missing_config_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["--config", "/no/pipeline.config", "--checkpoint", "c", "--output", "o"]
    assert main(["export", *paths]) == 1
    assert "error [source_not_found]: " in capsys.readouterr().err


def test_a_service_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--url", "http://127.0.0.1:9"]) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err
