#!/usr/bin/env bash
# Runs all tests of this repository: tests/run.sh [arguments of cargo test].
#
# One profile (dev, which is optimised a little and keeps assertions) for all of them, so that
# everything is compiled once. Mount tests are skipped aloud where FUSE cannot be used, unless
# OFFSETFS_REQUIRE_FUSE=1; tests against Apache Kafka where there is no JDK or its jars cannot be
# fetched, unless OFFSETFS_REQUIRE_KAFKA=1. The jars (54 MB) go to the target directory, once.
set -eu
cd "$(dirname "$0")/.."

# program:package
tools="fusermount3:fuse3 getfattr:attr setfattr:attr jq:jq rsync:rsync rg:ripgrep less:less perl:perl
  zstd:zstd xz:xz-utils xxd:xxd file:file rev:bsdextrautils python3:python3 kcat:kcat
  java:openjdk-17-jre-headless javac:openjdk-17-jdk-headless mvn:maven"
packages=
for tool in $tools; do
  command -v "${tool%:*}" >/dev/null || packages="$packages ${tool#*:}"
done
if [ -n "$packages" ]; then
  echo "tests/run.sh: not installed:$packages" >&2
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q >&2
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $packages >&2
  else
    echo "tests/run.sh: tests that need them say 'skipped'" >&2
  fi
fi
# The jars of Apache Kafka; the tests themselves say what becomes of them without.
if command -v javac >/dev/null && libs=$(tests/kafka/jars.sh); then
  export OFFSETFS_KAFKA_LIBS=$libs
else
  echo "tests/run.sh: no JDK, or no jars of Apache Kafka: tests against it say 'skipped'" >&2
fi

command -v cargo >/dev/null || { echo "tests/run.sh: cargo is not in PATH" >&2; exit 1; }

# Dead mounts that a killed run of ours left in the temporary directory. A living one belongs to a
# run that is still going on, and answers.
temporary=${TMPDIR:-/tmp}
while read -r at; do
  case $at in "$temporary"/offsetfs-test-*) ;; *) continue ;; esac
  if LC_ALL=C stat "$at" 2>&1 | grep -q 'not connected'; then
    echo "tests/run.sh: detaching the dead mount $at" >&2
    umount -l "$at" 2>/dev/null || fusermount3 -uz "$at" || true
  fi
done < <(cut -d ' ' -f 5 /proc/self/mountinfo)

exec cargo test --no-fail-fast "$@"
