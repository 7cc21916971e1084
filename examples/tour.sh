#!/usr/bin/env bash
# The short session of README.md, for real: builds offsetfs, mounts partitions that Apache Kafka
# wrote (tests/fixtures), reads them with ordinary tools, unmounts. Prints what the README shows.
# Works as root and as a plain user, and changes nothing but a temporary directory.
# OFFSETFS=PATH uses that program instead of building one.
set -eu
cd "$(dirname "$0")/.."

missing=
for tool in fusermount3:fuse3 jq:jq getfattr:attr mountpoint:util-linux; do
  command -v "${tool%:*}" >/dev/null || missing="$missing ${tool#*:}"
done
if [ -n "$missing" ]; then
  echo "tour.sh needs these packages:$missing" >&2
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then exit 1; fi
  echo "tour.sh: you are root, so: apt-get install$missing" >&2
  apt-get update -q >&2
  # shellcheck disable=SC2086 # a list of words
  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing >&2
fi
if ! [ -r /dev/fuse ] || ! [ -w /dev/fuse ]; then
  echo "tour.sh needs /dev/fuse, readable and writable for you (modprobe fuse, as root)" >&2
  exit 1
fi

if [ -z "${OFFSETFS:-}" ]; then
  command -v cargo >/dev/null || { echo "tour.sh needs Rust: cargo is not in PATH" >&2; exit 1; }
  cargo build --release --quiet
  OFFSETFS=${CARGO_TARGET_DIR:-target}/release/offsetfs
fi
PATH=$(cd "$(dirname "$OFFSETFS")" && pwd):$PATH
XDG_CACHE_HOME=$(mktemp -d -t offsetfs-tour-XXXXXX)
export XDG_CACHE_HOME

at=
daemon=
tidy_up() {
  cd /
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then kill "$daemon" || true; wait "$daemon" || true; fi
  if [ -n "$at" ]; then
    if grep -qF " $at " /proc/self/mountinfo; then fusermount3 -uz "$at" || umount -l "$at" || true; fi
    [ -s "$at.log" ] && [ "${done:-}" != yes ] && cat "$at.log" >&2
    rm -f "$at.log"; rmdir "$at" 2>/dev/null || true
  fi
  rm -rf "$XDG_CACHE_HOME"
}
trap tidy_up EXIT

# Shows a command as it would be typed, and runs it.
step() {
  printf '$ %s\n' "$1"
  eval "$1"
}

step 'at=$(mktemp -d)'
step 'offsetfs mount tests/fixtures/clean/data "$at" 2>"$at.log" &'
daemon=$!
for _ in $(seq 200); do
  if mountpoint -q "$at" || ! kill -0 "$daemon" 2>/dev/null; then break; fi
  sleep 0.1
done
mountpoint -q "$at" || { echo "tour.sh: the mount did not come up" >&2; exit 1; }
step 'until mountpoint -q "$at"; do sleep 0.1; done; cd "$at"'
step 'ls lz4-0'
step 'cat lz4-0/by-offset/100..103'
step 'cat lz4-0/by-offset/101.json'
step 'cat lz4-0/by-time/2023-11-14T22:13:21Z; echo'
step 'jq -r .key lz4-0/by-offset/-3...jsonl'
step 'grep -c fee lz4-0/by-offset/0..'
step 'stat -c %s lz4-0/by-offset/0..'
step 'getfattr -n user.txn txn-0/by-offset/30'
step 'cat deleted-0/log-start-offset deleted-0/log-end-offset'
step "jq -c '[.log_start, .log_end, .torn_tail, .damage]' deleted-0/report.json"
step 'cd - >/dev/null; offsetfs umount "$at"'
step 'offsetfs cat tests/fixtures/clean/data/lz4-0 -o 100:103'
done=yes
