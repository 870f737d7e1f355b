//! The connection to one database: whom it trusts, who it says it is, and what its errors mean.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTls;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::schema::{self, Statements};
use super::{Settings, settings};
use crate::core::credential_files::Followed;
use crate::sink::link::cause;
use crate::sink::tls::Tls;
use crate::sink::{SinkError, UNNAMED};

/// Address of the database, and the parameters of the connection.
pub(super) struct Connector {
    config: Config,
    /// Text for people: the hosts and the database, never a password.
    pub(super) shown: String,
    /// The user that decklog is there.
    pub(super) user: String,
    /// The name of the sink: the cursor is kept under it.
    pub(super) sink: String,
    pub(super) schema: String,
    pub(super) statements: Statements,
    password: Option<Followed>,
    /// None where the connection is not encrypted.
    tls: Option<Tls>,
    timeout: Duration,
}

/// A connection.
pub(super) struct Link {
    pub(super) client: Client,
    /// Task that drives the connection. It ends with this value.
    _connection: JoinSet<()>,
}

impl Connector {
    pub(super) fn new(config: &Settings) -> Result<Self, String> {
        let mut server = config.url.config().clone();
        let local = server.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let encrypted = config.sslmode == settings::SslMode::VerifyFull && !local;
        server.ssl_mode(if encrypted { SslMode::Require } else { SslMode::Disable });
        server.application_name("decklog").connect_timeout(*config.timeout).tcp_user_timeout(*config.timeout);
        server.keepalives_idle(Duration::from_secs(30));
        if server.get_hosts().len() > 1 {
            // Of several, the one that can be written to.
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = Tls::new(&config.tls)?;
        Ok(Self {
            shown: config.url.place(),
            user: server.get_user().unwrap_or_default().to_owned(),
            config: server,
            sink: UNNAMED.to_owned(),
            schema: config.schema.clone(),
            statements: Statements::of(&config.schema),
            password: config.password_file.as_deref().map(Followed::new),
            tls: encrypted.then_some(tls),
            timeout: *config.timeout,
        })
    }

    /// The files must be readable at the next use.
    pub(super) fn forget(&mut self) {
        self.password.iter_mut().for_each(Followed::forget);
        self.tls.iter_mut().for_each(Tls::forget);
    }

    /// Reads the files that there are. Returns whether connections have to be made again.
    pub(super) async fn refresh(&mut self) -> Result<bool, SinkError> {
        let mut other = false;
        if let Some(file) = &mut self.password {
            other |= file.refresh().await?;
        }
        if let Some(tls) = &mut self.tls {
            other |= tls.refresh().await?.1;
        }
        Ok(other)
    }

    /// Connects, and no more.
    pub(super) async fn open(&mut self) -> Result<Link, SinkError> {
        let mut config = self.config.clone();
        if let Some(file) = &mut self.password {
            file.refresh().await?;
            config.password(file.text()?);
        }
        let tls = match &mut self.tls {
            Some(tls) => Some(tls.refresh().await?.0),
            None => None,
        };
        let mut connection = JoinSet::new();
        let connecting = async {
            Ok::<_, Error>(if let Some(tls) = tls {
                let (client, driver) = config.connect(MakeRustlsConnect::new((*tls).clone())).await?;
                connection.spawn(async { drop(driver.await) });
                client
            } else {
                let (client, driver) = config.connect(NoTls).await?;
                connection.spawn(async { drop(driver.await) });
                client
            })
        };
        let client = self.within(connecting).await?.map_err(|error| self.trouble(&error))?;
        Ok(Link { client, _connection: connection })
    }

    /// Connects to tables that this decklog can deliver to.
    pub(super) async fn enter(&mut self) -> Result<Link, SinkError> {
        let link = self.open().await?;
        match self.version(&link).await? {
            Some(schema::VERSION) => Ok(link),
            _ => Err(SinkError::halt(format!(
                "the schema {} of {} does not have the tables that decklog needs; run `decklog sink init {}`, or apply what it prints with --print, and send SIGHUP",
                self.schema, self.shown, self.sink
            ))),
        }
    }

    /// Returns the version of the tables: this one, an older one, or none. A newer one is an error.
    pub(super) async fn version(&self, link: &Link) -> Result<Option<i32>, SinkError> {
        let asking = link.client.query_typed_one(&self.statements.version, &[]);
        let found = match self.within(asking).await? {
            Ok(row) => row.try_get(0),
            Err(error) if error.code().is_some_and(is_absent) => return Ok(None),
            Err(error) => Err(error),
        };
        match found.map_err(|error| self.trouble(&error))? {
            Some(newer) if newer > schema::VERSION => Err(SinkError::halt(format!(
                "the tables in the schema {} of {} are of a newer decklog (version {newer}); use that one",
                self.schema, self.shown
            ))),
            found => Ok(found),
        }
    }

    /// Returns those pairs of table and privilege that are missing: tables, and privileges on existing ones.
    pub(super) async fn missing(
        &self,
        client: &Client,
        rights: &[(&str, &str)],
    ) -> Result<(Vec<String>, Vec<String>), Error> {
        let (tables, rights): (Vec<&str>, Vec<&str>) = rights.iter().copied().unzip();
        let asked = [
            super::text(&self.schema),
            (&tables as &(dyn ToSql + Sync), Type::TEXT_ARRAY),
            (&rights, Type::TEXT_ARRAY),
        ];
        let (mut absent, mut forbidden) = (Vec::new(), Vec::new());
        for row in client.query_typed(schema::MISSING, &asked).await? {
            let (table, right): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            match row.try_get(2)? {
                true => absent.push(table),
                false => forbidden.push(format!("{right} on {table}")),
            }
        }
        absent.sort_unstable();
        absent.dedup();
        Ok((absent, forbidden))
    }

    /// Checks that these privileges can be used.
    pub(super) async fn examine(&mut self, link: &Link, rights: &[(&str, &str)]) -> Result<(), SinkError> {
        let looking = async {
            let standby =
                link.client.query_typed_one("SELECT pg_catalog.pg_is_in_recovery()", &[]).await?.try_get(0)?;
            Ok::<(bool, _), Error>((standby, self.missing(&link.client, rights).await?))
        };
        let looked = self.within(looking).await?;
        let (standby, (absent, forbidden)) = looked.map_err(|error| self.trouble(&error))?;
        let (shown, schema, sink) = (&self.shown, &self.schema, &self.sink);
        if standby {
            return Err(SinkError::retry(format!("{shown} is a standby; `url` should name the primary")));
        }
        if !absent.is_empty() {
            return Err(SinkError::halt(format!(
                "the schema {schema} of {shown} has no table {}; run `decklog sink init {sink}`, or apply what it prints with --print",
                absent.join(", "),
            )));
        }
        if !forbidden.is_empty() {
            return Err(SinkError::halt(format!(
                "the user {} has no right to {} in the schema {schema} of {shown}; grant what `decklog sink init {sink} --print` says",
                self.user,
                forbidden.join(", "),
            )));
        }
        // Says what the version of the tables is worth.
        self.enter().await.map(drop)
    }

    /// Bounds what is waited for.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, SinkError> {
        tokio::time::timeout(self.timeout, work).await.map_err(|_elapsed| self.late())
    }

