//! What can go wrong in a simulation, each kind with its name and its count.

use std::sync::OnceLock;

/// The kinds of faults.
macro_rules! faults {
    ($($variant:ident $name:literal $gap:literal,)*) => {
        /// One kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($variant,)*
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// What it is called in the table.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Whether it may make changes unknowable: only then may the log have a GAP.
            pub const fn may_lose(self) -> bool {
                match self {
                    $(Self::$variant => $gap,)*
                }
            }
        }
    };
}

faults! {
    // network
    Refused "connection refused" false,
    Reset "reset before the answer" false,
    Hang "no answer" false,
    SlowHead "late answer" false,
    CutInLine "cut in the middle of a line" false,
    CutAfterLine "cut after a line" false,
    HalfOpen "half-open silence" false,
    SlowBody "slow body in pieces" false,
    Garbage "garbage bytes" true,
    CutList "list cut in the middle" false,
    // API server
    GoneAtStart "410 at the start of a watch" true,
    GoneInStream "410 in the stream" true,
    Compaction "compaction" true,
    Forgets "watch history forgotten" true,
    ExpiredContinue "expired continue token" false,
    TooMany "429 with Retry-After" false,
    Unavailable "503" false,
    Internal "500" true,
    Unauthorized "401" false,
    Forbidden "403" false,
    NotFound "404" false,
    Empty "empty 200" true,
    Undecodable "undecodable event" true,
    Oversize "oversize event" true,
    Repeated "repeated event" false,
    StaleProbe "stale API server: version too large" false,
    StaleList "stale API server: old list" false,
    TimeOut "end of the watch's time" false,
    NoBookmarks "bookmarks withheld" false,
    Restart "API server restarted" false,
    RestartEmpty "API server restarted with empty watch caches" false,
    ExactGone "exact list: 410" true,
    ExactNewest "exact list: another version" true,
    ExactUncounted "exact list: no count" true,
    ExactMiscounted "exact list: one too many or too few" true,
    Rollback "etcd put back from a backup" true,
    Undefined "definition deleted" true,
    Redefined "definition deleted and made anew" true,
    // disk
    SlowDisk "slow disk" false,
    CommitFails "commit fails" false,
    DiskFull "disk full" false,
    // the process
    Crash "crash" false,
    CrashInRecovery "crash during recovery" false,
    Stop "clean stop" false,
    // the clock
    ClockBack "clock set back" false,
    ClockForward "clock set forward" false,
    // sinks
    SinkRefused "sink: connection refused" false,
    SinkFails "sink: 5xx" false,
    SinkBusy "sink: 429" false,
    LostAnswer "sink: taken, answer lost" false,
    SinkTimeOut "sink: taken, timed out" false,
    SinkRefuses "sink: 4xx for ever" false,
    SinkPartial "sink: a part of the batch taken" false,
    TornTail "file: torn tail after a crash" false,
    Rotated "file: rotated" false,
    MovedAway "file: moved away, SIGHUP" false,
    // what is put back, lost, away or shared
    PutBack "state directory put back" false,
    PutBackAgain "state directory put back once more, or from before a loss" false,
    PutBackUnseen "state directory put back while outputs are away" false,
    StateLost "state directory lost" false,
    LostInThePast "clock set back before a new epoch" false,
    OutputPutBack "output put back" false,
    OutputOlder "output put back to before the journal was lost" false,
    OutputEmptied "output emptied" false,
    OutputReplaced "output replaced by an older copy under the running daemon" false,
    OutputAway "output away over starts" false,
    OutputHangs "output that takes connections and says nothing, over starts" false,
    SharedBySinks "output shared by two sinks" false,
    SharedByCopies "output shared by two decklogs with one journal" false,
    // servers of another kind, for a whole run
    EndsEarly "server that ends each watch after something new" false,
    FreshBookmark "server that ends each watch after a new bookmark" false,
    Opaque "server with versions without an order, that ends each watch after something new" false,
    PagesDiffer "server that pages with changing versions" false,
    // of other classes
    LongOutage "API server away for long" false,
    Selector "label selector changed by a reload" true,
    DropsRepeats "consumer that drops what has a key that it knows" false,
    AtLimit "all objects at the limit change at once" false,
}

/// Found by the machine and not repaired yet, or not yet to be borne: they strike only where that is asked for
/// ([`show`]).
pub const AWAITING_REPAIR: &[Fault] = &[];

static SHOWN: OnceLock<Vec<Fault>> = OnceLock::new();

/// From here on these strike too, of those that await their repair. Counts once.
pub fn show(faults: Vec<Fault>) {
    SHOWN.get_or_init(|| faults);
}

impl Fault {
    /// Whether it may strike.
    pub fn is_on(self) -> bool {
        !AWAITING_REPAIR.contains(&self) || SHOWN.get().is_some_and(|shown| shown.contains(&self))
    }
}

/// How often each kind has struck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(Vec<u64>);

impl Counts {
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(fault as usize).copied().unwrap_or_default()
    }

    pub fn add(&mut self, fault: Fault, times: u64) {
        self.0.resize(Fault::ALL.len(), 0);
        self.0[fault as usize] += times;
    }

    pub fn join(&mut self, other: &Self) {
        for fault in Fault::ALL {
            self.add(*fault, other.of(*fault));
        }
    }

    /// Kinds that have never struck.
    pub fn missing(&self) -> Vec<&'static str> {
        Fault::ALL.iter().filter(|fault| fault.is_on() && self.of(**fault) == 0).map(|fault| fault.name()).collect()
    }

    /// One line for each kind.
    pub fn table(&self) -> String {
        Fault::ALL.iter().map(|fault| format!("{:>9}  {}\n", self.of(*fault), fault.name())).collect()
    }
}
