"""Runs the command line: ``python -m foretoken``."""

from __future__ import annotations

import sys

from foretoken import _native


def main() -> None:
    sys.exit(_native.main(["foretoken", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
