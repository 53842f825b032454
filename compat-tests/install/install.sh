#!/usr/bin/env bash
# Installs the foreign clients of the compatibility tests, each at a pinned version, into one cache directory:
#
#   install.sh [kcat|python|node|java|javaclients|goclients|connect|spring|rsyslog|telegraf|otelcol|suites|rdkafka|confluentjs ...]
#
# Without an argument it installs all but the last five, which take minutes to build; with KAJA_COMPAT_LONG=1 those, too.
#
# The directory is $KAJA_COMPAT_CACHE, by default ${XDG_CACHE_HOME:-~/.cache}/kaja-compat. A client that is already there
# at the wanted version costs nothing. Each download is tried four times with growing pauses. A client that can't be had
# leaves its reason in CACHE/NAME.failed, is named on a line that begins with DOWNLOAD FAILED, and makes this script end
# with 3 when CI=true (a download failure is not a test failure, but CI does not go on without the client); elsewhere the
# script ends with 0 and the tests that need the client are skipped with that reason.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
clients=$here/../clients
cache=${KAJA_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kaja-compat}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
log=$cache/install.log

say() { printf 'install: %s\n' "$*"; }

# retry COMMAND...: up to four tries, pauses of 2, 6 and 18 seconds. Output goes to the log.
retry() {
  local try pause=2
  for try in 1 2 3 4; do
    printf '+ %s\n' "$*" >>"$log"
    if "$@" >>"$log" 2>&1; then return 0; fi
    if [ "$try" -lt 4 ]; then
      say "try $try of 4 failed: $1 ${2:-} …; again in ${pause}s"
      sleep "$pause"
      pause=$((pause * 3))
    fi
  done
  return 1
}

# apt PACKAGE...: installs Debian packages, as root or through sudo.
apt() {
  local as=()
  command -v apt-get >/dev/null || { say "no apt-get on this machine: install $* by hand"; return 1; }
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "not root and no sudo: install $* by hand"; return 1; }
    as=(sudo -n)
  fi
  if [ ! -e "$cache/.apt-updated" ] || [ -n "$(find "$cache/.apt-updated" -mmin +720)" ]; then
    retry "${as[@]}" apt-get update -qq || return 1
    touch "$cache/.apt-updated"
  fi
  retry "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# stamp NAME FILE...: the fingerprint that says whether what is installed is what these files ask for.
stamp() { local name=$1; shift; { printf '%s\n' "$name"; cat "$@"; } | sha256sum | cut -c1-64; }
have() { [ "$(cat "$cache/$1.stamp" 2>/dev/null || true)" = "$2" ]; }

install_kcat() {
  command -v kcat >/dev/null || apt kcat || return 1
  kcat -V | grep -q 'Version 1\.7\.' || { say "kcat is not a 1.7: $(kcat -V | grep Version)"; return 1; }
}

install_python() {
  local want; want=$(stamp python "$here/requirements.txt")
  have python "$want" && [ -x "$cache/python/bin/python" ] && return 0
  command -v python3 >/dev/null || apt python3 python3-venv || return 1
  rm -rf "$cache/python"
  if ! python3 -m venv "$cache/python" >>"$log" 2>&1; then
    rm -rf "$cache/python"
    apt python3-venv || return 1
    retry python3 -m venv "$cache/python" || return 1
  fi
  retry "$cache/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" || return 1
  printf '%s\n' "$want" >"$cache/python.stamp"
}

install_node() {
  local want; want=$(stamp node "$here/package.json" "$here/package-lock.json")
  have node "$want" && command -v node >/dev/null && return 0
  { command -v node && command -v npm; } >/dev/null || apt nodejs npm || return 1
  # kafkajs-lz4 compiles a small native module.
  { command -v g++ && command -v make; } >/dev/null || apt g++ make || return 1
  mkdir -p "$cache/node"
  cp "$here/package.json" "$here/package-lock.json" "$cache/node/"
  retry npm ci --prefix "$cache/node" --no-audit --no-fund || return 1
  printf '%s\n' "$want" >"$cache/node.stamp"
}

java_ok() { command -v javac >/dev/null && java -version 2>&1 | grep -Eq 'version "(17|21)'; }

install_java() {
  local jars runner source=$here/../java/ToolRunner.java
  jars=$(stamp jars "$here/pom.xml")
  runner=$(stamp runner "$here/pom.xml" "$source")
  have java "$runner" && java_ok && return 0
  java_ok || apt openjdk-17-jdk-headless || return 1
  rm -f "$cache/java.stamp"
  if ! have jars "$jars"; then
    command -v mvn >/dev/null || apt maven || return 1
    rm -rf "$cache/java/lib"
    mkdir -p "$cache/java/lib"
    retry mvn -q -B -f "$here/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$cache/java/lib" || return 1
    printf '%s\n' "$jars" >"$cache/jars.stamp"
  fi
  rm -rf "$cache/java/runner"
  mkdir -p "$cache/java/runner"
  javac -nowarn -cp "$cache/java/lib/*" -d "$cache/java/runner" "$source" >>"$log" 2>&1 || {
    say "javac failed on ToolRunner.java, see $log"
    return 1
  }
  printf '%s\n' "$runner" >"$cache/java.stamp"
}

