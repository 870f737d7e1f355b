//! The connection to one Redis server, and what its answers mean.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, RedisConnectionInfo, RedisError, ServerError, Value};
use tokio::task::JoinSet;

use super::Id;
use super::Settings;
use super::settings::PORT;
use crate::core::credential_files::Followed;
use crate::sink::connect::{Server, within};
use crate::sink::link::chain;
use crate::sink::{LogPosition, SinkError};

/// The most bytes that Redis takes in one value by default.
const LARGEST: u64 = 512 << 20;

/// An entry as a stream has it: its id there, and its fields.
pub(super) type Stored = (String, Vec<(String, Vec<u8>)>);

/// The end of a stream.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    /// The last id that it took, also where the entry is gone by now.
    pub(super) last: Id,
    /// The entry of that id.
    pub(super) end: End,
    /// The first id that is there.
    pub(super) first: Option<Id>,
    /// The last id that a consumer has taken out one by one, where the server says it (Redis 7).
    pub(super) deleted: Option<Id>,
}

/// Last entry of a stream.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// An entry of the log.
    Entry(LogPosition),
    /// An entry that decklog did not write.
    Foreign,
    /// An entry that was removed.
    Gone,
}

/// The place in the log of an entry, from its fields.
pub(super) fn position(fields: &[(String, Vec<u8>)]) -> Option<LogPosition> {
    let (_, line) = fields.iter().find(|(name, _)| name == "entry")?;
    LogPosition::of(line).ok()
}

pub(super) struct Link {
    server: Server,
    info: RedisConnectionInfo,
    password: Option<Followed>,
    timeout: Duration,
    session: Option<Session>,
}

struct Session {
    connection: MultiplexedConnection,
    largest: u64,
    /// Moves the bytes for as long as the connection is used.
    _driver: JoinSet<()>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("server", &self.server.shown).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(config: &Settings) -> Result<Self, String> {
        let mut info = RedisConnectionInfo::default().set_lib_name("decklog", env!("CARGO_PKG_VERSION"));
        if let Some(database) = config.url.database {
            info = info.set_db(database.into());
        }
        if let Some(user) = &config.user {
            if config.password_file.is_none() {
                return Err("`user` needs `password_file`".to_owned());
            }
            info = info.set_username(user);
        }
        Ok(Self {
            server: Server::new(&config.url.server, "rediss", PORT, &config.tls)?,
            info,
            password: config.password_file.as_deref().map(Followed::new),
            timeout: *config.timeout,
            session: None,
        })
    }

    pub(super) fn shown(&self) -> &str {
        &self.server.shown
    }

    /// The connection is made again, and files must be readable then.
    pub(super) fn renew(&mut self) {
        self.session = None;
        self.server.forget();
        if let Some(password) = &mut self.password {
            password.forget();
        }
    }

    /// Returns the largest value that the server accepts, in bytes.
    pub(super) fn largest(&self) -> u64 {
        self.session.as_ref().map_or(LARGEST, |session| session.largest)
    }

