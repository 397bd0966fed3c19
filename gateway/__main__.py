"""`python -m gateway` is `crayfish`."""

from __future__ import annotations

import sys

from gateway.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
