//! The pages that are made of the code: the commands, and the keys of the configuration.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, CommandFactory};
use decklog::app::cli::Cli;
use decklog::app::config::config_schema;
use serde_json::Value;

use crate::pages::root;

const MADE: &str = "<!-- made by tests/book: see tests/README.md -->\n";

/// The command line, as `decklog` reads it.
pub(crate) fn cli() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}

/// As the help spells it: `-n, --namespace <NAMESPACE>`.
fn spelled(arg: &Arg) -> String {
    let names: Vec<String> = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let value = names.join(" ");
    if arg.is_positional() {
        let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
        return format!("`{value}{}`", if many { "…" } else { "" });
    }
    let mut flags: Vec<String> = arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
    flags.extend(arg.get_long().map(|long| format!("--{long}")));
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    format!("`{}{}`", flags.join("`, `"), if takes { format!(" {value}") } else { String::new() })
}

fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) {
        write!(text, ": {}", values.join(", ")).unwrap();
    }
    let default: Vec<_> = arg.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    if !default.is_empty() && matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) {
        write!(text, " (default: `{}`)", default.join(", ")).unwrap();
    }
    if let Some(name) = arg.get_env().and_then(|name| name.to_str()) {
        write!(text, " (`${name}`)").unwrap();
    }
    cell(&text)
}

fn table<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    let rows: Vec<String> = args.map(|arg| format!("| {} | {} |\n", spelled(arg), meaning(arg))).collect();
    if !rows.is_empty() {
        page.push_str("| argument | meaning |\n|---|---|\n");
        page.extend(rows);
        page.push('\n');
    }
}

fn command(page: &mut String, names: &str, of: &Command) {
    let about = of.get_about().map(ToString::to_string).unwrap_or_default();
    writeln!(page, "## {names}\n\n{about}.\n").unwrap();
    let usage = of.clone().bin_name(format!("decklog {names}")).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    writeln!(page, "```text\n{}\n```\n", usage.trim()).unwrap();
    table(page, of.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set()));
    for below in of.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        command(page, &format!("{names} {}", below.get_name()), below);
    }
}

/// `docs/commands.md`.
pub(crate) fn commands() -> String {
    let cli = cli();
    let mut page = format!("{MADE}\n# Commands\n\n");
    page.push_str(
        "This page has the help of every command, as `decklog COMMAND --help` prints it. The flags are kubectl's where kubectl has one. [Reading](reading.md#times) says what `WHEN` takes.\n\n",
    );
    page.push_str("| command | |\n|---|---|\n");
    let all = || cli.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    for below in all() {
        let (name, about) = (below.get_name(), below.get_about().map(ToString::to_string).unwrap_or_default());
        writeln!(page, "| [`{name}`](#{name}) | {} |", cell(&about)).unwrap();
    }
    page.push_str("\n## Common options\n\nEvery command takes these.\n\n");
    table(&mut page, cli.get_arguments().filter(|arg| !arg.is_hide_set()));
    page.push_str(EXIT_CODES);
    for below in all() {
        command(&mut page, below.get_name(), below);
    }
    format!("{}\n", page.trim_end())
}

const EXIT_CODES: &str = "## Exit codes

| code | meaning |
|---|---|
| 0 | done; also a stop that was asked for, even where a second signal made it end at once |
| 1 | the answer is no: `check` found a problem, `verify` found damage, `get` found nothing, `status --check` found an alarm |
| 3 | `verify` of a copy found nothing wrong, and has no journal that proves it |
| 64 | usage |
| 70 | internal error |
| 74 | I/O: the disk, an API server that is not there yet, an address of `[http]` that is taken or not there yet |
| 75 | another decklog holds this state directory |
| 78 | configuration |

";

/// A key of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    takes: String,
    default: String,
    about: String,
}

/// The keys of a section, or those that only a type of sink has.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// `cluster`, `sink`, or the word of `type`.
    pub(crate) name: String,
    /// Whether it is a type of sink, and no table.
    pub(crate) is_type: bool,
    about: String,
    pub(crate) keys: Vec<Key>,
}

fn text_of<'v>(schema: &'v Value, key: &str) -> &'v str {
    schema[key].as_str().unwrap_or_default()
}

struct Schema(Value);

