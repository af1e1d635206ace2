"""Detect pickles that would take excessive memory or time to read, without reading them.

Three kinds work even with an unpickler that admits no code: objects of one byte each, which take a hundred
in memory; memo entries with huge numbers, because the memo is allocated up to the highest number; and a tuple
that holds the same tuple twice, nested many times, because its hash and text take twice the time with every
level.
"""

import pickletools
from collections.abc import Sequence

# Parts of a tuple, where nested parts count as often as they occur: its hash takes a C stack frame for each.
MOST_PARTS = 1 << 14
MOST_INSTRUCTIONS = 20 << 20  # a chunk of a distributed checkpoint takes some 70
MOST_OBJECTS = 10 << 20  # a chunk takes up to 34; each takes up to 100 bytes
_FARTHEST = 1 << 20  # memo entries that a pickle may leave empty
_MARK = -1  # stack entry at which a collection begins
_SHARED = {"NONE", "NEWTRUE", "NEWFALSE", "BININT1", "EMPTY_TUPLE"}  # push what Python has already
_LARGE = dict.fromkeys(("EMPTY_SET", "FROZENSET", "EMPTY_DICT", "DICT"), 3)  # objects that each counts as
_FILL = {"MARK", "BUILD", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "POP", "POP_MARK", "DUP"}
_IMMUTABLE = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET", "REDUCE"}  # make immutable values
_PUT = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GET = {"GET", "BINGET", "LONG_BINGET"}
_LINES = {"GLOBAL": 2, "INST": 2}  # of an argument in text; of all others one
_SIZES = {  # bytes that announce the size of an argument
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
# Opcodes that only push one value, with the bytes of their arguments and the objects they make.
_PUSHES = {
    code: (
        opcode.arg.n if opcode.arg else 0,
        _LARGE.get(opcode.name, int(opcode.name not in _SHARED)),
    )
    for code, opcode in _OPCODES.items()
    if not opcode.stack_before
    and len(opcode.stack_after) == 1
    and opcode.stack_after[0] is not pickletools.markobject
    and opcode.name not in _GET
    and (opcode.arg is None or opcode.arg.n >= 0)
}


class TooManyObjects(ValueError):
    """A pickle has more instructions, or makes more objects, than are read."""


def refuse_bombs(data: bytes) -> None:
    """Raise ValueError for a pickle that is a bomb, or whose instructions contradict each other."""
    stack: list[int] = []  # the number of parts of each value
    memo: dict[int, int] = {}
    at, objects = 0, 0
    for _ in range(MOST_INSTRUCTIONS):
        code = data[at]
        at += 1
        if (push := _PUSHES.get(code)) is not None:
            stack.append(1)
            at, objects = at + push[0], objects + push[1]
            continue
        if objects > MOST_OBJECTS:
            break
        opcode = _OPCODES[code]
        begin, at = at, _end_of_argument(opcode, data, at)
        if opcode.name in _PUT:
            place = len(memo) if opcode.arg is None else int(_number(opcode, data[begin:at]))
            if place > len(memo) + _FARTHEST:
                raise ValueError(f"entry {place} of the memo, of which {len(memo)} are in use")
            memo[place] = stack[-1]
        elif opcode.name in _GET:
            stack.append(memo[_number(opcode, data[begin:at])])
        elif opcode.name == "STOP":
            return
        else:
            parts = 1 + _pop_parts(opcode, stack)
            if parts > MOST_PARTS:
                raise ValueError(f"a tuple of more than {MOST_PARTS} parts")
            count = parts if opcode.name in _IMMUTABLE else 1
            objects += _LARGE.get(opcode.name, int(opcode.name not in _FILL))
            stack += [_MARK if kind is pickletools.markobject else count for kind in opcode.stack_after]
    raise TooManyObjects(f"it has more than {MOST_INSTRUCTIONS:,} instructions or {MOST_OBJECTS:,} objects")


def _end_of_argument(opcode: pickletools.OpcodeInfo, data: bytes, at: int) -> int:
    """Return the position behind an instruction's argument, which begins at `at`."""
    if opcode.arg is None:
        return at
    if opcode.arg.n >= 0:
        return at + opcode.arg.n
    if opcode.arg.n == pickletools.UP_TO_NEWLINE:
        for _ in range(_LINES.get(opcode.name, 1)):
            at = data.index(b"\n", at) + 1
        return at
    announced = _SIZES[opcode.arg.n]
    size = int.from_bytes(data[at : at + announced], "little")
    if size > len(data) - at:
        raise ValueError(f"{opcode.name} of {size} bytes, which are not there")
    return at + announced + size


def _number(opcode: pickletools.OpcodeInfo, argument: bytes) -> int:
    """Return the number of a memo entry."""
    text = opcode.arg is not None and opcode.arg.n == pickletools.UP_TO_NEWLINE
    return int(argument) if text else int.from_bytes(argument, "little")


def _pop_parts(opcode: pickletools.OpcodeInfo, stack: list[int]) -> int:
    """Pop the operands of an instruction; return the number of parts of the immutable value it makes."""
    before: Sequence[object] = opcode.stack_before
    parts = 0
    if pickletools.markobject in before or (opcode.name == "POP" and stack and stack[-1] == _MARK):
        while (part := stack.pop()) != _MARK:
            parts += part
        before = before[: before.index(pickletools.markobject)] if pickletools.markobject in before else ()
    for _ in before:
        parts += max(0, stack.pop())
    return parts if opcode.name in _IMMUTABLE else 0
