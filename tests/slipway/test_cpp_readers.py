"""What the C++ loader reads by itself: JSON as Python reads it, digests as hashlib computes them."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"),
]


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built so that it ends at any access out of bounds and any undefined operation."""
    program = tmp_path_factory.mktemp("readers") / "readers"
    warnings = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror")
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    source = ROOT / "tests" / "slipway" / "readers.cpp"
    say = [sys.executable, "-m", "slipway.loader", "--include"]
    headers = subprocess.run(say, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    command = ["g++", *warnings, *checks, "-I", headers, str(source)]
    built = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program


def read(readers: Path, what: str, data: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "file"
    file.write_bytes(data)
    return subprocess.run([str(readers), what, str(file)], capture_output=True, text=True, check=False)


def parsed(readers: Path, text: str, folder: Path) -> object:
    """The value as C++ reads it; it prints each byte of a text as if it were a letter."""
    ran = read(readers, "json", text.encode(), folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return decoded(json.loads(ran.stdout))


def decoded(value: object) -> object:
    if isinstance(value, str):
        return value.encode("latin-1").decode()
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if isinstance(value, dict):
        return {decoded(key): decoded(each) for key, each in value.items()}
    return value


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 100_003])
def test_digests_are_hashlibs(readers: Path, size: int, tmp_path: Path) -> None:
    data = random.Random(size).randbytes(size)
    expected = hashlib.sha256(data).hexdigest()
    assert read(readers, "sha256", data, tmp_path).stdout == f"{expected} {expected}"


@pytest.mark.parametrize(
    "value",
    [
        {"version": 1, "towers": [{"name": "user", "dims": [], "high": None, "ok": True}], "e": {}},
        [0, -1, 2**63 - 1, -(2**63), 0.1, -2.5e-300, 1e5],
        ["", '"\\/\b\f\n\r\t', "é 中 😀 \x7f", "\u2028"],
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_value_is_read_as_python_reads_it(
    readers: Path, value: object, indent: int | None, ascii_only: bool, tmp_path: Path
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parsed(readers, text, tmp_path) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no value at byte 0"),
        ("[1,]", "no value at byte 3"),
        ("[1", "no ] at byte 2"),
        ('{"a":1,"a":2}', 'a second "a"'),
        ('{"a" 1}', "no : at byte 5"),
        ("{1:2}", 'no " at byte 1'),
        ('"abc', "an open text"),
        ('"a\nb"', "an open text"),
        ('"\\x"', "an unknown escape"),
        ('"\\u12', "no four hexadecimal digits"),
        ('"\\ud83d"', "no \\u at byte 7"),
        ('"\\ude00"', "half a pair"),
        ("-", "no number that fits"),
        ("1e999", "no number that fits"),
        ("nul", "no value"),
        ("1 2", "more text behind its end"),
        ("[" * 100, "too many levels"),
    ],
)
def test_text_that_is_no_json_is_refused(readers: Path, text: str, reason: str, tmp_path: Path) -> None:
    ran = read(readers, "json", text.encode(), tmp_path)
    assert ran.returncode == 1 and ran.stderr == ""
    assert ran.stdout.startswith("text is no JSON: ") and reason in ran.stdout


def test_no_cut_or_changed_text_crashes(readers: Path, tmp_path: Path) -> None:
    text = json.dumps({"a": [1, 2.5, "é\n", None, {"b": True}], "c": "😀"}).encode()
    drawn = random.Random(7)
    for at in range(len(text)):
        changed = bytearray(text)
        changed[at] = drawn.randrange(256)
        for damaged in (text[:at], bytes(changed)):
            ran = read(readers, "json", damaged, tmp_path)
            assert ran.returncode in (0, 1) and ran.stderr == "", damaged
