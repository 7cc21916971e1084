#!/bin/sh
# jars.sh: fills a folder with the jars of Apache Kafka 4.4.0 (pom.xml) and prints its name. The folder
# is $OFFSETFS_KAFKA_LIBS, or kafka-libs in the target directory. Needs mvn; a filled folder is kept.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
libs=${OFFSETFS_KAFKA_LIBS:-${CARGO_TARGET_DIR:-$here/../../target}/kafka-libs}
if [ ! -e "$libs/.complete" ]; then
    mkdir -p "$libs"
    mvn --quiet --batch-mode --file "$here/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$(cd "$libs" && pwd)" -DincludeScope=runtime >&2
    : > "$libs/.complete"
fi
(cd "$libs" && pwd)
