//! Notifications to systemd: ready, reloading, stopping, a line of status, and the progress of every component.
//!
//! Outside of systemd there is nobody to report to, and nothing here does anything. Where one process has several daemons,
//! each reports to the process ([`Heard`]), which alone reports to systemd.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

/// Reports to the service manager how this service is.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    to: Option<Listener>,
}

#[derive(Clone, Debug)]
enum Listener {
    Systemd(Arc<UnixDatagram>),
    Process(Arc<Heard>),
}

/// Last reports of one of several daemons of this process.
#[derive(Debug, Default)]
pub struct Heard {
    ready: AtomicBool,
    line: Mutex<String>,
    /// Time at which every component had made progress.
    alive: Mutex<Option<Instant>>,
}

impl Heard {
    /// Reports whether it is ready, and neither ending nor ended.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Its line of status.
    #[must_use]
    pub fn line(&self) -> String {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the time of the last report that every component makes progress; none before the first.
    #[must_use]
    pub fn alive(&self) -> Option<Instant> {
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, states: &[NotifyState<'_>]) {
        for state in states {
            if let NotifyState::Ready | NotifyState::Stopping = state {
                self.ready.store(matches!(state, NotifyState::Ready), Ordering::Release);
            } else if let NotifyState::Status(line) = state {
                (*line).clone_into(&mut self.line.lock().unwrap_or_else(PoisonError::into_inner));
            } else if let NotifyState::Watchdog = state {
                *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
        }
    }
}

impl Notifier {
    /// The service manager that started this process, if one did and wants to hear of it.
    #[must_use]
    pub fn of_this_process() -> Self {
        let Some(address) = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            return Self::default();
        };
        Self::to(&address).unwrap_or_else(|error| {
            tracing::warn!("cannot reach systemd at {}: {error}", address.to_string_lossy());
            Self::default()
        })
    }

    /// The service manager behind this socket: a path, or an abstract address that begins with `@`.
    ///
    /// # Errors
    /// Where nobody listens there.
    pub fn to(address: &OsStr) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // The end of the queue may be far behind: a full one must not stop the caller.
        socket.set_nonblocking(true)?;
        match address.as_bytes() {
            [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            _ => socket.connect(address)?,
        }
        Ok(Self { to: Some(Listener::Systemd(Arc::new(socket))) })
    }

    /// For one of several daemons in this process.
    #[must_use]
    pub fn to_process(heard: Arc<Heard>) -> Self {
        Self { to: Some(Listener::Process(heard)) }
    }

    /// Every source has resumed or finished its first list; or a reload is done.
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// The configuration is being read again; [`Notifier::ready`] ends that.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    /// The daemon is ending.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// One line for `systemctl status`.
    pub fn status(&self, line: &str) {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.send(&[NotifyState::Status(&line)]);
    }

    /// A start that takes long, and gets on: systemd waits this much longer for [`Notifier::ready`].
    pub fn extend(&self, by: Duration) {
        self.send(&[NotifyState::ExtendTimeoutUsec(u32::try_from(by.as_micros()).unwrap_or(u32::MAX))]);
    }

    /// Every part makes progress.
    pub fn alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let socket = match &self.to {
            None => return,
            Some(Listener::Process(heard)) => return heard.hear(states),
            Some(Listener::Systemd(socket)) => socket,
        };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        if let Err(error) = socket.send(message.as_bytes()) {
            // Not being heard is no reason to stop: systemd draws its own conclusions.
            tracing::debug!("systemd did not take a message: {error}");
        }
    }
}

/// Proof of a component's progress. Dropped with the component, so that an ended one is not watched.
#[derive(Clone, Debug)]
pub struct Progress {
    probe: Arc<Probe>,
}

#[derive(Debug)]
struct Probe {
    name: String,
    beats: AtomicU64,
    resting: AtomicBool,
}

impl Progress {
    /// The component's loop has turned.
    pub fn beat(&self) {
        self.probe.resting.store(false, Ordering::Release);
        self.probe.beats.fetch_add(1, Ordering::Release);
    }

