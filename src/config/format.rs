//! Formats: what a text must look like beyond being a text. The schema names them; here they are checked.

use ipnet::IpNet;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use tracing_subscriber::EnvFilter;

use super::problem::nearest;
use super::value::{ZERO, parse_duration, parse_period, parse_size};
use super::{Files, Listen};
use crate::change::{Noise, Pattern, Preset};
use crate::filter::{Filter, FilterError};
use crate::sink::postgres::parse_url;
use crate::sink::{Template, nats, s3};

/// Why a text does not fit its format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// What was found.
    pub(super) found: String,
    /// A right spelling that is near.
    pub(super) nearest: Option<String>,
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(found: T) -> Self {
        Self { found: found.into(), nearest: None }
    }
}

impl Wrong {
    fn near(mut self, nearest: impl Into<String>) -> Self {
        self.nearest = Some(nearest.into());
        self
    }
}

/// What a format expects, for people.
pub(super) fn expected(format: &str) -> &'static str {
    match format {
        "time-span" => "a duration such as \"30s\", \"10m\", \"1h30m\" or \"30d\"",
        "period" => "a duration of at least \"1s\", such as \"10m\" or \"1h30m\"; or \"off\" for never",
        "size" => "a size such as \"512MiB\" or \"10GiB\"",
        "path" => "the path of a file or directory",
        "readable-file" => "the path of a file that can be read and is not empty",
        "key-file" => "the path of a file that can be read, with at least 16 bytes",
        "name" => "a name of at most 63 letters, digits, \"-\", \"_\" and \".\", beginning with a letter or digit",
        "resource" => "a resource as kubectl spells it, PLURAL or PLURAL.GROUP, or a wildcard: \"*\", \"*.GROUP\"",
        "namespace" => "the name of a namespace: at most 63 lower-case letters, digits and \"-\"",
        "label-selector" => "a label selector such as \"tier=web,env in (prod,qa),!legacy\"",
        "field-selector" => "a field selector such as \"metadata.name=web,status.phase!=Running\"",
        "pointer-pattern" => "a JSON pointer such as \"/metadata/managedFields\" or \"/data/*password*\"",
        "ignore" => {
            "a preset (\"heartbeats\", \"managed-fields\", \"status\", \"leader-election\") or a JSON pointer such as \"/metadata/labels/*\""
        }
        "cel" => "a CEL expression over the keys of an entry, such as 'type == \"DELETED\" || kind == \"Secret\"'",
        "http-url" => "an http:// or https:// URL without user and password (for those: bearer_file, headers_file)",
        "stream" => "the name of a stream, without spaces and any of . * > / \\",
        "subject" => "a subject such as \"decklog.{resource}.{namespace}\", without spaces and wildcards",
        "bucket-url" => "s3://BUCKET, s3://BUCKET/PREFIX, or file:///PATH for a folder",
        "network" => "a network such as \"10.0.0.0/8\" or \"2001:db8::/32\"",
        "postgres-url" => {
            "a URL such as postgres://decklog@db.example:5432/audit, without a password (for that: password_file)"
        }
        "redis-url" => "a redis:// or rediss:// URL without user and password (for those: user, password_file)",
        "syslog-url" => {
            "unix:// with the path of a socket, such as \"unix:///dev/log\"; or tcp:// or tls:// with a host"
        }
        "syslog-name" => "at most 48 printable ASCII characters without spaces",
        "syslog-host" => "at most 255 printable ASCII characters without spaces",
        "sd-id" => {
            "a name and an enterprise number, such as \"decklog@32473\", of at most 32 letters, digits, \"-\", \"_\" and \".\""
        }
        "broker" => "a broker as HOST:PORT, such as \"kafka-1.example:9092\"",
        "kafka-name" => "a name of at most 249 letters, digits, \"-\", \"_\" and \".\"",
        "template" => {
            "a name that may have the fields {cluster}, {group}, {version}, {resource}, {kind}, {namespace}, {name}, {type}, {epoch}, {date} and {hour}"
        }
        "index" => {
            "the name of an index: lower-case letters, digits, \"-\", \"_\" and \".\", beginning with a letter or digit, with fields such as {cluster} and {date}"
        }
        "listen" => "an address and port such as \"127.0.0.1:9465\", or the path of a unix socket",
        "log-level" => "error, warn, info, debug, trace or off; or directives such as \"info,decklog::watch=debug\"",
        _ => "a string",
    }
}