    /// There is a connection, with the credentials that hold now. Returns whether it is a new one.
    pub(super) async fn ready(&mut self) -> Result<bool, SinkError> {
        let mut other = self.server.changed().await?;
        if let Some(password) = &mut self.password {
            other |= password.refresh().await?;
        }
        if self.session.is_some() && !other {
            return Ok(false);
        }
        self.session = None;
        let mut info = self.info.clone();
        if let Some(password) = &self.password {
            info = info.set_password(password.text()?);
        }
        let stream = self.server.connect(self.timeout).await?;
        // The time that is waited is bounded here, for a batch as a whole.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opening = async {
            let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
            opened.map_err(|error| self.failed(error))
        };
        let (connection, driving) = within(self.timeout, &self.server.shown, opening).await?;
        let mut driver = JoinSet::new();
        driver.spawn(driving);
        self.session = Some(Session { connection, largest: LARGEST, _driver: driver });
        let mut limit = redis::cmd("CONFIG");
        limit.arg("GET").arg("proto-max-bulk-len");
        // Whoever may not ask gets the limit that nearly every server has.
        let limit: Option<Vec<String>> = self.ask_plainly(&limit).await?.ok();
        if let (Some(session), Some([_, bytes])) = (&mut self.session, limit.as_deref()) {
            session.largest = bytes.parse().unwrap_or(LARGEST);
        }
        // Where a transaction could not begin, what is meant for it would be done all the same.
        self.ask::<()>(&redis::cmd("MULTI")).await?;
        self.ask::<()>(&redis::cmd("DISCARD")).await?;
        Ok(true)
    }

    /// One command.
    pub(super) async fn ask<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T, SinkError> {
        self.ask_plainly(command).await?.map_err(|error| self.refused(error))
    }

    /// One command, whose refusal is an answer.
    async fn ask_plainly<T: FromRedisValue>(
        &mut self,
        command: &redis::Cmd,
    ) -> Result<Result<T, RedisError>, SinkError> {
        let Some(session) = &mut self.session else { return Err(SinkError::retry("the connection is not set up")) };
        let asked = async { Ok(command.query_async(&mut session.connection).await) };
        match within(self.timeout, &self.server.shown, asked).await {
            Ok(Err(error)) if error.clone().into_server_errors().is_some() => Ok(Err(error)),
            Ok(Err(error)) => Err(self.refused(error)),
            Ok(Ok(answer)) => Ok(Ok(answer)),
            Err(error) => {
                self.session = None;
                Err(error)
            }
        }
    }

    /// Returns the meaning of a failure. The next attempt makes a new connection: after a failover another server may have the
    /// name, and the checks of a new connection have to be repeated.
    fn refused(&mut self, error: RedisError) -> SinkError {
        self.session = None;
        self.failed(error)
    }

    /// The end of a stream; none where there is no such stream.
    pub(super) async fn tail(&mut self, stream: &str) -> Result<Option<Tail>, SinkError> {
        let mut info = redis::cmd("XINFO");
        info.arg("STREAM").arg(stream);
        let answer = self.ask_plainly::<std::collections::HashMap<String, Value>>(&info).await?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.detail().is_some_and(|text| text.contains("no such key")) => return Ok(None),
            Err(error) => return Err(self.refused(error)),
        };
        let id = |name: &str| {
            let id = answer.get(name).and_then(|id| String::from_redis_value_ref(id).ok());
            id.as_deref().and_then(Id::parse)
        };
        let entry = |name: &str| answer.get(name).and_then(|entry| Stored::from_redis_value_ref(entry).ok());
        let last = id("last-generated-id");
        let last =
            last.ok_or_else(|| SinkError::retry(format!("{} does not say where {stream} ends", self.shown())))?;
        let end = match entry("last-entry") {
            Some((id, fields)) if Id::parse(&id) == Some(last) => position(&fields).map_or(End::Foreign, End::Entry),
            _ => End::Gone,
        };
        let first = entry("first-entry").and_then(|(id, _)| Id::parse(&id));
        Ok(Some(Tail { last, end, first, deleted: id("max-deleted-entry-id") }))
    }

    /// Returns the first entry of a stream at an id or after it.
    pub(super) async fn first_from(&mut self, stream: &str, id: Id) -> Result<Option<Stored>, SinkError> {
        let mut range = redis::cmd("XRANGE");
        range.arg(stream).arg(id.to_string()).arg("+").arg("COUNT").arg(1);
        let found: Vec<Stored> = self.ask(&range).await?;
        Ok(found.into_iter().next())
    }

    /// Returns the entry of a stream with an id.
    pub(super) async fn entry(&mut self, stream: &str, id: Id) -> Result<Option<Stored>, SinkError> {
        let mut range = redis::cmd("XRANGE");
        range.arg(stream).arg(id.to_string()).arg(id.to_string());
        let found: Vec<Stored> = self.ask(&range).await?;
        Ok(found.into_iter().next())
    }

    /// All of these commands, or none. Gives the answer of each.
    pub(super) async fn transaction(&mut self, commands: Vec<redis::Cmd>) -> Result<Vec<Value>, SinkError> {
        let answers = self.exchange(commands).await;
        if answers.is_err() {
            // As after any other refusal.
            self.session = None;
        }
        answers
    }

    async fn exchange(&mut self, commands: Vec<redis::Cmd>) -> Result<Vec<Value>, SinkError> {
        let count = commands.len();
        // The crate's own transactions panic where MULTI is refused.
        let mut pipeline = Pipeline::with_capacity(count + 2);
        pipeline.add_command(redis::cmd("MULTI"));
        for command in commands {
            pipeline.add_command(command);
        }
        pipeline.add_command(redis::cmd("EXEC"));
        let Some(session) = &mut self.session else { return Err(SinkError::retry("the connection is not set up")) };
        let sent = async { Ok(session.connection.send_packed_commands(&pipeline, 0, count + 2).await) };
        let answered = within(self.timeout, &self.server.shown, sent).await?;
        let mut answers = answered.map_err(|error| self.failed(error))?;
        let done = answers.pop();
        // What was refused before the end says why; the end only says that something was.
        if let Some(error) = answers.iter().find_map(refusal) {
            return Err(self.meaning(error));
        }
        match done {
            Some(Value::Array(answers)) if answers.len() == count => Ok(answers),
            Some(Value::ServerError(error)) => Err(self.meaning(&error)),
            _ => Err(SinkError::retry(format!("{} gave an answer that is none to a transaction", self.shown()))),
        }
    }

    /// Checks whether a stream could be written to.
    pub(super) async fn rehearse(&mut self, stream: &str) -> Result<(), SinkError> {
        self.ask::<()>(&redis::cmd("MULTI")).await?;
        let mut add = redis::cmd("XADD");
        add.arg(stream).arg("1-1").arg("entry").arg("");
        let allowed = self.ask_plainly::<()>(&add).await?;
        // A transaction that had an error is given up in the same way.
        self.ask::<()>(&redis::cmd("DISCARD")).await?;
        allowed.map_err(|error| self.refused(error))
    }

    /// Returns the meaning of a failure.
    fn failed(&self, error: RedisError) -> SinkError {
        match error.clone().into_server_errors().as_deref().and_then(<[_]>::first) {
            Some((_, error)) => self.meaning(error),
            None if error.kind() == redis::ErrorKind::AuthenticationFailed => self.credentials(error.detail()),
            None if error.to_string().contains("switch database") => SinkError::halt(format!(
                "{} does not have the database whose number is in `url`; correct it and send SIGHUP",
                self.shown()
            )),
            None if error.kind() == redis::ErrorKind::Parse => {
                SinkError::retry(format!("{} does not answer as Redis does; set `url` to a Redis server", self.shown()))
            }
            None => SinkError::retry(format!("no answer from {}: {}", self.shown(), chain(&error))),
        }
    }

    fn credentials(&self, said: Option<&str>) -> SinkError {
        let text = format!(
            "{} refuses the credentials{}; correct `user` and the password in `password_file`, which is read again before each try",
            self.shown(),
            said.map(|said| format!(" ({said})")).unwrap_or_default()
        );
        SinkError::renew(text)
    }

    /// Returns the meaning of a refused command.
    pub(super) fn meaning(&self, error: &ServerError) -> SinkError {
        let (shown, said) = (self.shown(), error.details().unwrap_or_default().trim_end_matches('.'));
        let answered = format!("{shown} answered {} {said}", error.code());
        match error.code() {
            "NOAUTH" | "WRONGPASS" => self.credentials(Some(said)),
            "ERR" if said.contains("AUTH") || said.contains("invalid password") => self.credentials(Some(said)),
            "NOPERM" => SinkError::renew(format!(
                "{answered}; give the user the rights +multi, +exec, +discard, +xadd, +xrange, +xinfo and +config|get, and the keys of the streams"
            )),
            "WRONGTYPE" => SinkError::halt(format!(
                "{shown} has something else than a stream under the name in `stream`; choose another name, or remove it, and send SIGHUP"
            )),
            "OOM" => SinkError::retry(format!(
                "{shown} has no memory left (maxmemory); trim the stream, set `max_len` or give it more"
            )),
            "READONLY" => SinkError::retry(format!(
                "{shown} is a replica, which takes no writes; set `url` to the primary, unless a failover is under way"
            )),
            "MOVED" | "ASK" => SinkError::renew(format!(
                "{answered}: the stream is on another node of the cluster; set `url` to that one"
            )),
            "CROSSSLOT" => SinkError::halt(format!(
                "{shown} is a cluster that keeps the streams on several nodes; give `stream` a fixed name, and send SIGHUP"
            )),
            "MISCONF" | "NOREPLICAS" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY" | "EXECABORT" => {
                SinkError::retry(answered)
            }
            "ERR" if said.starts_with("unknown command") => SinkError::halt(format!(
                "{answered}; decklog needs Redis 5 or later, with streams; give it one, and send SIGHUP"
            )),
            _ => SinkError::retry(answered),
        }
    }
}

fn refusal(answer: &Value) -> Option<&ServerError> {
    if let Value::ServerError(error) = answer { Some(error) } else { None }
}

/// Reports whether the server has this id or a later one already.
pub(super) fn is_not_greater(error: &ServerError) -> bool {
    error.details().is_some_and(|text| text.contains("equal or smaller"))
}
