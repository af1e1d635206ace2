"""The API's OpenAPI document as a file, and its breaking changes: `python -m service.openapi`.

Without arguments it writes docs/openapi.json, but refuses if a caller of the old version could break; with
`--breaking` it writes in any case, with `--against FILE` it only compares.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.app import create_app
from service.settings import ServiceSettings

DOCUMENT = Path(__file__).parents[1] / "docs" / "openapi.json"

Json = Mapping[str, object]

_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


def current_text() -> str:
    """Return the OpenAPI document of the current code."""
    return json.dumps(create_app(ServiceSettings()).openapi(), indent=1, sort_keys=True) + "\n"


def breaking_changes(old: Json, new: Json) -> list[str]:
    """List the changes from `old` to `new` that can break callers: calls, parameters, fields, values.

    A field that goes or changes its type breaks readers of answers, one that becomes required breaks writers
    of requests; a schema is a request if the body of a call refers to it.
    """
    return [*_calls(_at(old, "paths"), _at(new, "paths")), *_schemas(old, new)]


def _calls(old: Json, new: Json) -> Iterator[str]:
    for path, methods in old.items():
        for method, call in _mapping(methods).items():
            now = _at(_at(new, path), method)
            if not now:
                yield f"{method.upper()} {path} is gone"
                continue
            before, after = _parameters(_mapping(call)), _parameters(now)
            yield from (
                f"{method.upper()} {path}: parameter {name} is gone" for name in before.keys() - after
            )
            for name, required in after.items():
                if required and not before.get(name):
                    yield f"{method.upper()} {path}: parameter {name} is now required"


def _parameters(call: Json) -> dict[str, bool]:
    listed = call.get("parameters", ())
    assert isinstance(listed, list | tuple)
    return {str(each["name"]): bool(each.get("required")) for each in listed}


def _schemas(old: Json, new: Json) -> Iterator[str]:
    after = _at(_at(new, "components"), "schemas")
    request_schemas = _requests(new)
    for name, schema in _at(_at(old, "components"), "schemas").items():
        if name in after:
            yield from _schema(name, _mapping(schema), _at(after, name), is_request=name in request_schemas)


def _requests(document: Json) -> set[str]:
    """Return the schemas that bodies of requests are made of, at any depth."""
    schemas = _at(_at(document, "components"), "schemas")
    paths = [_mapping(path) for path in _at(document, "paths").values()]
    bodies = [_at(_mapping(call), "requestBody") for path in paths for call in path.values()]
    found: set[str] = set()
    waiting = set(_REFERENCE.findall(json.dumps(bodies)))
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= set(_REFERENCE.findall(json.dumps(schemas.get(name, {})))) - found
    return found


def _schema(name: str, old: Json, new: Json, *, is_request: bool) -> Iterator[str]:
    before, after = _at(old, "properties"), _at(new, "properties")
    now_required = _values_of(new, "required") - _values_of(old, "required") if is_request else set()
    yield from (f"{name}.{field} is gone" for field in before.keys() - after.keys())
    yield from (f"{name}.{field} is now required" for field in now_required)
    yield from (
        f"{name} no longer knows {value}" for value in _values_of(old, "enum") - _values_of(new, "enum")
    )
    for field in before.keys() & after.keys():
        was, now = _mapping(before[field]).get("type"), _mapping(after[field]).get("type")
        if was != now:
            yield f"{name}.{field} is {now}, and was {was}"


def _values_of(schema: Json, key: str) -> set[str]:
    values = schema.get(key, ())
    assert isinstance(values, list | tuple)
    return {str(value) for value in values}


def _at(given: Json, key: str) -> Json:
    return _mapping(given.get(key, {}))


def _mapping(given: object) -> Json:
    return given if isinstance(given, Mapping) else {}


def main() -> int:
    """Write or compare the document; return 1 if a change can break callers."""
    parser = argparse.ArgumentParser(prog="python -m service.openapi", description=__doc__)
    parser.add_argument("--breaking", action="store_true", help="write even if callers could break")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="compare with an earlier document, write nothing"
    )
    arguments = parser.parse_args()
    text, earlier = current_text(), arguments.against or DOCUMENT
    broken = breaking_changes(json.loads(earlier.read_text()), json.loads(text)) if earlier.exists() else []
    sys.stdout.write("".join(f"{line}\n" for line in broken))
    if broken and not arguments.breaking:
        return 1
    if arguments.against is None:
        DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
