#!/usr/bin/env python3
"""Cuts the power: what was not synced is lost, wholly or in part. Then the command goes on.

    tests/kills/power.py --cuts 200 --seed 1

A command runs once with a library that records its file operations. A cut is a random place in that record. Bytes that
were written after a file's last sync are lost from a random one on; names that were made, renamed or removed after a
folder's last sync are lost from a random one on (as with a journal) or each by chance (what POSIX promises). The folder
that is left must hold every file as it was committed at some time before, old or new. Going on must give the
uninterrupted result.
"""

import argparse
import random
import shutil
import struct
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True

OPEN, WRITE, RENAME, UNLINK, MKDIR, RMDIR, SYNC, TRUNCATE = range(1, 9)


@dataclass
class Operation:
    what: int
    file: int
    at: int
    a: bytes
    b: bytes

    def counts(self):
        """Is it one that the shim counts? An opening counts if it makes or empties the file."""
        return self.what != OPEN or self.at != 0


def read(log):
    """The operations in a log of the shim."""
    data = Path(log).read_bytes() if Path(log).exists() else b""
    at, found = 0, []
    while at < len(data):
        what, file, offset, a, b = struct.unpack_from("5q", data, at)
        at += 40
        found.append(Operation(what, file, offset, data[at:at + a], data[at + a:at + a + b]))
        at += a + b
    return found


@dataclass
class File:
    """The bytes of a file: what is on the disk, and what was done since."""

    synced: bytes = b""
    since: list = field(default_factory=list)

    def bytes(self, done=None):
        data = bytearray(self.synced)
        for at, written in self.since[:done]:
            if written is None:
                del data[at:]
                continue
            data.extend(b"\0" * (at - len(data)))
            data[at:at + len(written)] = written
        return bytes(data)

    def sync(self):
        self.synced, self.since = self.bytes(), []

    def survived(self, rng):
        """What a cut leaves of it: all, nothing that was not synced, or a part."""
        done = rng.choice([0, len(self.since), rng.randint(0, len(self.since))])
        data = self.bytes(done)
        if done < len(self.since) and (part := self.since[done][1]):
            half = File(data, [(self.since[done][0], part[:rng.randint(0, len(part))])])
            data = half.bytes()
        return data


class Disk:
    """The folder as the operations leave it."""

    def __init__(self):
        self.now = {"": None}  # name -> File, or None for a folder
        self.synced = {"": None}
        self.since = {}  # folder -> [(name, File or None or GONE)]
        self.files = {}  # inode -> File or name of a folder
        self.committed = {}  # name -> set of contents that it had when it got its name

    def name(self, name, value):
        """Makes, replaces or removes a name, which its folder's next sync puts on the disk."""
        self.since.setdefault(parent(name), []).append((name, value))
        change(self.now, name, value)

    def do(self, o):
        a, b = ("", "") if o.what == WRITE else (o.a.decode(), o.b.decode())
        a = "" if a == "." else a
        if o.what == OPEN:
            if a in self.now and self.now[a] is None:
                self.files[o.file] = a
            else:
                if a not in self.now:
                    self.name(a, File())
                self.files[o.file] = self.now[a]
                if o.at & 0o1000:  # O_TRUNC
                    self.now[a].since.append((0, None))
        elif o.what == WRITE:
            self.files[o.file].since.append((o.at, o.a))
        elif o.what == TRUNCATE:
            self.files[o.file].since.append((o.at, None))
        elif o.what == RENAME:
            moved = self.now[a]
            self.committed.setdefault(b, []).append(moved.bytes())
            self.name(b, moved)
            self.name(a, GONE)
        elif o.what in (UNLINK, RMDIR):
            self.name(a, GONE)
        elif o.what == MKDIR:
            self.name(a, None)
        elif o.what == SYNC:
            what = self.files[o.file]
            if isinstance(what, File):
                what.sync()
            else:
                for name, value in self.since.pop(what, []):
                    change(self.synced, name, value)

    def cut(self, rng):
        """What is left of the names: name -> bytes, or None for a folder."""
        left = dict(self.synced)
        journal = rng.random() < 0.5
        for changes in self.since.values():
            upto = rng.randint(0, len(changes))
            for i, (name, value) in enumerate(changes):
                if i < upto if journal else rng.random() < 0.5:
                    change(left, name, value)
        found = {}
        for name, value in sorted(left.items()):
            if name and found.get(parent(name), b"") is not None:
                continue  # its folder is lost
            found[name] = None if value is None else value.survived(rng)
        return found


