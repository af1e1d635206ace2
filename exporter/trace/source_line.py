"""Find the line of a model's code that a graph node was traced from."""

from torch.fx import Node


def source_line_of(node: Node) -> str:
    """Return the innermost line outside of torch that the node was traced from, as "models/stu.py:56"."""
    lines = (node.stack_trace or "").splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith('File "')]
    outside = [frame for frame in frames if "/torch/" not in frame]
    if not outside:
        return ""
    file, line = outside[-1].removeprefix('File "').split('", line ')
    parts = file.split("/")
    shown = parts[parts.index("exporter") :] if "exporter" in parts else parts[-2:]
    return f"{'/'.join(shown)}:{line.split(',')[0]}"