    /// No answer in time.
    pub(super) fn late(&self) -> SinkError {
        SinkError::retry(format!("{} did not answer within {:?}", self.shown, self.timeout))
    }

    /// Returns the meaning of an error, without parts of the message that may quote an entry.
    pub(super) fn trouble(&self, error: &Error) -> SinkError {
        let at = &self.shown;
        let Some(db) = error.as_db_error() else {
            let text = cause(error);
            let hint = [
                (
                    "does not support TLS",
                    "; turn it on there, or set sslmode = \"disable\" where the network is trusted",
                ),
                ("password missing", ": it asks for one; set `password_file`"),
            ];
            let hint = hint.iter().find_map(|(said, hint)| text.contains(said).then_some(*hint)).unwrap_or_default();
            return SinkError::retry(format!("no connection with {at}: {text}{hint}"));
        };
        let (code, said) = (db.code(), db.message());
        let class = code.code().get(..2).unwrap_or_default();
        if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
            return SinkError::renew(format!(
                "{at} does not let the user {} in: {said}; correct `password_file` or `cert_file`, which are read again before each try, or the server's pg_hba.conf",
                self.user
            ));
        }
        if *code == SqlState::INVALID_CATALOG_NAME {
            return SinkError::halt(format!("{at}: {said}; create it and send SIGHUP"));
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return SinkError::halt(format!(
                "{at}: {said}; grant the user {} what `decklog sink init {} --print` says, and send SIGHUP",
                self.user, self.sink
            ));
        }
        if is_absent(code) || *code == SqlState::UNDEFINED_COLUMN {
            return SinkError::halt(format!("{at}: {said}; run `decklog sink init {}` and send SIGHUP", self.sink));
        }
        // The second is said to whoever begins to write there.
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION
            || (*code == SqlState::FEATURE_NOT_SUPPORTED && said.contains("recovery"))
        {
            return SinkError::retry(format!(
                "{at} can only be read from, as a standby; `url` should name the primary"
            ));
        }
        // Data that it does not take, a constraint, a trigger, a limit: this entry or another one of the batch. Such
        // messages quote what was not taken.
        if matches!(class, "22" | "23" | "44" | "54" | "P0") {
            let about = [("table", db.table()), ("column", db.column()), ("constraint", db.constraint())];
            let about = about.iter().filter_map(|(what, name)| name.map(|name| format!(", {what} {name}")));
            let about: String = about.collect();
            return SinkError::Refused {
                text: format!("{at} answered SQLSTATE {}{about}; the server's log says more", code.code()),
            };
        }
        SinkError::retry(format!("{at}: {said} (SQLSTATE {})", code.code()))
    }
}

fn is_absent(code: &SqlState) -> bool {
    [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code)
}
