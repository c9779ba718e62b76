"""``python -m foretoken``: the program."""

import sys

from foretoken import _native


def main():
    sys.exit(_native.main(["foretoken", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
