#!/bin/sh
# install.sh [--uninstall | PROGRAM]: installs offsetfs (target/release/offsetfs unless PROGRAM names
# another), its mount helper, units, manual pages and completions. PREFIX is /usr/local unless it is
# set; DESTDIR is put before every path, for packagers.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
bin=$root$prefix/bin
man=$root$prefix/share/man/man1
bash=$root$prefix/share/bash-completion/completions
zsh=$root$prefix/share/zsh/site-functions
fish=$root$prefix/share/fish/vendor_completions.d
# mount(8) and systemd look nowhere else.
helper=$root/sbin/mount.offsetfs
units=$root/etc/systemd/system

uninstall() {
  rm -f "$bin/offsetfs" "$helper" "$units/offsetfs@.service" "$man"/offsetfs.1 "$man"/offsetfs-*.1 \
    "$bash/offsetfs" "$zsh/_offsetfs" "$fish/offsetfs.fish"
}

put() {
  [ -x "$1" ] || { echo "install.sh: no program at $1: first run cargo build --release" >&2; exit 1; }
  mkdir -p "$bin" "$man" "$bash" "$zsh" "$fish" "$root/sbin" "$units"
  install -m 755 "$1" "$bin/offsetfs"
  install -m 755 "$here/mount.offsetfs" "$helper"
  sed "s|/usr/bin/offsetfs|$prefix/bin/offsetfs|" "$here/offsetfs@.service" >"$units/offsetfs@.service"
  "$1" man "$man"
  "$1" completions bash >"$bash/offsetfs"
  "$1" completions zsh >"$zsh/_offsetfs"
  "$1" completions fish >"$fish/offsetfs.fish"
}

usage() {
  echo "usage: [DESTDIR=DIR] [PREFIX=DIR] install.sh [--uninstall | PROGRAM]" >&2
  exit 2
}

[ $# -le 1 ] || usage
case ${1:-} in
  --uninstall) uninstall ;;
  -*) usage ;;
  *) put "${1:-$here/../target/release/offsetfs}" ;;
esac
