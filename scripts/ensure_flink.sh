#!/bin/sh
# Install Flink's libraries into the virtual environment $1, and compile the benchmark's job there.
# Only the jars of its Python package are wanted: nothing that they would need in Python is installed.
set -eu

VERSION=2.3.0
home=$1
sources=$(dirname "$0")/../lab/src/slackwater_lab/bench/flink/java

say() { printf '%s\n' "$*" >&2; }

find_javac() {
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/javac" ]; then
        printf '%s\n' "$JAVA_HOME/bin/javac"
    else
        command -v javac
    fi
}

# Java comes without its compiler on many machines; Debian has it in a package of its own.
install_javac() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    release=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
    say "No javac found: installing openjdk-$release-jdk-headless with apt-get."
    apt-get update >&2 || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        "openjdk-$release-jdk-headless" >&2
}

"$(dirname "$0")/ensure_venv.sh" "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    "apache-flink-libraries==$VERSION"
jar=$(find "$home/lib" -name "flink-dist-$VERSION.jar")

find_javac >/dev/null || install_javac || {
    say "Flink's job must be compiled: install a JDK 17 or 21 (such as openjdk-17-jdk-headless)," \
        "or set JAVA_HOME to one."
    exit 1
}
rm -rf "$home/classes"
# Annotations of Flink's own build are not in its jar, which javac would warn about.
"$(find_javac)" -nowarn --release 17 -d "$home/classes" -cp "$jar" "$sources"/*.java