/// Checks a text against the format that the schema names. Formats that only inform are taken as they are.
pub(super) fn check(format: &str, text: &str, files: Files) -> Result<(), Wrong> {
    match format {
        "time-span" => parse_duration(text).map(drop).map_err(|found| time_span(text, found)),
        "period" => parse_period(text).map(drop).map_err(|found| period(text, found)),
        "size" => parse_size(text).map(drop).map_err(|found| size(text, found)),
        "path" => path(text),
        "readable-file" => path(text).and_then(|()| readable(text, 1, files)),
        "key-file" => path(text).and_then(|()| readable(text, 16, files)),
        "name" => name(text),
        "resource" => resource(text),
        "namespace" => namespace(text),
        "label-selector" => label_selector(text),
        "field-selector" => field_selector(text),
        "pointer-pattern" => Pattern::parse(text).map(drop).map_err(Wrong::from),
        "ignore" => {
            Noise::check(text).map_err(|found| Wrong { found, nearest: nearest(text, Preset::ALL.map(Preset::as_str)) })
        }
        "cel" => Filter::compile(text).map(drop).map_err(|error| cel(text, &error)),
        "http-url" => http_url(text),
        "network" => network(text),
        "postgres-url" => parse_url(text).map(drop).map_err(Wrong::from),
        "redis-url" => server_url(text, &["redis", "rediss"]),
        "syslog-url" => syslog_url(text),
        "syslog-name" => printable(text, 48),
        "syslog-host" => printable(text, 255),
        "sd-id" => sd_id(text),
        "template" => Template::parse(text).map(drop).map_err(|(found, nearest)| Wrong { found, nearest }),
        "stream" => nats::stream_name(text).map_err(Wrong::from),
        "subject" => nats::Subject::parse(text).map(drop).map_err(|(found, nearest)| Wrong { found, nearest }),
        "bucket-url" => s3::Place::parse(text).map(drop).map_err(Wrong::from),
        "index" => index(text),
        "broker" => broker(text),
        "kafka-name" => kafka_name(text),
        "listen" => listen(text),
        "log-level" => log_level(text),
        _ => Ok(()),
    }
}

fn time_span(text: &str, found: String) -> Wrong {
    let wrong = Wrong::from(format!("{text:?}: {found}"));
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let unit = text[digits.len()..].trim().to_lowercase();
    let unit = match unit.as_str() {
        "" | "sec" | "secs" | "second" | "seconds" => "s",
        "min" | "mins" | "minute" | "minutes" => "m",
        "hr" | "hrs" | "hour" | "hours" => "h",
        "day" | "days" => "d",
        "week" | "weeks" => "w",
        _ => return wrong,
    };
    if digits.bytes().all(|b| b == b'0') { wrong } else { wrong.near(format!("{digits}{unit}")) }
}

fn period(text: &str, found: String) -> Wrong {
    let zero = found == ZERO;
    let wrong = time_span(text, found);
    match parse_duration(text) {
        Ok(_) => wrong.near("1s"),
        Err(_) if zero => wrong.near("off"),
        Err(_) => wrong,
    }
}

fn size(text: &str, found: String) -> Wrong {
    let wrong = Wrong::from(format!("{text:?}: {found}"));
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let unit = match text[digits.len()..].trim().to_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => "B",
        "k" | "kb" | "ki" | "kib" => "KiB",
        "m" | "mb" | "mi" | "mib" => "MiB",
        "g" | "gb" | "gi" | "gib" => "GiB",
        "t" | "tb" | "ti" | "tib" => "TiB",
        _ => return wrong,
    };
    if digits.bytes().all(|b| b == b'0') { wrong } else { wrong.near(format!("{digits}{unit}")) }
}

