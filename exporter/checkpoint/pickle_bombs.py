"""Detect pickles that would take excessive memory or time to read, without reading them.

Two kinds work even with an unpickler that admits no code: memo entries with huge numbers, because the memo is
allocated up to the highest number; and a tuple that holds the same tuple twice, nested many times, because
its hash and text take twice the time with every level.
"""

import pickletools
from collections.abc import Sequence

MOST_PARTS = 1 << 20  # parts of a tuple, where nested parts count as often as they occur
_FARTHEST = 1 << 20  # memo entries that a pickle may leave empty
_MARK = -1  # stack entry at which a collection begins
_IMMUTABLE = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET", "REDUCE"}  # make immutable values
_PUT = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GET = {"GET", "BINGET", "LONG_BINGET"}


def refuse_bombs(data: bytes) -> None:
    """Raise ValueError for a pickle that is a bomb, or whose instructions contradict each other."""
    stack: list[int] = []  # the number of parts of each value
    memo: dict[int, int] = {}
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _PUT:
            place = len(memo) if argument is None else int(argument)
            if place > len(memo) + _FARTHEST:
                raise ValueError(f"entry {place} of the memo, of which {len(memo)} are in use")
            memo[place] = stack[-1]
        elif opcode.name in _GET:
            stack.append(memo[int(str(argument))])
        else:
            parts = 1 + _pop_parts(opcode, stack)
            if parts > MOST_PARTS:
                raise ValueError(f"a tuple of more than {MOST_PARTS} parts")
            count = parts if opcode.name in _IMMUTABLE else 1
            stack += [_MARK if kind is pickletools.markobject else count for kind in opcode.stack_after]


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
