//! Scripted trouble: which requests it meets, how often, and what it does to them.

mod refusal;

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

pub use refusal::{Answer, Refusal};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// GET of a collection.
    List,
    /// GET of a collection with `watch=true`.
    Watch,
    /// GET of one object.
    Get,
    /// POST, PUT, PATCH or DELETE.
    Write,
    /// Discovery, health, version.
    Other,
}

/// A request that the simulated API server has seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// GET, POST, ...
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query as it came, without the question mark.
    pub query: String,
    /// `user-agent` as it came.
    pub user_agent: String,
    /// `accept` as it came.
    pub accept: String,
    /// `accept-encoding` as it came.
    pub accept_encoding: String,
    /// `authorization` as it came.
    pub authorization: String,
    /// `if-none-match` as it came.
    pub if_none_match: String,
    /// What it asks for.
    pub asked: RequestKind,
    /// `pods`, `deployments.apps`: as kubectl spells it without ambiguity; absent for discovery.
    pub resource: Option<String>,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// When it came.
    pub at: Instant,
    /// The status of the answer, once it has begun; `None` also where there never was one.
    pub status: Option<u16>,
}

impl Seen {
    /// The value of a query parameter, decoded.
    #[must_use]
    pub fn param(&self, key: &str) -> Option<String> {
        let query = format!("/?{}", self.query).parse().ok()?;
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&query).ok()?;
        pairs.0.into_iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Whether it is a LIST of this resource.
    #[must_use]
    pub fn is_list(&self, resource: &str) -> bool {
        On::list(resource).matches(self)
    }

    /// Whether it is a WATCH of this resource.
    #[must_use]
    pub fn is_watch(&self, resource: &str) -> bool {
        On::watch(resource).matches(self)
    }
}

/// Which requests: the address of a fault, and of a count.
#[derive(Clone, Debug, Default)]
pub struct On {
    asked: Option<RequestKind>,
    resource: Option<String>,
    path: Option<String>,
    query: Option<String>,
}

impl On {
    /// Every request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// LISTs of `resource` (`pods`, `deployments.apps`; `*` for all).
    #[must_use]
    pub fn list(resource: &str) -> Self {
        Self::of(RequestKind::List, resource)
    }

    /// WATCHes of `resource`.
    #[must_use]
    pub fn watch(resource: &str) -> Self {
        Self::of(RequestKind::Watch, resource)
    }

    /// GETs of single objects of `resource`.
    #[must_use]
    pub fn get(resource: &str) -> Self {
        Self::of(RequestKind::Get, resource)
    }

    /// Writes of `resource`.
    #[must_use]
    pub fn write(resource: &str) -> Self {
        Self::of(RequestKind::Write, resource)
    }

    /// Whatever is asked at this very path, such as `/apis`.
    #[must_use]
    pub fn path(path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..Self::default() }
    }

    /// Only those whose query holds this text, such as `continue=` (for second pages).
    #[must_use]
    pub fn query(mut self, text: &str) -> Self {
        self.query = Some(text.to_owned());
        self
    }

    fn of(asked: RequestKind, resource: &str) -> Self {
        let resource = (resource != "*").then(|| resource.to_owned());
        Self { asked: Some(asked), resource, ..Self::default() }
    }

    /// Whether this request is one of them.
    #[must_use]
    pub fn matches(&self, seen: &Seen) -> bool {
        self.asked.is_none_or(|asked| asked == seen.asked)
            && (self.resource.is_none() || self.resource == seen.resource)
            && self.path.as_ref().is_none_or(|path| *path == seen.path)
            && self.query.as_ref().is_none_or(|text| seen.query.contains(text))
    }
}

/// A fault and its address: `Fault::new(On::watch("pods"), Act::cut_in_event(3)).after(1).times(2)`.
#[derive(Clone, Debug)]
pub struct Fault {
    on: On,
    skip: usize,
    shots: usize,
    act: Act,
}

impl Fault {
    /// Meets the next matching request, once.
    #[must_use]
    pub fn new(on: On, act: Act) -> Self {
        Self { on, skip: 0, shots: 1, act }
    }

    /// Leaves the first `requests` matching requests alone.
    #[must_use]
    pub fn after(mut self, requests: usize) -> Self {
        self.skip = requests;
        self
    }

    /// Meets this many requests.
    #[must_use]
    pub fn times(mut self, shots: usize) -> Self {
        self.shots = shots;
        self
    }

    /// Meets every matching request until [`heal`](super::Sim::heal).
    #[must_use]
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// Takes a shot at the request if it is one of those meant.
    pub(super) fn shoot(&mut self, seen: &Seen) -> Option<Act> {
        if self.shots == 0 || !self.on.matches(seen) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.shots != usize::MAX {
            self.shots -= 1;
        }
        Some(self.act.clone())
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.shots == 0
    }
}