impl Schema {
    /// What a reference stands for.
    fn resolve<'s>(&'s self, schema: &'s Value) -> &'s Value {
        schema["$ref"].as_str().map_or(schema, |name| {
            let below = name.strip_prefix('#').unwrap_or_else(|| panic!("{name}"));
            self.0.pointer(below).unwrap_or_else(|| panic!("{name}"))
        })
    }

    /// In words: what a value may be.
    fn takes(&self, schema: &Value) -> String {
        let schema = self.resolve(schema);
        let quoted = |value: &Value| format!("`{value}`");
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().map(quoted).collect::<Vec<_>>().join(", ");
        }
        if !schema["const"].is_null() {
            return quoted(&schema["const"]);
        }
        for several in ["anyOf", "oneOf"] {
            if let Some(several) = schema[several].as_array() {
                let mut all: Vec<String> = Vec::new();
                for one in several {
                    let one = self.takes(one);
                    if !all.contains(&one) {
                        all.push(one);
                    }
                }
                return all.join(", ");
            }
        }
        let is = text_of(schema, "type");
        match is {
            "array" => format!("array of {}", self.takes(&schema["items"])),
            "integer" => match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
                (Some(least), Some(most)) => format!("integer, {least} to {most}"),
                (Some(least), None) => format!("integer from {least} on"),
                _ => "integer".to_owned(),
            },
            "string" => match text_of(schema, "format") {
                "" => "text".to_owned(),
                format => format!("text ({})", format.replace('-', " ")),
            },
            "object" => "table".to_owned(),
            other => other.to_owned(),
        }
    }

    fn about(&self, schema: &Value) -> String {
        let own = text_of(schema, "description");
        let text = if own.is_empty() { text_of(self.resolve(schema), "description") } else { own };
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // What each word means, where they say it.
        let words = self.resolve(schema)["oneOf"].as_array().into_iter().flatten();
        for word in words.filter(|word| word["const"].is_string() && word["description"].is_string()) {
            let about = text_of(word, "description").split_whitespace().collect::<Vec<_>>().join(" ");
            let about = about.trim_end_matches('.');
            write!(text, " `{}`: {about}.", word["const"]).unwrap();
        }
        text
    }

    fn keys(&self, of: &Value, default_of: &Value) -> Vec<Key> {
        let required: Vec<&str> = of["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut keys = Vec::new();
        for (name, schema) in of["properties"].as_object().into_iter().flatten() {
            let default = Some(&default_of[name]).filter(|value| !value.is_null());
            let default = default.or_else(|| schema.get("default").filter(|value| !value.is_null()));
            let about = self.about(schema);
            keys.push(Key {
                name: name.clone(),
                takes: self.takes(schema),
                default: match default {
                    Some(value) if value.is_object() => String::new(),
                    Some(value) => format!("`{value}`"),
                    None if required.contains(&name.as_str()) => "required".to_owned(),
                    None => String::new(),
                },
                about,
            });
            // A table below: its keys with their way.
            let inner = self.resolve(schema);
            let several = ["anyOf", "oneOf"].into_iter().flat_map(|word| inner[word].as_array().into_iter().flatten());
            let tables = [inner].into_iter().chain(several);
            for table in tables.map(|table| self.resolve(table)).filter(|table| table["properties"].is_object()) {
                for mut key in self.keys(table, default.unwrap_or(&Value::Null)) {
                    key.name = format!("{name}.{}", key.name);
                    keys.push(key);
                }
            }
            let item = self.resolve(&inner["items"]);
            if item["properties"].is_object() {
                for mut key in self.keys(item, &Value::Null) {
                    key.name = format!("{name}[].{}", key.name);
                    keys.push(key);
                }
            }
        }
        keys
    }
}