    /// The component counts its own turns, and this is the count: another one than before is progress.
    pub fn at(&self, count: u64) {
        self.probe.resting.store(false, Ordering::Release);
        self.probe.beats.store(count, Ordering::Release);
    }

    /// The component now waits for something that may never come: nothing is asked of it until its next beat.
    pub fn rest(&self) {
        self.probe.resting.store(true, Ordering::Release);
    }
}

/// Reports to systemd that the daemon is alive, as long as every component makes progress; once one does not, systemd
/// hears nothing more, and starts the daemon again.
#[derive(Debug)]
pub struct Watchdog {
    notifier: Notifier,
    patience: Duration,
    watched: Mutex<Vec<Watched>>,
}

#[derive(Debug)]
struct Watched {
    probe: Weak<Probe>,
    beats: u64,
    moved: Instant,
    reported: bool,
}

/// Longest standstill of a component if systemd does not set one (its `WatchdogSec`, halved).
const STALL_LIMIT: Duration = Duration::from_secs(30);

impl Watchdog {
    /// A watchdog with the patience that systemd asks of this process.
    #[must_use]
    pub fn new(notifier: &Notifier) -> Self {
        Self::with_patience(notifier, sd_notify::watchdog_enabled().map_or(STALL_LIMIT, |limit| limit / 2))
    }

    /// A watchdog that lets a component stand still this long.
    #[must_use]
    pub fn with_patience(notifier: &Notifier, patience: Duration) -> Self {
        Self { notifier: notifier.clone(), patience, watched: Mutex::new(Vec::new()) }
    }

    /// Returns the longest interval between two calls of [`Watchdog::look`].
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.patience / 2
    }

    /// From now on, this component has to make progress.
    #[must_use]
    pub fn watch(&self, name: impl Into<String>) -> Progress {
        let probe = Arc::new(Probe { name: name.into(), beats: AtomicU64::new(0), resting: AtomicBool::new(false) });
        let watched = Watched { probe: Arc::downgrade(&probe), beats: 0, moved: Instant::now(), reported: false };
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
        Progress { probe }
    }

    /// Looks at every component, and reports to systemd that the daemon is alive if all of them have made progress.
    /// `starting` says that READY is still to come. Returns the components that stand still.
    pub fn look(&self, starting: bool) -> Vec<String> {
        let still = self.still(Instant::now());
        if still.is_empty() {
            self.notifier.alive();
            if starting {
                self.notifier.extend(self.patience * 2);
            }
        }
        still
    }

    fn still(&self, now: Instant) -> Vec<String> {
        let mut still = Vec::new();
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).retain_mut(|watched| {
            let Some(probe) = watched.probe.upgrade() else { return false };
            let beats = probe.beats.load(Ordering::Acquire);
            if beats != watched.beats || probe.resting.load(Ordering::Acquire) {
                watched.beats = beats;
                watched.moved = now;
                watched.reported = false;
            } else if now.duration_since(watched.moved) > self.patience {
                if !watched.reported {
                    let seconds = now.duration_since(watched.moved).as_secs();
                    tracing::error!(
                        "{} has made no progress for {seconds} s: systemd's watchdog is not fed",
                        probe.name
                    );
                    watched.reported = true;
                }
                still.push(probe.name.clone());
            }
            true
        });
        still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Manager {
        socket: UnixDatagram,
        notifier: Notifier,
        _dir: tempfile::TempDir,
    }

    impl Manager {
        fn start() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("notify");
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_nonblocking(true).unwrap();
            let notifier = Notifier::to(path.as_os_str()).unwrap();
            Self { socket, notifier, _dir: dir }
        }