/// What happens to the request.
#[derive(Clone, Debug)]
pub enum Act {
    /// This answer, and nothing of the cluster.
    Answer(Answer),
    /// The connection is reset before any answer.
    Reset,
    /// The request is taken and never answered.
    Hang,
    /// The answer comes later.
    Delay(Duration),
    /// The body comes in chunks of at most so many bytes, cut anywhere.
    Chop(usize),
    /// The right answer begins, and something happens to its body.
    Tamper(Tamper),
    /// A list says what is not so; other requests are answered.
    Lie(Lie),
    /// A list has these items behind its own, on its last page, unless it asks for one name: any bytes. Other requests are
    /// answered.
    Extra(Vec<Bytes>),
}

/// What a list says that is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The newest state under its own resourceVersion, whatever was asked for: some aggregated API servers ignore the
    /// parameters.
    Newest,
    /// Under the resourceVersion asked for, the state of so many revisions later (or earlier).
    Shifted(i64),
    /// `remainingItemCount` is not there.
    NoCount,
    /// `remainingItemCount` is so many too high (or too low, not below 0), also where it would not be there because
    /// nothing is left.
    Miscount(isize),
    /// Each page names a next one, whatever was asked for.
    Endless(Endless),
}

/// A list that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless {
    /// What is on its pages.
    pub page: EndlessPage,
    /// The token of the next page.
    pub token: EndlessToken,
    /// `remainingItemCount` of each page, as it is written; none leaves it out.
    pub left: Option<&'static str>,
}

/// What is on the pages of a list that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndlessPage {
    /// The same objects each time: those of the first page.
    Same,
    /// No object.
    Empty,
    /// Objects that never existed, so many of so many bytes on each page. They are other ones with each token.
    New(usize, usize),
}

/// The tokens of a list that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndlessToken {
    /// Always this text.
    Same(&'static str),
    /// So many tokens, by turns.
    Ring(u64),
    /// Another one each time.
    New,
}

impl EndlessToken {
    /// The token that leads to the page after the one that `token` led to.
    pub(super) fn after(self, token: &str, revision: u64) -> String {
        let next = Self::page(token) + 1;
        match self {
            Self::Same(text) => text.to_owned(),
            Self::Ring(length) => format!("page-{}-{revision}", next % length),
            Self::New => format!("page-{next}-{revision}"),
        }
    }

    /// The revision of the list that a token belongs to, where it says so.
    pub(super) fn revision(token: &str) -> Option<u64> {
        token.strip_prefix("page-")?.split_once('-')?.1.parse().ok()
    }

    /// The number of the page that a token leads to.
    pub(super) fn page(token: &str) -> u64 {
        let number = token.strip_prefix("page-").and_then(|rest| rest.split_once('-'));
        number.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
    }
}

/// Where in a body, what is changed, and how it goes on.
#[derive(Clone, Debug)]
pub struct Tamper {
    /// Where.
    pub at: At,
    /// What is changed there.
    pub how: How,
    /// What comes after that.
    pub then: Then,
}

/// A place in a body.
#[derive(Clone, Copy, Debug)]
pub enum At {
    /// After so many whole lines of a watch; 0 is before the first, even when none comes.
    Event(usize),
    /// After so many bytes.
    Byte(usize),
}

/// What is changed at that place. At a byte only `Nothing` and `Insert` have a meaning.
#[derive(Clone, Debug)]
pub enum How {
    /// Nothing.
    Nothing,
    /// This line comes in addition.
    Insert(Bytes),
    /// This line comes in place of the next event, which is lost.
    Replace(Bytes),
    /// Only the first half of the next event's line.
    Half,
    /// The last event once more.
    Again,
    /// The next event's line loses its second half, but not its line end: it can not be decoded.
    Garble,
    /// The next event's line is filled with blanks to at least so many bytes; it stays valid JSON.
    Pad(usize),
    /// The next two events change places.
    Swap,
}

/// How the body goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// As it would have.
    GoOn,
    /// It ends cleanly.
    End,
    /// The connection is closed without the end of the body.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more is sent, and the connection stays open.
    Stall,
}

impl Act {
    /// Tampers with the body.
    #[must_use]
    pub const fn tamper(at: At, how: How, then: Then) -> Self {
        Self::Tamper(Tamper { at, how, then })
    }

    /// Closes the connection after so many whole events.
    #[must_use]
    pub const fn cut_after_events(events: usize) -> Self {
        Self::tamper(At::Event(events), How::Nothing, Then::Cut)
    }

