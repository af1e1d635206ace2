"""A library in the place of a GPU's driver: it has every name that CUDA's header declares, and no device.

The compiler links packages against it, and the loader of the operating system finds in it what they need. A
package that needs a function which is neither torch's nor CUDA's cannot be loaded with it.
"""

import re
import subprocess
from pathlib import Path

_DECLARED = re.compile(r"\b(cu[A-Z]\w*)\s*\(")
_RENAMED = re.compile(r"#define\s+cu[A-Z]\w*\s+(?:__CUDA_API_PT(?:D)?S?Z?\()?(cu[A-Z]\w*)")
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def write_driver(headers: Path, folder: Path) -> Path:
    """Compile it into `folder`, under the name it is linked by and the one it is loaded by."""
    text = (headers / "cuda.h").read_text()
    names = sorted({*_DECLARED.findall(text), *_RENAMED.findall(text)})
    source = folder / "driver.c"
    source.write_text("".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in names))
    library = folder / "libcuda.so.1"
    flags = ("-w", "-shared", "-fPIC", "-fno-builtin", "-Wl,-soname,libcuda.so.1")
    subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True)
    (folder / "libcuda.so").symlink_to(library.name)
    return folder