/// The place in the expression, told apart from the place in the file.
fn cel(text: &str, error: &FilterError) -> Wrong {
    match error {
        FilterError::Compile { line, column, message } => {
            let (message, near) = match message.split_once("; did you mean ") {
                Some((message, near)) => (message, Some(near.trim_matches(['"', '?']).to_owned())),
                None => (message.as_str(), None),
            };
            let place =
                if text.contains('\n') { format!("line {line} of the expression") } else { format!("{text:?}") };
            Wrong { found: format!("{message}, at character {column} of {place}"), nearest: near }
        }
        FilterError::Evaluate(message) => Wrong::from(message.as_str()),
    }
}

fn path(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err("an empty string".into());
    }
    if text.contains('\0') {
        return Err("a path with a NUL character".into());
    }
    Ok(())
}

fn readable(text: &str, least: u64, files: Files) -> Result<(), Wrong> {
    if files == Files::Ignore {
        return Ok(());
    }
    let failed = |error: std::io::Error| Wrong::from(format!("{text:?}, which cannot be read: {error}"));
    let file = File::open(Path::new(text)).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(format!("{text:?}, which is a directory").into());
    }
    let mut bytes = Vec::new();
    file.take(least).read_to_end(&mut bytes).map_err(failed)?;
    if (bytes.len() as u64) < least {
        return Err(format!("{text:?}, which has {} bytes", bytes.len()).into());
    }
    Ok(())
}

fn name(text: &str) -> Result<(), Wrong> {
    let first = text.chars().next().ok_or("an empty string")?;
    if first.is_ascii_alphanumeric()
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    {
        return Ok(());
    }
    let mended: String =
        text.trim().chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let wrong = Wrong::from(format!("the string {text:?}"));
    Err(if mended != text && name(&mended).is_ok() { wrong.near(mended) } else { wrong })
}

fn resource(text: &str) -> Result<(), Wrong> {
    let (plural, group) = text.split_once('.').map_or((text, None), |(plural, group)| (plural, Some(group)));
    let right = (plural == "*" || is_dns_label(&plural.to_ascii_lowercase()))
        && group.is_none_or(|group| group == "*" || is_dns_subdomain(&group.to_ascii_lowercase()));
    if right {
        return Ok(());
    }
    let wrong = Wrong::from(format!("the string {text:?}"));
    // apps/v1/deployments and apps/deployments are what people who read API paths write.
    let parts: Vec<&str> = text.split('/').collect();
    let mended = match parts.as_slice() {
        [group, plural] | [group, _, plural] if group.contains('.') || !plural.contains('.') => {
            format!("{plural}.{group}")
        }
        _ => return Err(wrong),
    };
    Err(if resource(&mended).is_ok() { wrong.near(mended) } else { wrong })
}

fn namespace(text: &str) -> Result<(), Wrong> {
    if is_dns_label(text) {
        return Ok(());
    }
    let wrong = Wrong::from(format!("the string {text:?}"));
    if text == "*" {
        return Err(Wrong { nearest: Some("[] (no namespaces means all of them)".to_owned()), ..wrong });
    }
    let mended = text.trim().to_lowercase().replace('_', "-");
    Err(if is_dns_label(&mended) { wrong.near(mended) } else { wrong })
}

fn http_url(text: &str) -> Result<(), Wrong> {
    // The text is not shown: a URL may carry a token.
    let url = match reqwest::Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            let mended = format!("https://{text}");
            let wrong = Wrong::from(format!("a string that is no URL ({error})"));
            let plain = !text.contains(['@', '?', ' ']) && text.contains('.');
            return Err(if plain && http_url(&mended).is_ok() { wrong.near(mended) } else { wrong });
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("a URL with the scheme {:?}", url.scheme()).into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user or password, which would show in logs".into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("a URL without a host".into());
    }
    Ok(())
}

fn server_url(text: &str, schemes: &[&str]) -> Result<(), Wrong> {
    // The text is not shown: a URL may carry a password.
    let url = reqwest::Url::parse(text).map_err(|error| format!("a string that is no URL ({error})"))?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("a URL with the scheme {:?}", url.scheme()).into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user or password, which would show in logs".into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("a URL without a host".into());
    }
    Ok(())
}