GONE = object()


def parent(name):
    return name.rpartition("/")[0]


def change(names, name, value):
    if value is GONE:
        names.pop(name, None)
    else:
        names[name] = value


def put(state, folder):
    folder.mkdir(parents=True)
    for name, data in state.items():
        if name and data is None:
            (folder / name).mkdir(exist_ok=True)
        elif name:
            (folder / name).write_bytes(data)


def cut_once(kind, operations, out, rng, expected, from_folder=None):
    """Cuts the power at a random operation, checks the files that are left, and goes on."""
    from kills import check
    from kinds import Failure
    disk = Disk()
    for path in sorted(from_folder.rglob("*")) if from_folder else []:
        disk.now[str(path.relative_to(from_folder))] = None if path.is_dir() else File(path.read_bytes())
    disk.synced = dict(disk.now)
    committed = {name: [file.synced] for name, file in disk.now.items() if file}
    at = rng.randint(0, len(operations))
    for operation in operations[:at]:
        disk.do(operation)
    for name, contents in disk.committed.items():
        committed.setdefault(name, []).extend(contents)
    state = disk.cut(rng)
    put(state, kind.place / out)
    try:
        for name, data in state.items():
            if data is None or name.endswith((".partial", ".lock", ".tape", ".obs")):
                continue
            if data not in committed.get(name, []):
                raise Failure(f"{name} is neither old nor new: {len(data)} bytes")
        kind.go_on(out)
        check(kind, out, expected)
    except Failure as failure:
        kept = Path(tempfile.mkdtemp(prefix="foretoken-cut-"))
        put(state, kept / out)
        raise Failure(f"{kind.name}, power cut after operation {at} of {len(operations)} (kept in {kept}): {failure}") from None
    shutil.rmtree(kind.place / out)


def cuts(make, program, place, library, count, rng):
    """Cuts the power `count` times in one kind of command. Returns the failures, and the number of operations."""
    from kinds import Failure
    kind = make(program, place)
    failures = []
    try:
        kind.uninterrupted("whole")
        expected = kind.result("whole")
        kind.begin("logged")
        before = None
        if (kind.place / "logged").exists():
            before = kind.place / "before"
            shutil.copytree(kind.place / "logged", before)
        log = kind.place / "operations"
        env = {"LD_PRELOAD": str(library), "SHIM_LOG": str(log), "SHIM_ROOT": str(kind.place / "logged")}
        for args in kind.commands("logged"):
            kind.whole(args, env=env)
        # The folder itself is there.
        operations = [o for o in read(log) if not (o.what == MKDIR and o.a == b".")]
        for n in range(count):
            try:
                cut_once(kind, operations, f"cut{n}", rng, expected, before)
            except Failure as failure:
                failures.append(str(failure))
                print(f"FAILED {failure}", flush=True)
    finally:
        kind.close()
    return failures, len(operations)


def main():
    from kills import shim
    from kinds import KINDS, REPOSITORY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=REPOSITORY / "target/release/foretoken")
    parser.add_argument("--cuts", type=int, default=200, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="kinds, comma-separated")
    args = parser.parse_args()
    kinds = [k for k in KINDS if k.name in args.only.split(",")] if args.only else [k for k in KINDS if k.exact]
    failed = total = 0
    with tempfile.TemporaryDirectory(prefix="foretoken-power-") as place:
        library = shim(place)
        for i, make in enumerate(kinds):
            count = args.cuts // len(kinds) + (i < args.cuts % len(kinds))
            rng = random.Random(f"{args.seed} {make.name}")
            failures, operations = cuts(make, args.program.resolve(), Path(place) / make.__name__, library, count, rng)
            failed, total = failed + len(failures), total + count
            print(f"{make.name:<16} {count:>4} power cuts among {operations} file operations: {len(failures)} failed", flush=True)
    print(f"{total} power cuts, seed {args.seed}: {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
