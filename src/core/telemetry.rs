//! decklog's own log: where its lines go, how they look, and which are written.
//!
//! No line holds a part of an object. Our own lines name resources, objects and versions only; libraries that quote
//! what they read or write are silenced here, whatever the configuration says. A panic says where it was, and not what
//! it was about.

mod settings;

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, IsTerminal, Write as _};

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use super::os;

pub use settings::{FORMATS, LogFormat, Settings};

/// Libraries whose lines below WARN are theirs alone to read. A directive of the configuration that names one wins.
const LIBRARIES: [&str; 12] = [
    "antlr4rust",
    "cel",
    "h2",
    "hyper",
    "hyper_util",
    "kube_client",
    "kube_runtime",
    "mio",
    "object_store",
    "reqwest",
    "rustls",
    "tower_http",
];

/// They quote what they read and write: the first the body of an answer that it could not read, which may hold a Secret,
/// the second its errors with all that is in them, the third the rows that it sends and the notices of triggers, which
/// hold entries, the fourth the answers to assistants.
const QUOTES_BODIES: [&str; 4] = ["kube_client::client", "kube_runtime::watcher", "tokio_postgres", "rmcp"];

/// All of its errors come back to the sink, which says them in a sentence: nobody is to read them twice.
const REPORTED_BY_ITS_SINK: &str = "async_nats";

/// From here on a panic of this process quotes nothing of what it was about: text that was not a character's end, a
/// value that was not expected. Where it was is enough to find it.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic_text(panic.payload());
        // Not a line of the log, because it may have been the log that panicked.
        let mut to = io::stderr().lock();
        drop(writeln!(to, "decklog: the thread {name} panicked at {place}: {text}; this is a bug, please report it"));
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            drop(writeln!(to, "{trace}"));
        }
    }));
}

/// Returns the message of a panic if it is a text of the program itself.
#[must_use]
pub fn panic_text(payload: &(dyn Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("(what it says may quote an object, and is not shown)")
}

/// The running log: what is written can be changed while it runs.
#[derive(Clone)]
pub struct Telemetry {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Begins the log of this process. Where journald is asked for and there is none, the log goes to standard error.
    ///
    /// # Errors
    /// Where the level is none, or a log has begun already.
    pub fn init(log: &Settings) -> Result<Self, String> {
        let looks = Looks::of_this_process();
        let (subscriber, telemetry, missing) = build(log, looks, io::stderr)?;
        subscriber.try_init().map_err(|error| error.to_string())?;
        if let Some(error) = missing {
            tracing::warn!(
                "log.format is \"journald\", but journald does not answer ({error}): logging to standard error"
            );
        }
        Ok(telemetry)
    }

    /// One that writes nothing.
    #[cfg(test)]
    pub(crate) fn unheard() -> Self {
        Self { filter: reload::Layer::new(EnvFilter::default()).1 }
    }

    /// Takes the level of a new configuration. The format stays as it was at the start.
    ///
    /// # Errors
    /// Where the level is none.
    pub fn reload(&self, log: &Settings) -> Result<(), String> {
        let filter = filter(&log.level)?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }
}

/// Style of the lines, by their destination.
#[derive(Clone, Copy, Debug)]
struct Looks {
    /// A terminal shows them, and its owner wants colours.
    colours: bool,
    /// systemd's journal takes them line by line: it knows the time, and reads the level from a prefix.
    journal: bool,
}

impl Looks {
    fn of_this_process() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let colours = io::stderr().is_terminal() && set("NO_COLOR").is_none() && !dumb;
        let journal = set("JOURNAL_STREAM").is_some_and(|stream| os::is_stderr(&stream));
        Self { colours, journal }
    }
}

type Boxed = Box<dyn Layer<Layered> + Send + Sync>;
type Layered = tracing_subscriber::layer::Layered<
    tracing_subscriber::filter::FilterFn,
    tracing_subscriber::layer::Layered<reload::Layer<EnvFilter, Registry>, Registry>,
>;

