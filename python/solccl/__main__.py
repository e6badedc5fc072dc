# SPDX-License-Identifier: Apache-2.0
"""python3 -m solccl [info | nccl]: what this machine offers, or where the library is that stands in
front of NCCL:

    LD_PRELOAD=$(python3 -m solccl nccl) torchrun ...
"""

import signal
import sys
from pathlib import Path

from . import machine_info, version

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # (a reader like head may leave: no traceback)
what = sys.argv[1] if len(sys.argv) > 1 else "info"
if what == "nccl":
    library = Path(__file__).with_name("lib") / "libsolccl-nccl.so"
    if not library.exists():
        sys.exit("this package was built without libsolccl-nccl.so")
    print(library)
elif what == "info":
    print(f"solccl {version()}")
    for key, value in machine_info().items():
        print(f"{key}: {value}")
else:
    sys.exit(__doc__)