fn syslog_url(text: &str) -> Result<(), Wrong> {
    match text.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => self::path(path),
        Some(_) => Err(format!("{text:?}, without an absolute path").into()),
        None if text.starts_with('/') => Err(Wrong::from(format!("the path {text:?}")).near(format!("unix://{text}"))),
        None => server_url(text, &["tcp", "tls"]),
    }
}

/// What a field in the header of a syslog message may be.
fn printable(text: &str, most: usize) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err("an empty string".into());
    }
    if text.len() <= most && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!("the string {text:?}").into())
}

fn sd_id(text: &str) -> Result<(), Wrong> {
    let word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.split_once('@') {
        Some((name, enterprise)) if word(name) && number(enterprise) && text.len() <= 32 => Ok(()),
        None if word(text) && text.len() <= 26 => {
            Err(Wrong::from(format!("{text:?}, without a number")).near(format!("{text}@32473")))
        }
        _ => Err(format!("the string {text:?}").into()),
    }
}

/// It begins with a text, so that the pattern of its template never takes in what others have.
fn index(text: &str) -> Result<(), Wrong> {
    let wrong = |(found, nearest)| Wrong { found, nearest };
    let pattern = Template::parse(text).map_err(wrong)?.pattern();
    let first = pattern.bytes().next().unwrap_or_default();
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.*".contains(&byte);
    if (first.is_ascii_lowercase() || first.is_ascii_digit()) && pattern.bytes().all(fits) && !text.contains('*') {
        return Ok(());
    }
    let wrong = Wrong::from(format!("the string {text:?}"));
    let mended = text.to_lowercase();
    Err(if mended != text && index(&mended).is_ok() { wrong.near(mended) } else { wrong })
}

fn broker(text: &str) -> Result<(), Wrong> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let port: Option<u16> = port.parse().ok().filter(|port| *port > 0);
    let host = !host.is_empty() && !host.contains(['/', ',', '@']) && !host.contains(char::is_whitespace);
    if host && port.is_some() { Ok(()) } else { Err(format!("the string {text:?}").into()) }
}

fn kafka_name(text: &str) -> Result<(), Wrong> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let plain = !text.is_empty() && text.len() <= 249 && text.bytes().all(fits) && !matches!(text, "." | "..");
    if plain { Ok(()) } else { Err(format!("the string {text:?}").into()) }
}

fn listen(text: &str) -> Result<(), Wrong> {
    match text.parse::<Listen>() {
        Ok(Listen::Unix(path)) if path.as_os_str().is_empty() => Err("a unix socket without a path".into()),
        Ok(_) => Ok(()),
        Err(_) => {
            let wrong = Wrong::from(format!("the string {text:?}"));
            let port = text.rsplit(':').next().unwrap_or_default();
            let host = text.strip_suffix(port).unwrap_or_default().trim_end_matches(':');
            Err(match (host, port.parse::<u16>()) {
                ("" | "localhost", Ok(port)) => wrong.near(format!("127.0.0.1:{port}")),
                ("*", Ok(port)) => wrong.near(format!("0.0.0.0:{port}")),
                ("localhost", _) | ("", Err(_)) if port.is_empty() || port == "localhost" => {
                    wrong.near("127.0.0.1:9465")
                }
                (_, Err(_)) if text.parse::<std::net::Ipv4Addr>().is_ok() => wrong.near(format!("{text}:9465")),
                _ => wrong,
            })
        }
    }
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A bare word is a level: tracing alone would take a misspelt level for the name of a module.
fn log_level(text: &str) -> Result<(), Wrong> {
    if text.trim().is_empty() {
        return Err("an empty string".into());
    }
    for directive in text.split(',').map(str::trim) {
        let word =
            if directive.contains([']', '}']) { continue } else { directive.rsplit('=').next().unwrap_or_default() };
        let bare_module = !directive.contains('=') && directive.contains("::");
        if !bare_module && !LEVELS.contains(&word.to_lowercase().as_str()) {
            let wrong = Wrong::from(format!("{word:?}, which is no level"));
            return Err(Wrong { nearest: level_near(word), ..wrong });
        }
    }
    EnvFilter::try_new(text).map(drop).map_err(|error| Wrong::from(format!("{text:?}: {error}")))
}

fn level_near(word: &str) -> Option<String> {
    match word.to_lowercase().as_str() {
        "warning" => Some("warn".to_owned()),
        "err" | "fatal" | "critical" => Some("error".to_owned()),
        "verbose" => Some("debug".to_owned()),
        "none" | "quiet" => Some("off".to_owned()),
        _ => nearest(word, LEVELS),
    }
}

/// Lower-case letters, digits and `-`, at most 63, `-` neither first nor last.
pub(super) fn is_dns_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// DNS labels with dots between them, at most 253 characters.
fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// What Kubernetes calls a label value: at most 63 of letters, digits, `-`, `_`, `.`, alphanumeric at both ends; may be empty.
fn is_label_value(text: &str) -> bool {
    let alphanumeric_at = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.is_empty()
        || (text.len() <= 63
            && alphanumeric_at(text.chars().next())
            && alphanumeric_at(text.chars().last())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
}

fn label_key(text: &str) -> Result<(), Wrong> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Err(format!("the label key {text:?}, whose prefix is no DNS name").into());
    }
    if name.is_empty() || !is_label_value(name) {
        return Err(format!("the label key {text:?}").into());
    }
    Ok(())
}