# Old and recent releases of kafka-clients, each with ClientScenario compiled against it in CACHE/javaclients/VERSION.
client_versions="2.1.1 3.9.1 4.4.0"
install_javaclients() {
  local want version source=$here/../java/ClientScenario.java
  want=$(stamp "javaclients $client_versions" "$here/clients-pom.xml" "$source")
  have javaclients "$want" && java_ok && return 0
  java_ok || apt openjdk-17-jdk-headless || return 1
  command -v mvn >/dev/null || apt maven || return 1
  for version in $client_versions; do
    local dir=$cache/javaclients/$version
    rm -rf "$dir"
    mkdir -p "$dir"
    retry mvn -q -B -f "$here/clients-pom.xml" "-Dclients.version=$version" \
      org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$dir" || return 1
    javac -nowarn -cp "$dir/*" -d "$dir" "$source" >>"$log" 2>&1 || { say "javac failed on ClientScenario.java, see $log"; return 1; }
  done
  printf '%s\n' "$want" >"$cache/javaclients.stamp"
}

# jars NAME DIRECTORY: the jars that NAME-pom.xml asks for.
jars() {
  local name=$1 dir=$2
  command -v mvn >/dev/null || apt maven || return 1
  rm -rf "$dir"
  mkdir -p "$dir"
  retry mvn -q -B -f "$here/$name-pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$dir"
}

# Kafka Connect and MirrorMaker 2. The file connectors lie in a directory of their own too, as a plugin.
install_connect() {
  local want; want=$(stamp connect "$here/connect-pom.xml")
  have connect "$want" && java_ok && return 0
  java_ok || apt openjdk-17-jdk-headless || return 1
  jars connect "$cache/connect/lib" || return 1
  rm -rf "$cache/connect/plugins"
  mkdir -p "$cache/connect/plugins/file"
  cp "$cache"/connect/lib/connect-file-*.jar "$cache/connect/plugins/file/"
  printf '%s\n' "$want" >"$cache/connect.stamp"
}

install_spring() {
  local want source=$here/../java/SpringScenario.java
  want=$(stamp spring "$here/spring-pom.xml" "$source")
  have spring "$want" && java_ok && return 0
  java_ok || apt openjdk-17-jdk-headless || return 1
  jars spring "$cache/spring" || return 1
  javac -nowarn -parameters -cp "$cache/spring/*" -d "$cache/spring" "$source" >>"$log" 2>&1 || { say "javac failed on SpringScenario.java, see $log"; return 1; }
  printf '%s\n' "$want" >"$cache/spring.stamp"
}

install_rsyslog() {
  { [ -x /usr/sbin/rsyslogd ] && [ -n "$(find /usr/lib -path '*/rsyslog/imkafka.so')" ]; } || apt rsyslog rsyslog-kafka
}

# Telegraf with what its test needs of its plugins.
telegraf_version=v1.37.2
install_telegraf() {
  have telegraf "$telegraf_version" && return 0
  GOBIN=$cache/built CGO_ENABLED=0 retry go install -trimpath \
    -tags custom,inputs.kafka_consumer,inputs.file,outputs.kafka,outputs.file,parsers.influx,serializers.influx \
    "github.com/influxdata/telegraf/cmd/telegraf@$telegraf_version" || return 1
  printf '%s\n' "$telegraf_version" >"$cache/telegraf.stamp"
}

# The OpenTelemetry collector, made by its own builder of the parts that otelcol.yaml names.
install_otelcol() {
  local want; want=$(stamp otelcol "$here/otelcol.yaml")
  have otelcol "$want" && return 0
  GOBIN=$cache/built retry go install go.opentelemetry.io/collector/cmd/builder@v0.165.0 || return 1
  mkdir -p "$cache/otelcol"
  cp "$here/otelcol.yaml" "$cache/otelcol/"
  (cd "$cache/otelcol" && CGO_ENABLED=0 retry "$cache/built/builder" --config otelcol.yaml) || return 1
  mv "$cache/otelcol/build/otelcol" "$cache/built/otelcol"
  printf '%s\n' "$want" >"$cache/otelcol.stamp"
}

