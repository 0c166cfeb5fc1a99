#!/usr/bin/env python3
"""The seeds of fuzz targets: files of fuzz/corpus/TARGET, named for what they show, and what
fuzzing has found, named by a hash, packed into fuzz/corpus/TARGET.zip.

    fuzz/seeds.py unpack DIRECTORY [TARGET...]    all seeds of each into DIRECTORY/TARGET
    fuzz/seeds.py pack [TARGET...]                what fuzzing found goes into the archive
"""
import os
import re
import sys
import zipfile

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
FOUND = re.compile(r"found-|[0-9a-f]{12,}$")


def archive(target):
    return os.path.join(CORPUS, target + ".zip")


def packed(target):
    """{name: bytes} of the archive."""
    if not os.path.exists(archive(target)):
        return {}
    with zipfile.ZipFile(archive(target)) as file:
        return {name: file.read(name) for name in file.namelist()}


def loose(target):
    """{name: bytes} of the directory."""
    place, out = os.path.join(CORPUS, target), {}
    for name in os.listdir(place) if os.path.isdir(place) else []:
        with open(os.path.join(place, name), "rb") as file:
            out[name] = file.read()
    return out


def seeds(target):
    """{name: bytes}, in the order of the names."""
    return dict(sorted({**packed(target), **loose(target)}.items()))


def targets():
    names = os.listdir(CORPUS) if os.path.isdir(CORPUS) else []
    return sorted({n[:-4] if n.endswith(".zip") else n for n in names})


def unpack(directory, wanted):
    for target in wanted or targets():
        place = os.path.join(directory, target)
        os.makedirs(place, exist_ok=True)
        for name, data in seeds(target).items():
            with open(os.path.join(place, name), "wb") as file:
                file.write(data)


def pack(wanted):
    """The same bytes for the same seeds."""
    for target in wanted or targets():
        found = {n: d for n, d in seeds(target).items() if FOUND.match(n)}
        if found == packed(target):
            continue
        with zipfile.ZipFile(archive(target) + ".new", "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in found.items():
                file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)
        os.replace(archive(target) + ".new", archive(target))
        for name in loose(target):
            if FOUND.match(name):
                os.unlink(os.path.join(CORPUS, target, name))


def main():
    if sys.argv[1:2] == ["unpack"] and len(sys.argv) > 2:
        unpack(sys.argv[2], sys.argv[3:])
    elif sys.argv[1:2] == ["pack"]:
        pack(sys.argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
