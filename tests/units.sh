#!/bin/sh
# systemd takes our units as they are, and finds little to attack: a score of 1.5 or less, where 10 is no defence at all.
set -eu
cd "$(dirname "$0")/.."

if ! command -v systemd-analyze >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get install -y --no-install-recommends systemd >/dev/null
    else
        echo "systemd-analyze is missing. Run this first: sudo apt-get install -y systemd" >&2
        exit 1
    fi
fi

units=$(mktemp -d)
trap 'rm -rf "$units"' EXIT

# The program need not be installed here: any program that exists stands in for it.
for unit in decklog.service decklog@.service; do
    sed 's|^\(ExecStart=\)/usr/local/bin/decklog|\1/bin/true|' "systemd/$unit" >"$units/$unit"
done
cp "$units/decklog@.service" "$units/decklog@prod.service"

failed=0
for unit in decklog.service decklog@prod.service; do
    taken=0
    said=$(systemd-analyze verify --man=no "$units/$unit" 2>&1) || taken=$?
    if [ "$taken" != 0 ] || [ -n "$said" ]; then
        printf '%s: systemd-analyze verify says:\n%s\n' "$unit" "$said" >&2
        failed=1
    fi
    # The threshold is the score times ten.
    if said=$(systemd-analyze security --offline=true --threshold=15 --no-pager "$units/$unit" 2>&1); then
        printf '%s: %s\n' "$unit" "$(printf '%s\n' "$said" | grep 'Overall exposure level' | sed 's/^[^O]*//')"
    else
        printf '%s: systemd-analyze security says:\n%s\n' "$unit" "$said" >&2
        failed=1
    fi
done

# It is started again for as long as it takes, calmly, unless another start cannot help.
for line in StartLimitIntervalSec=0 Restart=always RestartSec=5 'RestartPreventExitStatus=64 78'; do
    if ! grep -qx "$line" systemd/decklog.service; then
        echo "decklog.service does not say $line" >&2
        failed=1
    fi
done

# The template is the unit, but for where things are.
plain() { grep -v '^#' "$1" | grep -v '^Description=' | sed 's|/%i\.toml|/config.toml|; s|/%i$||'; }
if ! [ "$(plain systemd/decklog.service)" = "$(plain systemd/decklog@.service)" ]; then
    echo "decklog@.service differs from decklog.service in more than its directories" >&2
    failed=1
fi
exit "$failed"
