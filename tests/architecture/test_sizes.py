"""Files and functions stay small enough to read; past a figure, look for the missing name."""

import ast

from tests.architecture.tree import Function, Module

MAX_FILE_LINES = 400
MAX_TEST_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_IMPORTS = 25

LONG_FILES: dict[str, str] = {}  # path -> why it is one subject all the same
LONG_FUNCTIONS: dict[str, str] = {}  # path:name -> why it reads better whole
MANY_IMPORTS: dict[str, str] = {  # path -> why
    "exporter/pipeline/export.py": "the table of contents names every chapter",
    "exporter/aoti/torch_private.py": "all that is private in torch, and private names lie deep",
}


def test_files_are_short(modules: list[Module]) -> None:
    long = {
        module.path
        for module in modules
        if len(module.text.splitlines()) > (MAX_FILE_LINES if module.is_shipped else MAX_TEST_FILE_LINES)
    }
    assert long == set(LONG_FILES)


def test_functions_are_short(modules: list[Module]) -> None:
    long = {
        f"{module.path}:{function.name}"
        for module in modules
        for function in module.functions()
        if _lines(function) > MAX_FUNCTION_LINES
    }
    assert long == set(LONG_FUNCTIONS)


def test_few_functions_pass_forty_lines(modules: list[Module]) -> None:
    lengths = [_lines(function) for module in modules if module.is_shipped for function in module.functions()]
    assert sum(length > 40 for length in lengths) <= 0.03 * len(lengths)


def test_modules_import_little(modules: list[Module]) -> None:
    greedy = {
        module.path
        for module in modules
        if sum(isinstance(node, ast.Import | ast.ImportFrom) for node in module.tree.body) > MAX_IMPORTS
    }
    assert greedy == set(MANY_IMPORTS)


def _lines(function: Function) -> int:
    """Count a function's lines without the parameters of a Triton kernel, often thirty, one a line."""
    is_kernel = any(ast.unparse(decorator) == "triton.jit" for decorator in function.decorator_list)
    beginning = function.body[0].lineno if is_kernel else function.lineno
    return (function.end_lineno or beginning) - beginning + 1
