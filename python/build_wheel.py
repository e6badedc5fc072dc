#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the wheel: the package, and the shared libraries of a build, in one zip.

    python3 build_wheel.py BUILD FOLDER      what `make wheel` runs
    pip wheel python/                        the same, by PEP 517, of build/release

The libraries need nothing but libc, so the wheel holds for every Python 3. With
the extension (fast.c; not packed by a Python that could not load it) it holds
for 3.11, whose stable ABI that has, and later. Its platform is the machine's;
the libc it needs is that of the build. The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
LIBRARIES = ("libsolccl.so", "libsolccl-nccl.so")
EXTENSION = "_fast.abi3.so"


def version() -> str:
    """As the public header has it."""
    header = (TOP / "include/solccl/solccl.h").read_text()
    return ".".join(
        re.search(rf"#define SOL_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH")
    )


def contents(build: Path) -> dict[str, bytes]:
    """Every file of the wheel but RECORD, by its name there."""
    # (Without the GIL a Python has no stable ABI.)
    extension = (
        (build / EXTENSION).exists() and sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
    )
    tag = "cp311-abi3-" if extension else "py3-none-"
    tag += sysconfig.get_platform().replace("-", "_").replace(".", "_")
    info = f"solccl-{version()}.dist-info"
    files = {
        path.relative_to(HERE).as_posix(): path.read_bytes()
        for path in sorted((HERE / "solccl").rglob("*"))
        if path.suffix in (".py", ".typed")
    }
    for name in (*LIBRARIES, *([EXTENSION] if extension else [])):
        if (build / name).exists():
            files[f"solccl/lib/{name}"] = (build / name).read_bytes()
    if "solccl/lib/libsolccl.so" not in files:
        sys.exit(f"there is no libsolccl.so in {build}: run make first")
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: solccl\nVersion: {version()}\n"
        "Summary: Collectives at the hardware's speed of light\nLicense: Apache-2.0\n"
        "Requires-Python: >=3.9\nProvides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\n"
    ).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: solccl\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/LICENSE"] = (TOP / "LICENSE").read_bytes()
    return files


def pack(build: Path, folder: Path) -> str:
    """Writes the wheel into `folder`; its file name."""
    files = contents(build)
    info = f"solccl-{version()}.dist-info"
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    tag = re.search(r"Tag: (\S+)", files[f"{info}/WHEEL"].decode()).group(1)
    wheel = f"solccl-{version()}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


# What pip calls (PEP 517).
def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    return []


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    return pack(TOP / "build/release", Path(wheel_directory))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(Path(sys.argv[2]) / pack(Path(sys.argv[1]), Path(sys.argv[2])))
