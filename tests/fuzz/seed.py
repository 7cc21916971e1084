#!/usr/bin/env python3
"""seed.py: makes the corpus that fuzzing begins with from the fixtures. What is there stays."""

import pathlib
import struct

here = pathlib.Path(__file__).parent
fixtures = here.parent / "fixtures"
MOST_BYTES = 4096  # of a seed


def put(kind, name, data):
    target = here / "corpus" / kind / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def batches(data):
    at = 0
    while at + 12 <= len(data):
        size = 12 + struct.unpack(">i", data[at + 8 : at + 12])[0]
        if size <= 12 or at + size > len(data):
            return
        yield data[at : at + size]
        at += size


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def batch_of(deltas):
    """A right batch of magic 2 but for the order of its records, which no checksum vouches for."""
    records = b"".join(struct.pack("9b", 16, 0, 0, 2 * delta, 2, 97, 2, 118, 0) for delta in deltas)
    head = struct.pack(">hiqqqhii", 0, max(deltas), 0, 0, -1, -1, -1, len(deltas))
    crc = struct.pack(">I", crc32c(head + records))
    return struct.pack(">qiib", 0, 49 + len(records), 0, 2) + crc + head + records


for set_name in ("clean", "legacy", "open-txn", "torn"):
    for partition in sorted((fixtures / set_name / "data").iterdir()):
        if not partition.is_dir():
            continue
        name = f"{set_name}-{partition.name}"
        for log in sorted(partition.glob("*.log"))[:1]:
            data = log.read_bytes()
            short = b""
            for batch in batches(data):
                if len(short) + len(batch) <= MOST_BYTES:
                    short += batch
            if short:
                put("partition", name, b"\x03" + short)
                first = next(batches(short))
                put("batch", name, first)
                if len(first) > 61 and first[16] == 2 and first[22] & 7:
                    put("codec", name, bytes([first[22] & 7]) + first[61:])
for path in sorted((fixtures / "clean" / "data").rglob("*")):
    small = path.is_file() and 0 < path.stat().st_size <= MOST_BYTES // 4
    if small and path.suffix in ("", ".snapshot", ".txnindex", ".index", ".timeindex", ".metadata"):
        if path.parent.name in ("data", "txn-0", "epochs-0"):
            put("files", f"{path.parent.name}-{path.name}", path.read_bytes())
for deltas in ((0, 2, 1), (1, 1, 2)):
    put("batch", "out-of-order-" + "".join(map(str, deltas)), batch_of(deltas))
for number, name in enumerate(
    ["680", "680.json", "680..700.tsv", "-5..", "..7.jsonl", "2026-01-02T03:04:05.678Z", "1700000000000..",
     "t-0", "t-0.0123456789abcdef0123456789abcdef-delete", "00000000000000000680.timeindex.swap",
     "segment.bytes=1000\nretention.ms=\n"]
):
    put("names", str(number), name.encode())
for number, text in enumerate([b"one\ntwo\n\nlast", b"a\0\0b", b"k\tv\n\\N\tx\\ty\n", b'{"value":"v","key":null}\n']):
    put("append", str(number), bytes([number, 3]) + text)
raw = (here / "corpus" / "batch" / "clean-plain-0").read_bytes()
put("append", "raw", b"\x04\x20" + raw)