fn label_value(text: &str) -> Result<(), Wrong> {
    if is_label_value(text) { Ok(()) } else { Err(format!("the label value {text:?}").into()) }
}

/// Kubernetes' grammar: requirements with commas between them, all of which must hold; an empty text takes everything.
fn label_selector(text: &str) -> Result<(), Wrong> {
    if text.trim().is_empty() {
        return Ok(());
    }
    let mut depth = 0_u32;
    let mut start = 0;
    let mut requirements = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or_else(|| format!("{text:?}: a \")\" without its \"(\""))?,
            ',' if depth == 0 => {
                requirements.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(format!("{text:?}: a \"(\" without its \")\"").into());
    }
    requirements.push(&text[start..]);
    requirements.into_iter().try_for_each(|requirement| label_requirement(requirement.trim()))
}

fn label_requirement(text: &str) -> Result<(), Wrong> {
    if text.is_empty() {
        return Err("an empty requirement (a comma too many)".into());
    }
    if let Some(key) = text.strip_prefix('!') {
        return label_key(key.trim());
    }
    let (key, rest) = text.split_at(text.find([' ', '=', '!', '<', '>', '(', '\t']).unwrap_or(text.len()));
    label_key(key)?;
    let rest = rest.trim();
    if rest.is_empty() {
        return Ok(());
    }
    for operator in ["==", "!=", "="] {
        if let Some(value) = rest.strip_prefix(operator) {
            return label_value(value.trim());
        }
    }
    if let Some(number) = rest.strip_prefix(['<', '>']) {
        let number = number.trim();
        return if number.parse::<i64>().is_ok() {
            Ok(())
        } else {
            Err(format!("{number:?} where a number belongs").into())
        };
    }
    let word = rest.split([' ', '(', '\t']).next().unwrap_or_default();
    if !matches!(word, "in" | "notin") {
        let wrong = Wrong::from(format!("the operator {word:?} in {text:?} (operators: =, ==, !=, in, notin, <, >)"));
        let nearest = nearest(word, ["in", "notin"]).or_else(|| (word == "not").then(|| "notin".to_owned()));
        return Err(Wrong { nearest, ..wrong });
    }
    let list = rest[word.len()..].trim();
    let Some(list) = list.strip_prefix('(').and_then(|list| list.strip_suffix(')')) else {
        return Err(format!("{text:?}: no list in parentheses after {word:?}").into());
    };
    list.split(',').try_for_each(|value| label_value(value.trim()))
}

