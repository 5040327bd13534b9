#!/bin/sh
# Print the JAVA_HOME of a Java that Spark can use (17 or 21), installing one where that is possible.
# Looks at $JAVA_HOME, then at PATH, then where systems keep their Javas. All else goes to stderr.
set -u

say() { printf '%s\n' "$*" >&2; }

# Print the home of the java command $1 if it is a version that Spark can use.
usable_home() {
    properties=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(printf '%s\n' "$properties" | sed -n 's/^ *java\.specification\.version = //p')
    case $version in
        17 | 21) printf '%s\n' "$properties" | sed -n 's/^ *java\.home = //p' ;;
        *) return 1 ;;
    esac
}

find_home() {
    if [ -n "${JAVA_HOME:-}" ]; then
        usable_home "$JAVA_HOME/bin/java" && return
        say "JAVA_HOME=$JAVA_HOME holds no Java 17 or 21: looking elsewhere."
    fi
    command -v java >/dev/null 2>&1 && usable_home java && return
    for java in /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        [ -x "$java" ] && usable_home "$java" && return
    done
    return 1
}

# Debian releases offer either 17 or 21, some both; the first that installs is enough.
install_with_apt() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    say "No Java 17 or 21 found: installing one with apt-get."
    apt-get update >&2 || return 1
    for release in 17 21; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            "openjdk-$release-jre-headless" >&2 && return
    done
    return 1
}

find_home && exit
install_with_apt && find_home && exit
say "Spark needs Java 17 or 21: install one (such as openjdk-17-jre-headless), or set JAVA_HOME to it."
exit 1
