//! What a seed makes of the configuration and of the faults.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use decklog::core::units::ByteSize;
use decklog::delivery::OnRefused;
use decklog::sim;
use decklog::sink::file::Compress;
use decklog::sink::{file, http};
use decklog::watch;
use serde_json::json;

use super::class::{Class, LARGE};
use super::faults::Fault;
use crate::dice::Dice;
use crate::world::{NAMESPACES, WATCHED};

/// What a seed makes of the configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    pub class: Class,
    pub sinks: Vec<String>,
    pub namespaces: Option<BTreeSet<String>>,
    pub selector: bool,
    pub page: u32,
    pub line_limit: usize,
    pub on_refused: OnRefused,
    pub http: http::Settings,
    /// How often each source is compared with the API server.
    pub audit: Option<Duration>,
    pub rotate: Option<u64>,
    pub compress: Compress,
    /// The revision at which decklog began to look.
    pub started: u64,
    pub enabled: BTreeSet<Fault>,
    /// No fault that could lose a change: then there is no GAP.
    pub clean: bool,
}

impl Setup {
    pub fn new(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, "setup");
        let class = Class::of(seed);
        let clean = dice.percent(25);
        let enabled = class.faults(dice, clean);
        // Watches that bring nothing are answered with a list, which declares a gap.
        let clean = !enabled.contains(&Fault::Opaque) && enabled.iter().all(|fault| !fault.may_lose());
        let sinks = class.sinks(dice, &enabled);
        let format = *dice.pick(&["binary", "structured", "batched"]);
        let http = json!({ "url": "http://events.example.com/", "format": format, "batch_size": dice.between(1, 40),
                           "timeout": "10s" });
        Self {
            class,
            sinks,
            namespaces: if class == Class::Large {
                Some((0..LARGE).map(|number| format!("large-{number}")).collect())
            } else {
                dice.percent(30).then(|| NAMESPACES[..2].iter().map(|name| (*name).to_owned()).collect())
            },
            selector: dice.percent(30) && class != Class::Large,
            page: u32::try_from(dice.between(2, if enabled.contains(&Fault::PagesDiffer) { 4 } else { 60 }))
                .unwrap_or(10),
            line_limit: if class == Class::Large { 16 << 20 } else { 48 << 10 },
            on_refused: if dice.percent(50) { OnRefused::Halt } else { OnRefused::DeadLetter },
            http: serde_json::from_value(http).expect("a valid configuration"),
            audit: dice.percent(60).then(|| dice.millis(60_000, 600_000)),
            rotate: dice.percent(60).then(|| dice.between(4_000, 120_000) as u64),
            compress: if dice.percent(50) { Compress::Zstd } else { Compress::None },
            started: 0,
            enabled,
            clean,
        }
    }

    /// The `[[watch]]` of the configuration.
    pub fn watch(&self) -> watch::Settings {
        watch::Settings {
            resources: WATCHED.iter().map(|name| (*name).to_owned()).collect(),
            namespaces: self.namespaces.iter().flatten().cloned().collect(),
            label_selector: if self.selector { "tier=web".to_owned() } else { String::new() },
            ..watch::Settings::default()
        }
    }

    pub fn file(&self, out: &Path) -> file::Settings {
        file::Settings {
            path: out.join("events.jsonl"),
            rotate_size: self.rotate.map(ByteSize),
            rotate_every: None,
            keep: 10_000,
            compress: self.compress,
        }
    }

    /// The sinks of the configuration, where they are not those with receivers.
    pub fn sinks(&self) -> &[String] {
        &self.sinks
    }

    /// Whether what is delivered goes to the file, the HTTP receiver and the collecting sink.
    pub fn has_receivers(&self) -> bool {
        self.sinks.is_empty()
    }

    pub fn enables(&self, fault: Fault) -> bool {
        self.enabled.contains(&fault)
    }

    pub fn watches(&self, resource: &str, namespace: &str) -> bool {
        WATCHED.contains(&resource) && self.namespaces.as_ref().is_none_or(|all| all.contains(namespace))
    }

    pub fn selects(&self, row: &sim::Row) -> bool {
        !self.selector || row.value()["metadata"]["labels"]["tier"] == "web"
    }
}
