#!/usr/bin/env python3
# verify.py EVIDENCE FILE...: the leaves hash to the root of each checkpoint, and each line of each FILE is a leaf in its place.
import base64, glob, hashlib, json, os, sys
sha = lambda *parts: hashlib.sha256(b"".join(parts)).digest()
trees = []
for directory in map(os.path.dirname, glob.glob(sys.argv[1] + "/*/checkpoint")):
    origin, size, root = open(directory + "/checkpoint").read().split("\n")[:3]
    leaves = []
    for block in range(0, int(size), 256):
        digits, width = "%012d" % (block // 256), min(256, int(size) - block)
        groups = [digits[i:i + 3] for i in range(0, 12, 3)]
        while groups[0] == "000" and len(groups) > 1: groups.pop(0)
        path = directory + "/tile/entries/" + "/".join(["x" + group for group in groups[:-1]] + groups[-1:])
        bundle = open(path if os.path.isfile(path) else "%s.p/%d" % (path, width), "rb").read()
        leaves += [bundle[i + 2:i + 34] for i in range(0, 34 * width, 34)]
    level = [sha(b"\0", leaf) for leaf in leaves]
    while len(level) > 1:
        level = [sha(b"\1", *level[i:i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    assert base64.b64encode(level[0]).decode() == root, directory + ": the leaves do not hash to the root"
    trees.append((*origin.split("/")[-2:], leaves))
count = 0
for count, line in enumerate((line.rstrip(b"\n") for name in sys.argv[2:] for line in open(name, "rb")), 1):
    entry = json.loads(line)
    indices = [(leaves, entry["seq"] - int(first) + 1) for epoch, first, leaves in trees if epoch == entry["epoch"]]
    assert [leaves[index] for leaves, index in indices if 0 < index < len(leaves)] == [sha(line)], "entry %d is not proved" % entry["seq"]
print("%d lines are as they were logged" % count)
