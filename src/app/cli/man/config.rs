//! decklog-config(5): every key of `config.toml`.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::{VERSION, example, item, paragraph, section};
use crate::app::config::{self, Key, STANDARD_FILES};

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
    let mut page = Roff::new();
    page.control("TH", ["decklog-config", "5", date, VERSION, "File Formats"]);
    section(&mut page, "NAME");
    page.text([roman("decklog-config - the configuration of decklog, config.toml")]);
    section(&mut page, "SYNOPSIS");
    for file in STANDARD_FILES {
        page.text([italic(file)]);
        page.control("br", []);
    }
    section(&mut page, "DESCRIPTION");
    for says in [
        "decklog reads one file in TOML: the one that `--config` names, else that of `$DECKLOG_CONFIG`, else \
         `./config.toml`, else `/etc/decklog/config.toml`. `decklog init` writes one for your cluster, and \
         `decklog check` finds everything that is wrong with it. A running daemon reads it again on SIGHUP; where it is \
         wrong then, the daemon says so and keeps the one that it has.",
        "Each value can come from the environment: `DECKLOG_STATE_MAX_SIZE=50GiB` sets `max_size` of `[state]`, and \
         `DECKLOG_SINK_0_URL` the `url` of the first `[[sink]]`.",
        "A path may begin with `${CREDENTIALS_DIRECTORY}`, `${STATE_DIRECTORY}`, `${LOGS_DIRECTORY}` or \
         `${RUNTIME_DIRECTORY}`, which systemd sets for a service. A time is a number with its unit, such as `30s`, \
         `10m`, `1h30m` or `30d`; a size one such as `500MB` or `10GiB`.",
    ] {
        paragraph(&mut page, says);
    }
    for table in config::reference() {
        match &table.of {
            None => section(&mut page, &table.header),
            Some(word) => {
                page.control("SS", [format!("Sinks of type {word}").as_str()]);
            }
        }
        paragraph(&mut page, &table.says);
        table.keys.iter().for_each(|key| item(&mut page, term(key), &says(key)));
    }
    section(&mut page, "EXAMPLES");
    paragraph(&mut page, "The log of a whole cluster, also in a file:");
    example(&mut page, EXAMPLE);
    section(&mut page, "SEE ALSO");
    paragraph(&mut page, "decklog(1), decklog-init(1), decklog-check(1), decklog-schema(1)");
    page.render()
}

fn term(key: &Key) -> Vec<Inline> {
    let default = key.default.as_ref().map(|default| roman(format!(" = {default}")));
    std::iter::once(bold(&key.name)).chain(default).collect()
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