/// Every section of the configuration in its order, then every type of sink.
pub(crate) fn sections() -> Vec<Section> {
    let schema = Schema(config_schema());
    let mut sections = Vec::new();
    let mut types = Vec::new();
    for (name, of) in schema.0["properties"].as_object().unwrap() {
        let about = schema.about(of);
        let many = of["type"] == "array";
        let of = schema.resolve(if many { schema.resolve(&of["items"]) } else { of });
        let default = &schema.0["properties"][name]["default"];
        sections.push(Section { name: name.clone(), is_type: false, about, keys: schema.keys(of, default) });
        for kind in of["oneOf"].as_array().into_iter().flatten() {
            let about = schema.about(kind);
            let word = text_of(&kind["properties"]["type"], "const").to_owned();
            let own = kind["$ref"].as_str().map_or(kind, |_| schema.resolve(kind));
            let mut keys = schema.keys(own, &Value::Null);
            keys.extend(
                own["allOf"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .flat_map(|part| schema.keys(schema.resolve(part), &Value::Null)),
            );
            if kind["properties"].is_object() && kind["$ref"].is_string() {
                keys.extend(schema.keys(kind, &Value::Null));
            }
            keys.retain(|key| key.name != "type");
            types.push(Section { name: word, is_type: true, about, keys });
        }
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    sections.extend(types);
    sections
}

/// The table of a section's keys.
pub(crate) fn keys_of(section: &Section) -> String {
    let mut text = String::new();
    if section.keys.is_empty() {
        return text;
    }
    text.push_str("| key | takes | default | meaning |\n|---|---|---|---|\n");
    let mut keys: BTreeMap<String, &Key> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for key in &section.keys {
        if keys.insert(key.name.clone(), key).is_none() {
            order.push(&key.name);
        }
    }
    for name in order {
        let Key { name, takes, default, about } = keys[name];
        writeln!(text, "| `{name}` | {} | {} | {} |", cell(takes), cell(default), cell(about)).unwrap();
    }
    text
}

/// `docs/keys.md`.
pub(crate) fn keys() -> String {
    let mut page = format!("{MADE}\n# Keys of the configuration\n\n");
    page.push_str(
        "Every key of `config.toml`, made from the same types that read it. `decklog schema` prints them as a JSON Schema for your editor. \
         [Configuration](configuration.md) explains them, and the `config.toml` of the repository has each with its reason.\n\n",
    );
    for section in sections() {
        let title = match section.name.as_str() {
            name if section.is_type => format!("Sinks of type `{name}`"),
            "watch" | "sink" | "audit_log" => format!("`[[{}]]`", section.name),
            name => format!("`[{name}]`"),
        };
        writeln!(page, "## {title}\n\n{}\n", section.about).unwrap();
        let table = keys_of(&section);
        if table.is_empty() {
            page.push_str("It has no keys of its own.\n\n");
        } else {
            page.push_str(&table);
            page.push('\n');
        }
        if section.is_type {
            writeln!(page, "[More about it](sinks/{}.md)\n", section.name).unwrap();
        }
    }
    format!("{}\n", page.trim_end())
}

/// The decisions that the front pages of modules have: `//! # Decision: TITLE`, up to the next heading or the end.
pub(crate) fn decisions() -> String {
    let mut page = format!(
        "{MADE}# Decisions\n\nWhy decklog is built like this and not otherwise. Each decision stands in the front page of the module that it is about.\n"
    );
    let mut modules = Vec::new();
    sources(&root().join("src"), &mut modules);
    modules.sort();
    for module in modules {
        let text = std::fs::read_to_string(&module).unwrap();
        let docs = text.lines().map_while(|line| line.strip_prefix("//!"));
        let docs: Vec<&str> = docs.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let module = module.strip_prefix(root().join("src")).unwrap().display().to_string();
        for part in docs.join("\n").split("\n# ").skip(1) {
            let Some(decision) = part.strip_prefix("Decision: ") else { continue };
            let (title, text) = decision.split_once('\n').unwrap();
            let (first, rest) = title.split_at(1);
            writeln!(page, "\n## {}{rest}\n\n`{module}`", first.to_uppercase()).unwrap();
            let words = text.split_whitespace().count();
            assert!(words <= 120, "{module}: {title:?} has {words} words, and 120 are enough");
            for label in ["Context: ", "Decision: ", "Cost: "] {
                let after = text.split_once(label).unwrap_or_else(|| panic!("{module}: {title:?} has no {label:?}")).1;
                let end = ["\nDecision: ", "\nCost: "].iter().filter_map(|label| after.find(label)).min();
                let words: Vec<&str> = after[..end.unwrap_or(after.len())].split_whitespace().collect();
                write!(page, "\n**{}** {}\n", label.trim_end(), words.join(" ")).unwrap();
            }
        }
    }
    page
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The schema of the chart's values, with that of the configuration as its definitions.
pub(crate) fn schema_of_the_chart(written: &str) -> String {
    let mut schema: Value = serde_json::from_str(written).unwrap();
    let mut config = config_schema();
    let own = config.as_object_mut().unwrap();
    own.remove("$schema");
    let mut definitions = own.remove("$defs").unwrap();
    definitions["Config"] = config;
    schema["$defs"] = definitions;
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}
