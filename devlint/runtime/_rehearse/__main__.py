"""``python -m devlint.runtime._rehearse``: the same as ``devlint rehearse``."""

from __future__ import annotations

import sys

from devlint.runtime._rehearse.cli import main

sys.exit(main())
