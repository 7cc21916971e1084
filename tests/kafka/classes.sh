#!/bin/sh
# classes.sh: compiles java/*.java against the jars of jars.sh and prints the folder of the classes,
# kafka-classes in the target directory. Needs javac; classes newer than their sources are kept.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
libs=$("$here/jars.sh")
classes=${CARGO_TARGET_DIR:-$here/../../target}/kafka-classes
if [ ! -e "$classes/.complete" ] || [ -n "$(find "$here/java" -newer "$classes/.complete")" ]; then
    mkdir -p "$classes"
    javac -nowarn -d "$classes" -cp "$libs/*" "$here"/java/*.java >&2
    : > "$classes/.complete"
fi
(cd "$classes" && pwd)