/// Kubernetes' grammar: `KEY=VALUE`, `==` or `!=`, with commas between; `\` escapes a comma, an equals sign, a backslash.
fn field_selector(text: &str) -> Result<(), Wrong> {
    if text.trim().is_empty() {
        return Ok(());
    }
    if let Some(odd) = text.chars().find(|c| c.is_control()) {
        return Err(format!("{text:?} with the character {odd:?}, which no field has").into());
    }
    let mut requirements = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = requirements.last_mut().expect("there is always a requirement");
        match c {
            // An escaped character is no operator: any letter stands for it here.
            '\\' => match chars.next() {
                Some(',' | '=' | '\\') => last.push('x'),
                other => {
                    let after = other.map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"));
                    return Err(format!("{text:?}: a backslash before {after}").into());
                }
            },
            ',' => requirements.push(String::new()),
            c => last.push(c),
        }
    }
    for requirement in requirements {
        let requirement = requirement.trim();
        if requirement.is_empty() {
            return Err(format!("{text:?}: an empty requirement (a comma too many)").into());
        }
        let operator = requirement.find(['=', '!']).map(|at| requirement.split_at(at));
        let Some((key, rest)) = operator else {
            let word = requirement.split_whitespace().nth(1).unwrap_or_default();
            let hint = if matches!(word, "in" | "notin") { ": field selectors have no sets" } else { "" };
            return Err(format!("{requirement:?} without =, == or !={hint}").into());
        };
        if key.trim().is_empty() {
            return Err(format!("{requirement:?} without a field").into());
        }
        let value = rest.strip_prefix("!=").or_else(|| rest.strip_prefix("==")).or_else(|| rest.strip_prefix('='));
        match value {
            None => return Err(format!("{requirement:?} without =, == or !=").into()),
            Some(value) if value.contains('=') => {
                return Err(format!("{requirement:?} with an = in its value, which has to be written \\=").into());
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn network(text: &str) -> Result<(), Wrong> {
    if text.parse::<IpNet>().is_ok() {
        return Ok(());
    }
    let wrong = Wrong::from(format!("the string {text:?}"));
    Err(match text.parse::<IpAddr>() {
        Ok(address) => wrong.near(IpNet::from(address).to_string()),
        Err(_) => wrong,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(format: &str, text: &str) -> String {
        check(format, text, Files::Check).unwrap_err().found
    }

    fn near(format: &str, text: &str) -> Option<String> {
        check(format, text, Files::Check).unwrap_err().nearest
    }

    #[test]
    fn right_texts_are_taken() {
        for (format, texts) in [
            ("time-span", &["30s", "1h30m", "30d", "2w", "250ms", " 1h 30m "][..]),
            ("period", &["10m", "1h", "1s", "0s1000ms", "off", "0"]),
            ("size", &["10GiB", "500MB", "1 KiB", "4096B"]),
            ("name", &["audit", "audit-2", "A_b.c", "9"]),
            (
                "resource",
                &["*", "pods", "deployments.apps", "*.example.com", "Pod", "leases.coordination.k8s.io", "*.*"],
            ),
            ("namespace", &["shop", "kube-system", "1"]),
            (
                "label-selector",
                &["", "tier=web", "a==b", "a != b", "a", "!a", "x.io/a in (b, c)", "a notin (),b", "n>3,n < 9", "a="],
            ),
            (
                "field-selector",
                &["", "metadata.name=x", "a!=b,c==d", "metadata.name=a\\,b", "spec.host=a\\=b", "status.phase="],
            ),
            ("http-url", &["http://127.0.0.1:9/x?y=1", "https://collector.example/", "http://[::1]/"]),
            ("listen", &["127.0.0.1:9465", "[::]:1", "/run/decklog/http.sock", "unix:x.sock"]),
            ("log-level", &["info", "WARN", "info,decklog::watch=debug", "decklog::journal", "warn,[span{a=1}]=trace"]),
            ("cel", &["true", "type == 'DELETED' || kind == \"Secret\"", "has(object.spec)"]),
            ("pointer-pattern", &["/metadata/managedFields", "/data/*password*", "/a~1b"]),
            ("ignore", &["heartbeats", "managed-fields", "status", "leader-election", "/status/conditions/*/x"]),
        ] {
            for text in texts {
                assert_eq!(check(format, text, Files::Check), Ok(()), "{format} {text:?}");
            }
        }
    }

    #[test]
    fn wrong_texts_are_told_with_the_nearest_right_one() {
        for (format, text, nearest) in [
            ("time-span", "30", Some("30s")),
            ("time-span", "3 days", Some("3d")),
            ("time-span", "0s", None),
            ("time-span", "-1s", None),
            ("time-span", "99999999999999999999s", None),
            ("period", "5 minutes", Some("5m")),
            ("period", "999ms", Some("1s")),
            ("period", "0s", Some("off")),
            ("period", "never", None),
            ("size", "10gb", Some("10GiB")),
            ("size", "10", Some("10B")),
            ("size", "0B", None),
            ("size", "lots", None),
            ("name", "my sink", Some("my-sink")),
            ("name", "", None),
            ("resource", "apps/v1/deployments", Some("deployments.apps")),
            ("resource", "apps/deployments", Some("deployments.apps")),
            ("resource", "de ploy", None),
            ("resource", "", None),
            ("namespace", "Kube_System", Some("kube-system")),
            ("namespace", "*", Some("[] (no namespaces means all of them)")),
            ("label-selector", "a im (b)", Some("in")),
            ("label-selector", "a not (b)", Some("notin")),
            ("label-selector", "a in b", None),
            ("label-selector", "a in (b", None),
            ("label-selector", "a)", None),
            ("label-selector", "a,,b", None),
            ("label-selector", "a=b c", None),
            ("label-selector", "-a=b", None),
            ("label-selector", "A_B/c=d", None),
            ("label-selector", "n>x", None),
            ("field-selector", "metadata.name", None),
            ("field-selector", "a in (b)", None),
            ("field-selector", "=b", None),
            ("field-selector", "a=b=c", None),
            ("field-selector", "a=b,", None),
            ("field-selector", "a\\b=c", None),
            ("http-url", "collector.example/x", Some("https://collector.example/x")),
            ("http-url", "ftp://collector.example/", None),
            ("http-url", "https://me:geheim@collector.example/", None),
            ("network", "10.0.0.1", Some("10.0.0.1/32")),
            ("network", "2001:db8::1", Some("2001:db8::1/128")),
            ("network", "10.0.0.0/33", None),
            ("network", "example.com", None),
            ("postgres-url", "db.example/audit", None),
            ("listen", "localhost:9465", Some("127.0.0.1:9465")),
            ("listen", ":80", Some("127.0.0.1:80")),
            ("listen", "9465", Some("127.0.0.1:9465")),
            ("listen", "10.0.0.1", Some("10.0.0.1:9465")),
            ("listen", "localhost", Some("127.0.0.1:9465")),
            ("listen", "unix:", None),
            ("log-level", "inof", Some("info")),
            ("log-level", "warning", Some("warn")),
            ("log-level", "info,decklog=verbose", Some("debug")),
            ("log-level", "", None),
            ("pointer-pattern", "metadata", None),
            ("ignore", "heartbeat", Some("heartbeats")),
            ("ignore", "managedFields", Some("managed-fields")),
            ("ignore", "leader_election", Some("leader-election")),
            ("ignore", "Status", Some("status")),
            ("ignore", "probes", None),
            ("ignore", "metadata/labels", None),
            ("ignore", "", None),
            ("cel", "", None),
        ] {
            assert_eq!(near(format, text).as_deref(), nearest, "{format} {text:?}");
        }
    }

    #[test]
    fn a_url_that_may_hold_a_secret_is_not_shown() {
        for url in ["https://me:geheim@x.example/", "gehe im", "geheim://x", "https://geheim@", "//geheim.x/?t=1"] {
            let wrong = check("http-url", url, Files::Check).unwrap_err();
            let scheme_only = url.starts_with("geheim:");
            assert!(scheme_only || !format!("{wrong:?}").contains("geheim"), "{wrong:?}");
        }
    }

    #[test]
    fn files_are_read_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let short = dir.path().join("key");
        std::fs::write(&short, "short").unwrap();
        let short = short.to_str().unwrap();
        assert!(found("key-file", short).ends_with("which has 5 bytes"));
        assert!(check("readable-file", short, Files::Check).is_ok());
        assert!(found("readable-file", dir.path().to_str().unwrap()).ends_with("which is a directory"));
        assert!(found("readable-file", "/nonexistent/x").contains("cannot be read: No such file"));
        assert!(check("readable-file", "/nonexistent/x", Files::Ignore).is_ok());
    }
}
