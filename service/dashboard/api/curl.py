"""A call of the API as a command for a shell, with an example of its body."""

import json
import shlex
from collections.abc import Mapping

from pydantic import JsonValue

from service.dashboard.api.schemas import SCHEMAS, Schema

URL, KEY = "$SLIPWAY_URL", "$SLIPWAY_API_KEY"
_DEEPEST = 6  # types in types; a type may hold itself


def example_of(
    shape: Schema, schemas: Mapping[str, Schema], name: str = "value", depth: int = 0
) -> JsonValue:
    """Return a value of a type: of its fields the required ones, and text that says what belongs there."""
    if shape.ref:
        return example_of(schemas.get(shape.ref.removeprefix(SCHEMAS), Schema()), schemas, name, depth + 1)
    fixed = next((each for each in (shape.const, *shape.enum, shape.default) if each is not None), None)
    if fixed is not None:
        return fixed
    inner = depth < _DEEPEST
    if shape.either and inner:
        return example_of(shape.either[0], schemas, name, depth + 1)
    if shape.type == "array":
        return [example_of(shape.items, schemas, name, depth + 1)] if shape.items and inner else []
    if shape.type == "object" or shape.properties:
        required = {each: shape.properties[each] for each in shape.required if each in shape.properties}
        return {each: example_of(of, schemas, each, depth + 1) for each, of in required.items() if inner}
    return _plain_example(shape, name)


def _plain_example(shape: Schema, name: str) -> JsonValue:
    plain: Mapping[str, JsonValue] = {
        "integer": int(shape.minimum or 1),
        "number": shape.minimum or 1.0,
        "boolean": False,
        "null": None,
    }
    return plain.get(shape.type, f"<{name}>")


def body_text(shape: Schema, schemas: Mapping[str, Schema]) -> str:
    """Return an example of a body as JSON."""
    return json.dumps(example_of(shape, schemas), indent=2, ensure_ascii=False)


def curl_of(method: str, path: str, body: str = "") -> str:
    """Return the command; names in braces stand for what the caller fills in."""
    words = ["curl" if method == "GET" else f"curl -X {method}", f'"{URL}{path}"']
    headers = [f'-H "Authorization: Bearer {KEY}"']
    if body:
        headers += ['-H "Content-Type: application/json"', f"-d {shlex.quote(body)}"]
    return " \\\n  ".join([" ".join(words), *headers])