fn build<W>(
    log: &Settings,
    looks: Looks,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, Telemetry, Option<io::Error>), String>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(&log.level)?);
    let mut missing = None;
    let journald = match log.format {
        LogFormat::Journald => tracing_journald::layer().map_err(|error| missing = Some(error)).ok(),
        LogFormat::Text | LogFormat::Json => None,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(looks.colours);
    let layer: Boxed = match (log.format, journald) {
        (LogFormat::Journald, Some(journald)) => journald.boxed(),
        (LogFormat::Json, _) => lines.json().flatten_event(true).with_span_list(false).boxed(),
        (LogFormat::Text | LogFormat::Journald, _) if looks.journal => {
            lines.event_format(Prefixed(Format::default().without_time())).boxed()
        }
        (LogFormat::Text | LogFormat::Journald, _) => lines.boxed(),
    };
    let quiet: fn(&Metadata<'_>) -> bool = quotes_nothing;
    let subscriber = tracing_subscriber::registry().with(filter).with(filter_fn(quiet)).with(layer);
    Ok((subscriber, Telemetry { filter: handle }, missing))
}

fn quotes_nothing(metadata: &Metadata<'_>) -> bool {
    !QUOTES_BODIES.iter().any(|library| metadata.target().starts_with(library))
}

/// The directives of the configuration, over the quiet of the libraries.
fn filter(level: &str) -> Result<EnvFilter, String> {
    let loud = level.split(',').all(|word| !matches!(word.trim().to_lowercase().as_str(), "off" | "error"));
    let mut directives = vec![format!("{REPORTED_BY_ITS_SINK}=off")];
    if loud {
        directives.extend(LIBRARIES.map(|library| format!("{library}=warn")));
    }
    directives.push(level.to_owned());
    EnvFilter::try_new(directives.join(",")).map_err(|error| format!("log.level = {level:?}: {error}"))
}

/// Lines with the prefix that systemd reads the level from (sd-daemon(3)).
struct Prefixed<T>(Format<Full, T>);

impl<S, N, T> FormatEvent<S, N> for Prefixed<T>
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
    T: FormatTime,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    fn with(level: &str, format: LogFormat, looks: Looks, act: impl FnOnce(&Telemetry, &Lines)) {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = Settings { level: level.to_owned(), format };
        let (subscriber, telemetry, _) = build(&log, looks, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || act(&telemetry, &lines));
    }

    const PLAIN: Looks = Looks { colours: false, journal: false };

    #[test]
    fn text_is_plain_unless_a_terminal_shows_it() {
        with("info", LogFormat::Text, PLAIN, |_, lines| {
            tracing::info!(source = "pods", "listing");
            let line = lines.take();
            assert!(
                line.contains(" INFO ") && line.ends_with("listing source=\"pods\"\n") && !line.contains('\u{1b}'),
                "{line}"
            );
            assert!(line.starts_with("20"), "it begins with the time: {line}");
        });
        with("info", LogFormat::Text, Looks { colours: true, ..PLAIN }, |_, lines| {
            tracing::info!("x");
            assert!(lines.take().contains("\u{1b}["));
        });
    }

    #[test]
    fn for_the_journal_lines_carry_the_level_and_no_time() {
        with("debug", LogFormat::Text, Looks { journal: true, ..PLAIN }, |_, lines| {
            tracing::error!("a");
            tracing::warn!("b");
            tracing::info!("c");
            tracing::debug!("d");
            let text = lines.take();
            let begins: Vec<&str> = text.lines().map(|line| &line[..9]).collect();
            assert_eq!(begins, ["<3>ERROR ", "<4> WARN ", "<6> INFO ", "<7>DEBUG "]);
        });
    }

    #[test]
    fn json_is_one_object_a_line() {
        with("info", LogFormat::Json, PLAIN, |_, lines| {
            tracing::warn!(sink = "audit", "halted\nfor good");
            let line = lines.take();
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!((value["level"].as_str(), value["sink"].as_str()), (Some("WARN"), Some("audit")));
            assert_eq!((value["message"].as_str(), line.lines().count()), (Some("halted\nfor good"), 1));
        });
    }

    #[test]
    fn the_level_changes_while_the_log_runs() {
        with("info", LogFormat::Text, PLAIN, |telemetry, lines| {
            tracing::debug!("unseen");
            assert_eq!(lines.take(), "");
            let log = |level: &str| Settings { level: level.to_owned(), ..Settings::default() };
            telemetry.reload(&log("debug")).unwrap();
            tracing::debug!("seen");
            assert!(lines.take().contains("seen"));
            assert!(telemetry.reload(&log("a=b=c")).is_err());
            tracing::debug!("still seen");
            assert!(lines.take().contains("still seen"));
        });
    }

    #[test]
    fn libraries_are_quiet_and_what_quotes_bodies_is_silent() {
        with("debug", LogFormat::Text, PLAIN, |_, lines| {
            tracing::debug!(target: "hyper::proto", "chatter");
            tracing::warn!(target: "kube_client::client", "geheim");
            tracing::error!(target: "async_nats::connector", "authorization violation");
            assert_eq!(lines.take(), "");
            tracing::warn!(target: "hyper::proto", "worth a word");
            assert!(lines.take().contains("worth a word"));
        });
        with("info,hyper=debug,kube_client::client=trace", LogFormat::Text, PLAIN, |_, lines| {
            tracing::debug!(target: "hyper::proto", "asked for");
            tracing::warn!(target: "kube_client::client", "geheim");
            tracing::warn!(target: "kube_client::client::builder", "geheim");
            tracing::info!(target: "tokio_postgres::connection", "NOTICE: geheim");
            let text = lines.take();
            assert!(text.contains("asked for") && !text.contains("geheim"), "{text}");
        });
        with("error", LogFormat::Text, PLAIN, |_, lines| {
            tracing::warn!(target: "hyper::proto", "less than asked for");
            assert_eq!(lines.take(), "");
        });
    }
}
