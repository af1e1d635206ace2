"""Pickles that take memory or time out of all proportion while they are read, told without reading them.

Two such things survive an unpickler that admits no code: the memo, for which room is made up to whatever
number the pickle gives an entry, and a tuple of the same tuple twice, again and again, whose hash and text
take twice the time with every step.
"""

import pickletools
from collections.abc import Sequence

MOST_PARTS = 1 << 20  # of a tuple, those of its parts counted each time they stand in it
_FARTHEST = 1 << 20  # memo entries that may be left empty
_MARK = -1  # on the stack, where a collection begins
_JOINED = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET", "REDUCE"}  # what holds its parts for good
_KEPT = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_FETCHED = {"GET", "BINGET", "LONG_BINGET"}


def refuse_bombs(data: bytes) -> None:
    """ValueError for a pickle that is a bomb, or that its own instructions contradict."""
    stack: list[int] = []  # the number of parts of each value
    memo: dict[int, int] = {}
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _KEPT:
            place = len(memo) if argument is None else int(argument)
            if place > len(memo) + _FARTHEST:
                raise ValueError(f"entry {place} of the memo, of which {len(memo)} are in use")
            memo[place] = stack[-1]
        elif opcode.name in _FETCHED:
            stack.append(memo[int(str(argument))])
        else:
            parts = 1 + _taken(opcode, stack)
            if parts > MOST_PARTS:
                raise ValueError(f"a tuple of more than {MOST_PARTS} parts")
            count = parts if opcode.name in _JOINED else 1
            stack += [_MARK if kind is pickletools.markobject else count for kind in opcode.stack_after]


def _taken(opcode: pickletools.OpcodeInfo, stack: list[int]) -> int:
    """Take from the stack what the instruction does; how many parts that was."""
    before: Sequence[object] = opcode.stack_before
    parts = 0
    if pickletools.markobject in before or (opcode.name == "POP" and stack and stack[-1] == _MARK):
        while (part := stack.pop()) != _MARK:
            parts += part
        before = before[: before.index(pickletools.markobject)] if pickletools.markobject in before else ()
    for _ in before:
        parts += max(0, stack.pop())
    return parts if opcode.name in _JOINED else 0