        /// What was sent since the last time. A datagram is there once `send` has returned, so nothing is waited for.
        fn heard(&self) -> Vec<String> {
            let mut heard = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(length) = self.socket.recv(&mut buffer) {
                heard.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
            }
            heard
        }
    }

    #[test]
    fn the_life_of_a_service_is_reported() {
        let manager = Manager::start();
        manager.notifier.status("seq 7;\n3 sources\u{1b}[2J");
        manager.notifier.ready();
        manager.notifier.reloading();
        manager.notifier.ready();
        manager.notifier.stopping();
        let heard = manager.heard();
        let reloading = heard[2].strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(reloading.trim_end().parse::<u64>().unwrap() > 0);
        assert_eq!(heard[0], "STATUS=seq 7; 3 sources [2J\n");
        assert_eq!([&heard[1], &heard[3], &heard[4]], ["READY=1\n", "READY=1\n", "STOPPING=1\n"]);
        assert_eq!(heard.len(), 5);
    }

    #[test]
    fn a_manager_that_does_not_listen_stops_nobody() {
        Notifier::default().ready();
        assert!(Notifier::to(OsStr::new("/nonexistent/notify")).is_err());
        let manager = Manager::start();
        // More than the socket's queue takes: the caller goes on.
        for _ in 0..10_000 {
            manager.notifier.ready();
        }
        assert!(!manager.heard().is_empty());
    }

    #[test]
    fn abstract_addresses_are_understood() {
        let name = format!("decklog-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::to(OsStr::new(&format!("@{name}"))).unwrap().ready();
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\n");
    }

    const STALL_LIMIT: Duration = Duration::from_secs(30);
    const ALIVE: &str = "WATCHDOG=1\n";

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_only_while_every_component_makes_progress() {
        let manager = Manager::start();
        let watchdog = Watchdog::with_patience(&manager.notifier, STALL_LIMIT);
        let writer = watchdog.watch("writer");
        let fleet = watchdog.watch("reading");
        assert!(watchdog.interval() < STALL_LIMIT);

        for turn in 1..5 {
            tokio::time::advance(watchdog.interval()).await;
            writer.beat();
            fleet.at(turn);
            assert_eq!(watchdog.look(false), [""; 0]);
            assert_eq!(manager.heard(), [ALIVE]);
        }
        // The writer hangs. It has its patience, and then systemd hears nothing, whatever the others do.
        for turn in 5..12 {
            tokio::time::advance(watchdog.interval()).await;
            fleet.at(turn);
            let still = watchdog.look(false);
            let patient = turn < 7;
            assert_eq!(still.is_empty(), patient, "turn {turn}");
            assert_eq!(manager.heard().len(), usize::from(patient), "turn {turn}");
        }
        assert_eq!(watchdog.look(false), ["writer"]);
        writer.beat();
        assert_eq!(watchdog.look(false), [""; 0]);
        assert_eq!(manager.heard(), [ALIVE]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_rests_or_is_gone_is_not_asked() {
        let manager = Manager::start();
        let watchdog = Watchdog::with_patience(&manager.notifier, STALL_LIMIT);
        let sink = watchdog.watch("sink");
        let gone = watchdog.watch("gone");
        sink.rest();
        drop(gone);
        for _ in 0..10 {
            tokio::time::advance(STALL_LIMIT).await;
            assert_eq!(watchdog.look(false), [""; 0]);
        }
        assert_eq!(manager.heard().len(), 10);
        // Awake again, its patience begins again.
        sink.beat();
        assert_eq!(watchdog.look(false), [""; 0]);
        tokio::time::advance(STALL_LIMIT + Duration::from_secs(1)).await;
        assert_eq!(watchdog.look(false), ["sink"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_start_that_gets_on_is_given_time() {
        let manager = Manager::start();
        let watchdog = Watchdog::with_patience(&manager.notifier, STALL_LIMIT);
        let fleet = watchdog.watch("reading");
        fleet.beat();
        watchdog.look(true);
        assert_eq!(manager.heard(), [ALIVE, "EXTEND_TIMEOUT_USEC=60000000\n"]);
        tokio::time::advance(STALL_LIMIT * 2).await;
        watchdog.look(true);
        assert_eq!(manager.heard(), [""; 0]);
    }
}