# The test suites of franz-go, sarama, kafka-go and confluent-kafka-go as programs, and the proxy that sarama's asks for.
install_suites() {
  local want dir=$cache/suites; want=$(stamp suites "$here/suites.txt")
  have suites "$want" && return 0
  rm -rf "$dir"
  mkdir -p "$dir/bin"
  (
    cd "$dir"
    go mod init suites >>"$log" 2>&1 || exit 1
    while read -r program package version tags; do
      case $program in ''|'#'*) continue ;; esac
      if [ "$program" = toxiproxy ]; then
        GOBIN=$dir/bin retry go install "$package@$version" || exit 1
        mv bin/server bin/toxiproxy
        continue
      fi
      retry go get -t "$package@$version" || exit 1
      retry go test -c ${tags:+-tags "$tags"} -o "bin/$program" "$package" || exit 1
      go list -f '{{.Dir}}' "$package" >"bin/$program.dir" || exit 1
    done <"$here/suites.txt"
  ) || return 1
  printf '%s\n' "$want" >"$cache/suites.stamp"
}

# The Go programs of the client matrix; franz-go a second time at an old release.
install_goclients() {
  local want; want=$(stamp goclients "$clients"/go*.mod "$clients"/go*.sum $(find "$clients/cmd" "$clients/internal" -name '*.go' | sort))
  have goclients "$want" && return 0
  command -v gcc >/dev/null || apt gcc libc6-dev || return 1
  mkdir -p "$cache/goclients"
  (
    cd "$clients"
    for program in franz sarama kafkago confluent; do retry go build -trimpath -o "$cache/goclients/$program" "./cmd/$program" || exit 1; done
    retry go build -trimpath -modfile=go.franz-old.mod -o "$cache/goclients/franz-old" ./cmd/franz
  ) || return 1
  printf '%s\n' "$want" >"$cache/goclients.stamp"
}

# rdkafka compiles the librdkafka that its crate brings; that asks for the headers of curl, which it does not use.
install_rdkafka() {
  local source=$here/../rust want library
  want=$(stamp rdkafka "$source/Cargo.toml" "$source/Cargo.lock" "$source/src/main.rs")
  have rdkafka "$want" && return 0
  command -v cargo >/dev/null || { say "no cargo on this machine: install Rust by hand"; return 1; }
  { command -v cmake && command -v g++ && command -v make; } >/dev/null || apt cmake g++ make || return 1
  for library in zlib1g-dev libcurl4-openssl-dev; do
    dpkg -s "$library" >/dev/null 2>&1 || apt "$library" || return 1
  done
  retry cargo build --release --locked --manifest-path "$source/Cargo.toml" --target-dir "$cache/rdkafka" || return 1
  printf '%s\n' "$want" >"$cache/rdkafka.stamp"
}

# The prebuilt binary of @confluentinc/kafka-javascript is on no registry, so it is compiled, linked with Debian's libraries.
install_confluentjs() {
  local want library source=$here/confluentjs; want=$(stamp confluentjs "$source/package.json" "$source/package-lock.json")
  have confluentjs "$want" && command -v node >/dev/null && return 0
  { command -v node && command -v npm; } >/dev/null || apt nodejs npm || return 1
  { command -v g++ && command -v make; } >/dev/null || apt g++ make || return 1
  for library in libssl-dev zlib1g-dev libcurl4-openssl-dev libzstd-dev libsasl2-dev liblz4-dev; do
    dpkg -s "$library" >/dev/null 2>&1 || apt "$library" || return 1
  done
  mkdir -p "$cache/confluentjs"
  cp "$source/package.json" "$source/package-lock.json" "$cache/confluentjs/"
  CKJS_LINKING=dynamic retry npm ci --prefix "$cache/confluentjs" --no-audit --no-fund --nodedir=/usr || return 1
  printf '%s\n' "$want" >"$cache/confluentjs.stamp"
}

failed=()
if [ $# = 0 ]; then
  set -- kcat python node java javaclients goclients connect spring rsyslog
  [ -z "${KAJA_COMPAT_LONG:-}" ] || set -- "$@" telegraf otelcol suites rdkafka confluentjs
fi
: >>"$log"
for name in "$@"; do
  declare -F "install_$name" >/dev/null || { say "unknown client $name"; exit 2; }
  began=$SECONDS
  rm -f "$cache/$name.failed"
  if "install_$name"; then
    say "$name ready ($((SECONDS - began))s)"
  else
    failed+=("$name")
    printf '%s could not be installed; last lines of %s:\n%s\n' "$name" "$log" "$(tail -n 8 "$log")" >"$cache/$name.failed"
    printf 'DOWNLOAD FAILED: %s (after %ss; this is not a test failure)\n' "$name" "$((SECONDS - began))"
    sed 's/^/  | /' "$cache/$name.failed"
  fi
done
if [ ${#failed[@]} -gt 0 ] && [ "${CI:-}" = true ]; then
  say "CI does not go on without: ${failed[*]}"
  exit 3
fi