    /// Closes the connection in the middle of the line that follows so many whole events.
    #[must_use]
    pub const fn cut_in_event(events: usize) -> Self {
        Self::tamper(At::Event(events), How::Half, Then::Cut)
    }

    /// Closes the connection after so many bytes of the body.
    #[must_use]
    pub const fn cut_after_bytes(bytes: usize) -> Self {
        Self::tamper(At::Byte(bytes), How::Nothing, Then::Cut)
    }

    /// Ends the stream cleanly after so many events.
    #[must_use]
    pub const fn end_after_events(events: usize) -> Self {
        Self::tamper(At::Event(events), How::Nothing, Then::End)
    }

    /// Falls silent after so many events.
    #[must_use]
    pub const fn stall_after_events(events: usize) -> Self {
        Self::tamper(At::Event(events), How::Nothing, Then::Stall)
    }

    /// Sends this line after so many events, then goes on.
    #[must_use]
    pub fn insert(events: usize, line: impl Into<Bytes>) -> Self {
        Self::tamper(At::Event(events), How::Insert(line.into()), Then::GoOn)
    }

    /// Sends this line in place of the event that follows so many, then goes on.
    #[must_use]
    pub fn replace(events: usize, line: impl Into<Bytes>) -> Self {
        Self::tamper(At::Event(events), How::Replace(line.into()), Then::GoOn)
    }

    /// Sends the last of so many events twice.
    #[must_use]
    pub const fn repeat(events: usize) -> Self {
        Self::tamper(At::Event(events), How::Again, Then::GoOn)
    }

    /// The event that follows so many can not be decoded; the stream goes on after it.
    #[must_use]
    pub const fn undecodable(events: usize) -> Self {
        Self::tamper(At::Event(events), How::Garble, Then::GoOn)
    }

    /// The event that follows so many comes in a line of at least so many bytes.
    #[must_use]
    pub const fn oversize(events: usize, bytes: usize) -> Self {
        Self::tamper(At::Event(events), How::Pad(bytes), Then::GoOn)
    }

    /// The two events that follow so many change places.
    #[must_use]
    pub const fn swap(events: usize) -> Self {
        Self::tamper(At::Event(events), How::Swap, Then::GoOn)
    }

    /// The body ends cleanly after so many bytes, as if that were all of it.
    #[must_use]
    pub const fn end_after_bytes(bytes: usize) -> Self {
        Self::tamper(At::Byte(bytes), How::Nothing, Then::End)
    }

    /// The body falls silent after so many bytes.
    #[must_use]
    pub const fn stall_after_bytes(bytes: usize) -> Self {
        Self::tamper(At::Byte(bytes), How::Nothing, Then::Stall)
    }

    /// An ERROR event after so many events, then the end, as the API server does it.
    #[must_use]
    pub fn error_event(events: usize, refusal: &Refusal) -> Self {
        Self::tamper(At::Event(events), How::Insert(refusal.event_line()), Then::End)
    }

    /// Answers with a Status.
    #[must_use]
    pub fn refuse(refusal: &Refusal) -> Self {
        Self::Answer(refusal.answer())
    }

    /// 429 of API Priority and Fairness: plain text.
    #[must_use]
    pub fn flow_control(retry_after: u32) -> Self {
        Self::Answer(Answer {
            status: 429,
            content_type: "text/plain; charset=utf-8",
            retry_after: Some(retry_after),
            body: Bytes::from_static(b"Too many requests, please try again later.\n"),
        })
    }

    /// What a proxy in front of the API server says.
    #[must_use]
    pub fn html(status: u16) -> Self {
        let body =
            format!("<html>\r\n<head><title>{status}</title></head>\r\n<body>no healthy upstream</body></html>\r\n");
        Self::Answer(Answer { status, content_type: "text/html", retry_after: None, body: body.into() })
    }

    /// 200 with nothing in it, closed at once (kubernetes/kubernetes#137089).
    #[must_use]
    pub const fn empty() -> Self {
        Self::Answer(Answer { status: 200, content_type: "application/json", retry_after: None, body: Bytes::new() })
    }
}

/// What the server does to the watches of one resource that are open now, once they have sent all
/// that happened before.
#[derive(Clone, Debug)]
pub enum Signal {
    /// They end cleanly, as when the server shuts down or their time is over.
    End,
    /// Their connections are closed without the end of the body.
    Cut,
    /// Their connections are reset.
    Reset,
    /// They fall silent.
    Stall,
    /// They send an ERROR event and end.
    Error(Refusal),
    /// They send this line, which brings its own line end, and go on.
    Line(Bytes),
    /// They send a bookmark, if bookmarks were asked for.
    Bookmark,
}
