//! decklog-config(5): every key of `config.toml`.

use super::roff::{Page, bold, escaped, italic};
use crate::config::{self, Key, STANDARD_FILES};

/// A configuration that shows what most of them hold.
pub(super) const EXAMPLE: &str = r#"[cluster]
name = "prod-eu1"
kubeconfig = "/etc/decklog/kubeconfig"

[[watch]]
resources = ["*"]
exclude = ["events", "leases.coordination.k8s.io", "secrets"]

[[sink]]
name = "audit"
type = "file"
path = "/var/log/decklog/events.jsonl"
"#;

pub(super) fn page(date: &str) -> String {
    let mut page = Page::new("decklog-config", 5, date);
    page.name("decklog-config", "the configuration of decklog, config.toml");
    page.section("SYNOPSIS");
    page.usage(&STANDARD_FILES.map(italic));
    page.section("DESCRIPTION");
    page.paragraph(
        "decklog reads one file in TOML: the one that `--config` names, else that of `$DECKLOG_CONFIG`, else \
         `./config.toml`, else `/etc/decklog/config.toml`. `decklog init` writes one for your cluster, and \
         `decklog check` finds everything that is wrong with it. A running daemon reads it again on SIGHUP; where it is \
         wrong then, the daemon says so and keeps the one that it has.",
    );
    page.paragraph(
        "Each value can come from the environment: `DECKLOG_STATE_MAX_SIZE=50GiB` sets `max_size` of `[state]`, and \
         `DECKLOG_SINK_0_URL` the `url` of the first `[[sink]]`.",
    );
    page.paragraph(
        "A path may begin with `${CREDENTIALS_DIRECTORY}`, `${STATE_DIRECTORY}`, `${LOGS_DIRECTORY}` or \
         `${RUNTIME_DIRECTORY}`, which systemd sets for a service. A time is a number with its unit, such as `30s`, \
         `10m`, `1h30m` or `30d`; a size one such as `500MB` or `10GiB`.",
    );
    for table in config::reference() {
        match &table.of {
            None => page.section(&table.header),
            Some(word) => page.subsection(&format!("type = {word:?}")),
        }
        page.paragraph(&table.says);
        for key in &table.keys {
            page.item(&term(key), &says(key));
        }
    }
    page.section("EXAMPLES");
    page.paragraph("The log of a whole cluster, also in a file:");
    page.example(EXAMPLE);
    page.see_also(["decklog(1)", "decklog-init(1)", "decklog-check(1)", "decklog-schema(1)"]);
    page.done()
}

fn term(key: &Key) -> String {
    match &key.default {
        Some(default) => format!("{} = {}", bold(&key.name), escaped(default)),
        None => bold(&key.name),
    }
}

fn says(key: &Key) -> String {
    let mut text = key.says.trim_end_matches('.').to_owned();
    text.push('.');
    if !key.takes.is_empty() && key.takes != "a string" {
        text.push_str(&format!(" Takes {}.", key.takes));
    }
    if key.required {
        text.push_str(" Has to be given.");
    }
    text
}
